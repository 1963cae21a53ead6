"""OpenAI's Responses API and its endpoint that counts tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.wire.api import Api
from ullage.wire.openai_responses_reader import read, read_items
from ullage.wire.openai_responses_writer import patch, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.wire.api import Sum

USAGE: Mapping[str, Sum] = {
    "prompt": (("input_tokens",),),
    "completion": (("output_tokens",),),
    "cached_read": (("input_tokens_details.cached_tokens",),),
    "cache_write": (("input_tokens_details.cache_write_tokens",),),
    "reasoning": (("output_tokens_details.reasoning_tokens", "output_tokens_details.thinking_tokens"),),
}
OPTIONS = {
    "output limit": ("max_output_tokens",),
    "temperature": ("temperature",),
    "nucleus": ("top_p",),
    "stream": ("stream",),
    "parallel": ("parallel_tool_calls",),
}
HELD = ("previous_response_id", "conversation", "prompt")
COUNTED = frozenset(
    ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text")
)

APIS = (
    Api(
        name="openai.responses",
        read=read,
        write=write,
        usage=USAGE,
        options=OPTIONS,
        held=HELD,
        history="input",
        read_items=read_items,
        patch=patch,
    ),
    Api(
        name="openai.responses.input_tokens",
        read=read,
        write=write,
        usage=USAGE,
        options=OPTIONS,
        held=HELD,
        members=COUNTED,
    ),
)
