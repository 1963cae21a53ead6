"""The origin of a message in a body, so that a fitted request is the given body with few changes.

`Api.read_items` reads the list of a body's items into messages, each with its `Origin`. After fitting,
`Api.patch` writes the body again: an item whose messages did not change is the very object that was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.wire.parts import text_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.messages import Message


class Origin(NamedTuple):
    """The part of a body that a message was read from."""

    items: tuple[int, ...]
    """Positions in the list of items; empty for a system prompt beside the list."""
    blocks: tuple[int, ...] | None = None
    """Positions in the content of the only item, if other messages were read from that item as well."""
    joins: bool = False
    """True for words of the system or the user that stay or go with the message before them."""


class Kept(NamedTuple):
    """A message of a fitted request."""

    message: Message
    before: Message | None
    """The message as it was read: the same object if it did not change, None if fitting made the message."""
    origin: Origin | None
    """None if fitting made the message."""

    @property
    def is_same(self) -> bool:
        """True if the message did not change."""
        return self.message is self.before


def patched_content(kept: Kept, given: Any) -> Any:
    """Returns the content of a message in the body's own blocks, of which `given` are those that were read.

    A client may have moved cache marks since the message was read, so blocks come from the body of today.
    """
    after = kept.message["content"]
    if isinstance(after, str):
        return after if given is None or isinstance(given, str) else [text_part(after)]
    before: Sequence[Any] = () if kept.before is None else kept.before["content"]
    position = {id(part): index for index, part in enumerate(before)}
    return [given[position[id(part)]] if id(part) in position else text_part(part["text"]) for part in after]
