"""A request as it was made, and where its messages stand in the conversation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ullage.context.forms import newest, tail_of
from ullage.fitting import Change
from ullage.fitting.shorten import HANDLE_LENGTH, letters_of
from ullage.fitting.units import piece_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.context.forms import Compress
    from ullage.context.rendering import Line
    from ullage.fitting import Fitted
    from ullage.messages import Message
    from ullage.tokens import Counter


class Request(NamedTuple):
    """What is sent, and which line of the conversation each of its messages is."""

    fitted: Fitted
    line_of: Callable[[int], int]
    """From the place of a message that was fitted to the line that it is."""
    short: Short | None = None
    """The short form that was fitted, where it was one."""

    def changes(self, lines: Sequence[Line], counter: Counter) -> tuple[Change, ...]:
        """What became of each turn that is not sent as it is, by the turn's place."""
        changes = {self.line_of(change.index): change for change in self.fitted.changes}
        for line, after in (self.short.instead if self.short else {}).items():
            message = lines[line].turn.message
            before, left = (0 if each is None else counter.message(each).tokens for each in (message, after))
            kind, handle = "cut" if after else "evict", letters_of(piece_of(message))[:HANDLE_LENGTH]
            changes.setdefault(line, Change(kind, line, before, left, handle))
        return tuple(replace(changes[line], index=lines[line].place) for line in sorted(changes))


class Short(NamedTuple):
    """The short form of a conversation."""

    lines: Sequence[int]
    """The lines that are in it."""
    messages: Sequence[Message]
    """As they are there."""
    instead: dict[int, Message | None]
    """What stands for each line that is not there as it is; None for nothing."""


def short_form(lines: Sequence[Line], compress: Compress) -> Short:
    """The newest lines, each cut to its tail."""
    whole = [line.turn.message for line in lines]
    places = newest(whole, compress)
    messages = [tail_of(whole[place], compress.max_turn_chars) for place in places]
    instead: dict[int, Message | None] = dict.fromkeys(set(range(len(whole))).difference(places))
    instead |= {
        place: message for place, message in zip(places, messages, strict=True) if message is not whole[place]
    }
    return Short(places, messages, instead)
