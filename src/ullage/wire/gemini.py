"""Google's generateContent and its endpoint that counts tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.wire.api import Api
from ullage.wire.gemini_reader import read
from ullage.wire.gemini_writer import leave, write, write_counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.wire.api import Sum

USAGE: Mapping[str, Sum] = {
    "prompt": (("promptTokenCount", "prompt_token_count"),),
    "completion": (
        ("candidatesTokenCount", "candidates_token_count"),
        ("thoughtsTokenCount", "thoughts_token_count"),
    ),
    "cached_read": (("cachedContentTokenCount", "cached_content_token_count"),),
    "reasoning": (("thoughtsTokenCount", "thoughts_token_count"),),
}
TOTAL: Mapping[str, Sum] = {"prompt": (("totalTokens", "total_tokens"),)}
OPTIONS = {
    "output limit": ("generationConfig.maxOutputTokens", "generation_config.max_output_tokens"),
    "temperature": ("generationConfig.temperature", "generation_config.temperature"),
    "nucleus": ("generationConfig.topP", "generation_config.top_p"),
    "stop": ("generationConfig.stopSequences", "generation_config.stop_sequences"),
}
HELD = ("cachedContent", "cached_content")

APIS = (
    Api(name="gemini", read=read, write=write, usage=USAGE, options=OPTIONS, held=HELD, leave=leave),
    Api(
        name="gemini.count_tokens",
        read=read,
        write=write_counted,
        usage=TOTAL,
        options=OPTIONS,
        held=HELD,
        leave=leave,
    ),
)
