"""The result of fitting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ullage.fitting.pieces import handle_of, piece_of
from ullage.intake import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.fitting.policy import ChangeKind
    from ullage.fitting.series import Done
    from ullage.messages import Message
    from ullage.tokens import Cost, Count


M = TypeVar("M")
"""The caller's own type of a message."""

EVICT = "evict"
"""The kind of change that takes a message out. In a log, the name of a caller's own pass follows a colon."""


def is_eviction(kind: str) -> bool:
    """Returns True if a logged change of this kind took the message out."""
    return kind == EVICT or kind.startswith(f"{EVICT}:")


@dataclass(frozen=True, slots=True)
class Change:
    """One message that fitting changed or took out."""

    kind: ChangeKind | str
    """cap, age, errors, placeholder, cut or evict; or the name of your own pass."""
    index: int
    """The message's place in the history."""
    tokens_before: int
    tokens_after: int
    handle: str
    """Names the content that was taken out, for recall."""
    evicted: bool = False
    """True if the message is no longer in the request; False if it is there in a shorter form."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Fitted(Generic[M]):
    """Messages that fit, and the changes that made them fit."""

    messages: Sequence[M]
    """The messages to send. An unchanged message is the object that was given to `fit`. So is the list, if no
    message changed."""
    sources: Sequence[int | None]
    """For each message, the place of the given message that it stands for; None for one that fitting made."""
    count: Count
    limit: int
    changed: bool
    dropped: int
    """Number of messages that were removed."""
    truncated: int
    """Number of messages in a shorter form."""
    tokens_before: int
    tokens_after: int
    estimate: Cost
    """The cost before calibration, for comparison with the provider's count."""
    record: FitRecord

    def __repr__(self) -> str:
        """Returns the figures without the conversation, so that no log contains it."""
        done = f"{self.dropped} dropped, {self.truncated} truncated" if self.changed else "unchanged"
        tokens = f"{self.count.ceiling} of {self.limit} tokens"
        return f"<Fitted: {plural(len(self.messages), 'message')}, {tokens}, {done}>"

    @property
    def recalled(self) -> tuple[int, ...]:
        """The places in the history of messages that were taken out and are quoted for the question."""
        return self.record.recalled

    @property
    def changes(self) -> tuple[Change, ...]:
        """One change for each message that was changed or removed, in the order of the history."""
        return self.record.net()


def with_originals(fitted: Fitted[Any], given: Sequence[M]) -> Fitted[M]:
    """Returns the result with the caller's own objects for all messages that did not change.

    `given` has the messages that the history of `fitted` was made of, in the caller's own form.
    """
    if not fitted.changed:
        return replace(fitted, messages=given)
    history = fitted.record.history
    messages = [
        message if source is None or message is not history[source] else given[source]
        for message, source in zip(fitted.messages, fitted.sources, strict=True)
    ]
    return replace(fitted, messages=messages)


class FitRecord(NamedTuple):
    """The log behind a result. Its changes are computed on demand, because they grow with the history."""

    history: Sequence[Message]
    log: Sequence[Done]
    """Everything that was done, in order."""
    final: int
    """Number of entries of `log` from earlier trims; the others are from the trim of this request."""
    recalled: tuple[int, ...] = ()
    """The places of the messages that were taken out and are quoted in front of the question."""

    @property
    def pending(self) -> Sequence[Done]:
        """The changes that this request makes first."""
        return self.since(self.final)

    def since(self, number: int) -> Sequence[Done]:
        """Returns the entries of `log` after the first `number`."""
        return self.log[number:]

    def net(self) -> tuple[Change, ...]:
        """Returns one change for each message that was changed or removed."""
        net: dict[int, Change] = {}
        handles: dict[str, bytes] = {}
        for kind, place, tokens_before, tokens_after, handle in self.log:
            before = net.get(place)
            if before is None:
                if not handle:
                    handle, full = handle_of(piece_of(self.history[place]), handles)  # noqa: PLW2901
                    handles[handle] = full
                before = net[place] = Change(kind, place, tokens_before, tokens_after, handle)
            own = kind.removeprefix(f"{EVICT}:")
            net[place] = replace(before, kind=own, tokens_after=tokens_after, evicted=is_eviction(kind))
        return tuple(net[index] for index in sorted(net))
