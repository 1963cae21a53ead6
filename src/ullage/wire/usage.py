"""What each API says that a request used, as one set of counts: a table of where each figure stands.

    counts = wire.usage.counts(answer["usage"], "anthropic.messages")

A figure that is missing, is no whole number or cannot be true is left out of the sum; where nothing is left,
there is no usage. That the parts go into their wholes is seen to by `ullage.usage`, which the result is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

MOST_TOKENS = 10**9
"""A figure above this is no count of one request's tokens."""

Sum: TypeAlias = tuple[tuple[str, ...], ...]
"""What is added up: of each group the first place that holds a count; a dot leads into an object."""

CACHES: Sum = (("cache_read_input_tokens",), ("cache_creation_input_tokens",))
CONVERSE_READ = ("cacheReadInputTokens", "cacheReadInputTokenCount")
CONVERSE_WRITE = ("cacheWriteInputTokens", "cacheWriteInputTokenCount")
THINKING = ("output_tokens_details.thinking_tokens",)

CHAT: Mapping[str, Sum] = {
    "prompt": (("prompt_tokens",),),
    "completion": (("completion_tokens",),),
    "cached_read": (
        ("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"),
    ),
    "cache_write": (("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens"),),
    "reasoning": (("completion_tokens_details.reasoning_tokens",),),
}
RESPONSES: Mapping[str, Sum] = {
    "prompt": (("input_tokens",),),
    "completion": (("output_tokens",),),
    "cached_read": (("input_tokens_details.cached_tokens",),),
    "cache_write": (("input_tokens_details.cache_write_tokens",),),
    "reasoning": (("output_tokens_details.reasoning_tokens", *THINKING),),
}
ANTHROPIC: Mapping[str, Sum] = {
    "prompt": (("input_tokens",), *CACHES),
    "completion": (("output_tokens",),),
    "cached_read": CACHES[:1],
    "cache_write": CACHES[1:],
    "reasoning": (THINKING,),
}
GEMINI: Mapping[str, Sum] = {
    "prompt": (("promptTokenCount", "prompt_token_count"),),
    "completion": (
        ("candidatesTokenCount", "candidates_token_count"),
        ("thoughtsTokenCount", "thoughts_token_count"),
    ),
    "cached_read": (("cachedContentTokenCount", "cached_content_token_count"),),
    "reasoning": (("thoughtsTokenCount", "thoughts_token_count"),),
}
CONVERSE: Mapping[str, Sum] = {
    "prompt": (("inputTokens",), CONVERSE_READ, CONVERSE_WRITE),
    "completion": (("outputTokens",),),
    "cached_read": (CONVERSE_READ,),
    "cache_write": (CONVERSE_WRITE,),
}
INVOKE: Mapping[str, Sum] = {  # each maker of a model behind it has its own words
    "prompt": (
        (
            "input_tokens",
            "prompt_tokens",
            "prompt_token_count",
            "inputTokens",
            "inputTokenCount",
            "inputTextTokenCount",
        ),
        (*CACHES[0], *CONVERSE_READ),
        (*CACHES[1], *CONVERSE_WRITE),
    ),
    "completion": (
        (
            "output_tokens",
            "completion_tokens",
            "generation_token_count",
            "outputTokens",
            "outputTokenCount",
        ),
    ),
    "cached_read": ((*CACHES[0], *CONVERSE_READ),),
    "cache_write": ((*CACHES[1], *CONVERSE_WRITE),),
    "reasoning": (THINKING,),
}
OLLAMA: Mapping[str, Sum] = {
    "prompt": (("prompt_eval_count",),),
    "completion": (("eval_count",),),
}
COHERE: Mapping[str, Sum] = {  # what is billed leaves the template out; what the window holds does not
    "prompt": (("tokens.input_tokens", "billed_units.input_tokens"),),
    "completion": (("tokens.output_tokens", "billed_units.output_tokens"),),
    "cached_read": (("cached_tokens",),),
    "reasoning": (("tokens.reasoning_tokens",),),
}

PLACES: Mapping[str, Mapping[str, Sum]] = {
    "openai.chat": CHAT,
    "openai.responses": RESPONSES,
    "openai.responses.input_tokens": RESPONSES,
    "anthropic.messages": ANTHROPIC,
    "anthropic.count_tokens": ANTHROPIC,
    "gemini": GEMINI,
    "gemini.count_tokens": {"prompt": (("totalTokens", "total_tokens"),)},
    "bedrock.converse": CONVERSE,
    "bedrock.invoke": INVOKE,
    "ollama.chat": OLLAMA,
    "cohere.chat.v1": COHERE,
    "cohere.chat.v2": COHERE,
}
"""API → field of `ullage.usage.Usage` → where it stands."""


def counts(usage: Any, api: str) -> dict[str, int] | None:
    """The fields of a Usage that this API's usage object tells; None where it tells none, never an error."""
    if not isinstance(usage, Mapping) or api not in PLACES:
        return None
    found = {name: _summed(usage, places) for name, places in PLACES[api].items()}
    told = {name: count for name, count in found.items() if count is not None}
    return told or None


def _summed(usage: Mapping[str, Any], places: Sum) -> int | None:
    """The sum of what is there; None where nothing is."""
    parts = [part for group in places if (part := _first(usage, group)) is not None]
    return sum(parts) if parts else None


def _first(usage: Mapping[str, Any], group: tuple[str, ...]) -> int | None:
    for place in group:
        value: Any = usage
        for step in place.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
            count = int(value)  # Cohere and Bedrock write whole numbers as 28.0
            if count == value:
                return count
    return None
