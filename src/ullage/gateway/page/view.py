"""The activity, the costs and the caps as JSON for the page, and the events of its stream."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping


class ChangeWords(NamedTuple):
    """The words for a kind of change."""

    label: str
    """A few words for the list of requests."""
    text: str


REASONS: Mapping[str, ChangeWords] = {
    "cap": ChangeWords("output shortened", "old tool output that was too long: its head and tail stay"),
    "age": ChangeWords(
        "old output replaced", "tool output of a step long ago: a placeholder stands in its place"
    ),
    "errors": ChangeWords("errors kept", "long error output: its error lines stay"),
    "placeholder": ChangeWords("output replaced", "older tool output: a placeholder stands in its place"),
    "cut": ChangeWords("newest output shortened", "newest output, larger than the room: its middle is cut"),
    "evict": ChangeWords(
        "exchange taken out", "older exchange: it left the request, and the digest quotes it"
    ),
    "documents": ChangeWords("files shortened", "files in one older message: the head and tail of each stay"),
    "steps": ChangeWords(
        "step taken out", "old step of a long loop: it left the request, and the digest quotes it"
    ),
    "previous": ChangeWords("earlier output shortened", "output before the newest one: its middle is cut"),
}
"""Kind of a change, or a pass of the gateway's own → its words."""


def dump(value: Any) -> bytes:
    """Returns the JSON text of dataclasses, dicts and lists."""
    return orjson.dumps(value, default=_plain)


def event(name: str, value: Any, number: int | None = None) -> bytes:
    """Returns one event of a stream; a browser that connects again names the last number."""
    mark = b"" if number is None else b"id: %d\n" % number
    return b"%bevent: %b\ndata: %b\n\n" % (mark, name.encode(), dump(value))


def _plain(value: Any) -> Any:
    """Returns the value of a type that JSON lacks: money as a number, a series as a list."""
    return float(value) if isinstance(value, Decimal) else list(value)
