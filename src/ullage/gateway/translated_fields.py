"""The fields of a request that goes to another API: said there in other words, left out, or refused.

A field that nobody lists here is refused with its name, so that nothing is lost in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.target import ApiName

COMMON = frozenset({"model", "tools", "tool_choice", "temperature", "top_p", "stream", "stream_options"})
SAID: Mapping[ApiName, frozenset[str]] = {
    "openai.chat": COMMON
    | {
        "messages",
        "response_format",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "parallel_tool_calls",
        "reasoning_effort",
    },
    "openai.responses": COMMON
    | {
        "input",
        "instructions",
        "text",
        "max_output_tokens",
        "parallel_tool_calls",
        "reasoning",
        # The server holds what these name; `wire.write` refuses them.
        "previous_response_id",
        "conversation",
        "prompt",
    },
    "anthropic.messages": COMMON
    | {"messages", "system", "max_tokens", "stop_sequences", "output_config", "output_format"},
}
"""The fields that the other APIs can say too."""

ADVISORY: Mapping[str, str] = {
    "metadata": "a note for the provider's own records",
    "client_metadata": "a note for the provider's own records",
    "user": "a name for the provider's own records",
    "safety_identifier": "a name for the provider's own records",
    "store": "a copy at the provider; a translated request has the whole history",
    "service_tier": "chooses between queues of the provider",
    "speed": "chooses between queues of the provider",
    "prompt_cache_key": "helps the provider's cache",
    "prompt_cache_retention": "helps the provider's cache",
    "prompt_cache_options": "helps the provider's cache",
    "cache_control": "helps the provider's cache",
    "truncation": "the gateway itself keeps the request inside the window",
    "context_management": "the gateway itself keeps the request inside the window",
    "thinking": "each model decides on its own thinking; all APIs have `effort`",
    "verbosity": "a wish about the length of the answer",
    "seed": "the provider only tries to give the same answer",
}
"""Fields that may be left out, each with the reason: the question and the form of the answer stay."""

READABLE = frozenset({"reasoning.encrypted_content"})
"""The values of `include` that say nothing to another server, because only their own provider reads them."""

NEUTRAL: Mapping[str, Callable[[Any], bool]] = {
    "n": lambda value: value == 1,
    "logprobs": lambda value: value is False,
    "top_logprobs": lambda value: value == 0,
    "presence_penalty": lambda value: value == 0,
    "frequency_penalty": lambda value: value == 0,
    "logit_bias": lambda value: not value,
    "modalities": lambda value: value == ["text"],
    "background": lambda value: value is False,
    "include": lambda value: isinstance(value, list) and set(map(str, value)) <= READABLE,
    "mcp_servers": lambda value: value == [],
}
"""Fields that may be left out if they ask for nothing."""
MEMBERS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"format", "verbosity"}),
    "reasoning": frozenset({"effort", "summary", "generate_summary"}),
    "output_config": frozenset({"format", "effort"}),
    "stream_options": frozenset({"include_usage", "include_obfuscation"}),
}
"""The members of objects that are said, or are only advice."""

UNSAID: Mapping[ApiName, frozenset[str]] = {
    "openai.chat": frozenset(),
    "openai.responses": frozenset({"stop", "stop_sequences"}),
    "anthropic.messages": frozenset(),
}
"""Fields that most APIs have and this one does not."""


def check_fields(body: Mapping[str, Any], source: ApiName, target: ApiName) -> Iterator[str]:
    """Yields the fields that are left out; raises InvalidRequest for one without an equivalent."""
    for name, value in body.items():
        if value is None:
            continue
        if name in SAID[source] and name not in UNSAID[target]:
            known = MEMBERS.get(name)
            for member in value if known is not None and isinstance(value, dict) else ():
                if known is not None and member not in known and value[member] is not None:
                    raise _unsaid(f"{name}.{member}", source, target)
        elif name in ADVISORY:
            yield name
        elif name not in NEUTRAL or not NEUTRAL[name](value):
            raise _unsaid(name, source, target)


def _unsaid(field: str, source: ApiName, target: ApiName) -> InvalidRequest:
    return InvalidRequest(
        f"the model's server speaks {target}, which has no equivalent for this field: leave it out, or use "
        "another model",
        api=source,
        field=field,
    )
