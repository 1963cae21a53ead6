"""What changes when a request leaves by another API than it came by.

On its own API everything goes back as it came. On another one only what that API knows may go:
options are renamed by the table below or left out, members that only the first API knows are
left out, and so is thinking, which is signed for its own provider alone. What the conversation
cannot do without and the other API cannot say raises InvalidRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ullage.wire.fields import Object
    from ullage.wire.request import Request

CHAT, RESPONSES, ANTHROPIC = "openai.chat", "openai.responses", "anthropic"

# option → its name in each API; the first name that is there counts, and is the one that is written
OPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "output limit": {
        CHAT: ("max_completion_tokens", "max_tokens"),
        RESPONSES: ("max_output_tokens",),
        ANTHROPIC: ("max_tokens",),
    },
    "temperature": {CHAT: ("temperature",), RESPONSES: ("temperature",), ANTHROPIC: ("temperature",)},
    "nucleus": {CHAT: ("top_p",), RESPONSES: ("top_p",), ANTHROPIC: ("top_p",)},
    "stop": {CHAT: ("stop",), ANTHROPIC: ("stop_sequences",)},
    "stream": {CHAT: ("stream",), RESPONSES: ("stream",), ANTHROPIC: ("stream",)},
    "parallel": {CHAT: ("parallel_tool_calls",), RESPONSES: ("parallel_tool_calls",)},
}

UNSENDABLE = frozenset({"thinking", "redacted_thinking", "reasoning", "compaction"})
"""Parts that mean something to the provider that made them, and to no other."""


def is_own(request: Request, api: str) -> bool:
    """Whether a request goes back to the API that it came from, or was made by hand."""
    return request.api is None or request.api == api or request.api.startswith(api + ".")


def options(request: Request, api: str) -> Object:
    """The body's options for this API: all of them on its own, the known ones renamed on another."""
    if is_own(request, api):
        return dict(request.rest)
    source = next((each for each in (CHAT, RESPONSES, ANTHROPIC) if is_own(request, each)), CHAT)
    found: Object = {}
    for names in OPTIONS.values():
        value = next(
            (request.rest[n] for n in names.get(source, ()) if request.rest.get(n) is not None), None
        )
        if value is not None and api in names:
            found[names[api][0]] = value
    if isinstance(found.get("stop_sequences"), str):
        found["stop_sequences"] = [found["stop_sequences"]]
    return _parallel(request, api, found)


def _parallel(request: Request, api: str, found: Object) -> Object:
    """Whether calls may be parallel: an option of OpenAI's, a member of the tool choice at Anthropic's."""
    if api == ANTHROPIC and request.rest.get("parallel_tool_calls") is False and request.tools:
        found["tool_choice"] = {"disable_parallel_tool_use": True}
    left = request.rest.get("tool_choice")
    if api != ANTHROPIC and isinstance(left, dict) and left.get("disable_parallel_tool_use") is True:
        found["parallel_tool_calls"] = False
    return found


def sendable(part: Mapping[str, Any], own: bool) -> bool:
    """Whether a part may go to this API."""
    return own or part.get("type") not in UNSENDABLE


def placed(call: Object, at: int, total: int) -> Object:
    """A call that says how many parts stand before it, where some stand behind it."""
    return {**call, "position": at} if at < total else call


def interleaved(
    parts: Sequence[Object | None], calls: Iterable[tuple[Mapping[str, Any], Object]]
) -> list[Object]:
    """Parts with the calls put back between them; a None holds the place of a part left out."""
    slots: list[list[Object]] = [[] for _ in range(len(parts) + 1)]
    for call, written in calls:
        at = call.get("position")
        slots[at if isinstance(at, int) and 0 <= at < len(parts) else -1].append(written)
    ordered: list[Object] = []
    for index, part in enumerate(parts):
        ordered += slots[index]
        if part is not None:
            ordered.append(part)
    return ordered + slots[-1]


def some(value: Mapping[str, Any], *names: str) -> Object:
    """These members of an object, as far as they are there and not null."""
    return {name: value[name] for name in names if value.get(name) is not None}


def no_counterpart(kind: Any, api: str) -> InvalidRequest:
    """The error for what another API cannot say."""
    return InvalidRequest(f"{kind!r} of another API has no counterpart here; leave it out", api=api)
