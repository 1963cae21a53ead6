"""The input limit of a request, and its output limits, lowered together if the window cannot hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.cost.keys import check_limit
from ullage.gateway.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.cost.keys import GatewayKey
    from ullage.gateway.upstreams import Room
    from ullage.target import ApiName

FIELDS: Mapping[ApiName, tuple[str, ...]] = {
    "openai.chat": ("max_completion_tokens", "max_tokens", "n_predict"),
    "openai.responses": ("max_output_tokens",),
    "anthropic.messages": ("max_tokens",),
}
"""The fields of the longest answer, by API; `n_predict` is llama.cpp's own, and outranks the others there."""
NO_LIMIT = 1_000_000_000
"""The limit of a model with an unknown window: the request is counted and not changed."""
MOST_DIGITS = 9
"""Most digits of a limit in a header."""
LEAST_THINKING = 1_024
"""Fewest tokens of `thinking.budget_tokens` that Anthropic accepts."""
RESERVED_SHARE = 8
"""The window is divided by this for the default reserve. An agent's answer is rarely longer, and a longer
one is still possible in a conversation that does not fill its window."""


def read_requested_output(body: Mapping[str, Any], api: ApiName) -> int | None:
    """Returns the longest answer that the client asks for; None if it sets no limit.

    Of several fields the largest counts, because servers differ in the one that they obey. One that is no
    positive number sets no limit: some servers take -1 for that.
    """
    given = [_number(body[name]) for name in FIELDS[api] if body.get(name) is not None]
    return max(given) if given and min(given) > 0 else None


def read_requested_answers(body: Mapping[str, Any], api: ApiName) -> int:
    """Returns the number of answers that a request asks for: `n` of chat completions, each of full length."""
    return max(1, _number(body.get("n"))) if api == "openai.chat" else 1


def _number(value: Any) -> int:
    """Returns a number of a request, 0 if it is none; some servers also take one in a text."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def read_limit(header: str, key: GatewayKey | None) -> int | None:
    """Returns the limit that the header `x-ullage-limit` or the key sets; None if neither does.

    Raises KeyRefused if the header asks for more than the key allows.
    """
    given = header.strip()
    if given and not (given.isascii() and given.isdigit() and len(given) <= MOST_DIGITS and int(given) > 0):
        raise Refused(
            "invalid",
            f"the header x-ullage-limit must be a number of tokens from 1 to {10**MOST_DIGITS - 1:,}",
        )
    asked = int(given) if given else None
    return asked if key is None else check_limit(key, asked)


def input_limit(
    room: Room | None, requested: int | None, reserved: int | None, lowered: int | None = None
) -> int:
    """Returns the most input tokens: the window less the reserve for the answer, or a lower given limit.

    `reserved` is the configured reserve. A client that asks for a shorter answer leaves more for the input.
    If the window is unknown, only the given limit counts.
    """
    if room is None:
        return NO_LIMIT if lowered is None else lowered
    most = room.window // RESERVED_SHARE if reserved is None else reserved
    kept = most if requested is None else min(most, requested)
    limit = max(1, room.window - kept)
    return min(each for each in (limit, room.max_input, lowered) if each is not None)


class Output(NamedTuple):
    """The output limits that a request is sent with."""

    body: dict[str, Any]
    """The same object as before if nothing was lowered."""
    most: int | None
    """The longest answer in tokens; None if neither the client nor the window sets a limit."""
    lowered: bool = False


def lower_output(body: dict[str, Any], api: ApiName, room: Room | None, tokens: int) -> Output:
    """Returns the body with output limits that fit beside an input of at most `tokens` tokens.

    A thinking budget stays below the limit of the answer. If its least does not fit below it either, both
    stay as they are: the upstream then refuses the request in its own words.
    """
    requested = read_requested_output(body, api)
    if room is None:
        return Output(body, requested)
    left = max(1, room.window - tokens)
    if requested is None or requested <= left:
        return Output(body, left if requested is None else requested)
    changed = body | {name: left for name in FIELDS[api] if _is_above(body.get(name), left)}
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and _is_above(thinking.get("budget_tokens"), left - 1):
        if left <= LEAST_THINKING:
            return Output(body, requested)
        # The answer itself needs room too, so the thinking gets at most half of it.
        changed["thinking"] = thinking | {"budget_tokens": max(LEAST_THINKING, left // 2)}
    return Output(changed, left, lowered=True)


def _is_above(value: Any, most: int) -> bool:
    return value.__class__ is int and value > most
