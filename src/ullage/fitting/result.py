"""What fitting gives back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ullage.fitting.shorten import handle_of
from ullage.fitting.units import piece_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.fitting.draft import Done
    from ullage.messages import Message
    from ullage.tokens import Cost, Count


@dataclass(frozen=True, slots=True)
class Change:
    """What fitting did to one message."""

    kind: str
    """cap, age, errors, placeholder, cut, or evict."""
    index: int
    """The message's place in the history."""
    tokens_before: int
    tokens_after: int
    handle: str
    """Names the content that was taken out, for recall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Messages that fit, and what was done to make them."""

    messages: Sequence[Message]
    """What to send; the very object that was given, where nothing had to change."""
    count: Count
    limit: int
    changed: bool
    dropped: int
    """Messages that are no longer there."""
    truncated: int
    """Messages that are there in a shorter form."""
    tokens_before: int
    tokens_after: int
    estimate: Cost
    """What the request costs before calibration: what the provider's own count is compared with."""
    record: Record = field(repr=False)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What became of each message that is not as it was given, by its place in the history."""
        return self.record.net()


class Record(NamedTuple):
    """The record behind a result: told when asked for, because it grows with the history."""

    history: Sequence[Message]
    log: Sequence[Done]
    """Everything that was done, in order; a running conversation goes on writing it."""
    length: int
    """How much of `log` belongs to this result."""
    pending: tuple[Done, ...]
    """What this request changes for the first time."""

    def net(self) -> tuple[Change, ...]:
        """One change for each message that is not as it was given."""
        net: dict[int, Change] = {}
        handles: dict[str, bytes] = {}
        for kind, place, tokens_before, tokens_after, handle in (*self.log[: self.length], *self.pending):
            before = net.get(place)
            if before is None:
                if not handle:
                    handle, full = handle_of(piece_of(self.history[place]), handles)  # noqa: PLW2901
                    handles[handle] = full
                net[place] = Change(kind, place, tokens_before, tokens_after, handle)
            else:
                net[place] = replace(before, kind=kind, tokens_after=tokens_after)
        return tuple(net[index] for index in sorted(net))
