"""Anthropic's Messages API and its endpoint that counts tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.wire.anthropic_reader import read, read_turns
from ullage.wire.anthropic_writer import patch, write
from ullage.wire.api import Api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.wire.api import Sum

CACHES: Sum = (("cache_read_input_tokens",), ("cache_creation_input_tokens",))
"""Fields of a usage object with the tokens read from the cache and written to it."""
THINKING = ("output_tokens_details.thinking_tokens",)
USAGE: Mapping[str, Sum] = {
    "prompt": (("input_tokens",), *CACHES),
    "completion": (("output_tokens",),),
    "cached_read": CACHES[:1],
    "cache_write": CACHES[1:],
    "reasoning": (THINKING,),
}
OPTIONS = {
    "output limit": ("max_tokens",),
    "temperature": ("temperature",),
    "nucleus": ("top_p",),
    "stop": ("stop_sequences",),
    "stream": ("stream",),
}
COUNTED = frozenset(
    ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format")
)

APIS = (
    Api(
        name="anthropic.messages",
        read=read,
        write=write,
        usage=USAGE,
        options=OPTIONS,
        history="messages",
        read_items=read_turns,
        patch=patch,
    ),
    Api(name="anthropic.count_tokens", read=read, write=write, usage=USAGE, options=OPTIONS, members=COUNTED),
)
