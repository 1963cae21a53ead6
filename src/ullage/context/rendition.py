"""A rendition: one request of a conversation, and the lines that its messages come from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ullage.context.forms import newest, tail_of
from ullage.fitting import Change
from ullage.fitting.pieces import HANDLE_LENGTH, letters_of, piece_of
from ullage.fitting.result import EVICT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.context.forms import Compress
    from ullage.context.state import Line
    from ullage.fitting import Fitted
    from ullage.messages import Message
    from ullage.tokens import Counter


class Rendition(NamedTuple):
    """A rendered request, and the line of the conversation that each of its messages comes from."""

    fitted: Fitted[Message]
    line_of: Callable[[int], int]
    """Returns the line of the message at this index before fitting."""
    short: Short | None = None
    """The short form that was fitted; None if the request is not one."""

    def changes(self, lines: Sequence[Line], counter: Counter) -> tuple[Change, ...]:
        """Returns one change for each turn that the request left out or altered, in order."""
        changes = {self.line_of(change.index): change for change in self.fitted.changes}
        for line, after in (self.short.instead if self.short else {}).items():
            message = lines[line].turn.message
            before, left = (0 if each is None else counter.message(each).tokens for each in (message, after))
            kind, handle = EVICT if after is None else "cut", letters_of(piece_of(message))[:HANDLE_LENGTH]
            changes.setdefault(line, Change(kind, line, before, left, handle, evicted=after is None))
        return tuple(replace(changes[line], index=lines[line].place) for line in sorted(changes))


class Short(NamedTuple):
    """The short form of a conversation."""

    lines: Sequence[int]
    """The indexes of the lines in the short form."""
    messages: Sequence[Message]
    """The messages of these lines, in their short form."""
    instead: dict[int, Message | None]
    """The message that replaces each changed line; None if the line is left out."""


def short_form(lines: Sequence[Line], compress: Compress) -> Short:
    """Returns the newest lines, each cut to its tail."""
    whole = [line.turn.message for line in lines]
    places = newest(whole, compress)
    messages = [tail_of(whole[place], compress.max_turn_chars) for place in places]
    instead: dict[int, Message | None] = dict.fromkeys(set(range(len(whole))).difference(places))
    instead |= {
        place: message for place, message in zip(places, messages, strict=True) if message is not whole[place]
    }
    return Short(places, messages, instead)
