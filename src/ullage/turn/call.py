"""One request under way: its reservation, the part of the answer that has arrived, and its end.

However a call ends, the text that arrived is kept and the reservation is settled or released. What the store
cannot take is noted and written later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.broker.events import Event, Finished, Reasoning, Retrying, Text, ToolCall, Used
from ullage.errors import NotBooked, NotSaved, StoreError, StreamBroken, UllageError
from ullage.turn.counts import OwnCount, believable
from ullage.usage import entry_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from ullage.context import Context
    from ullage.cost import Reservation
    from ullage.cost.ledger import Ledger
    from ullage.fitting import Fitted
    from ullage.messages import Message
    from ullage.turn.counts import Counts
    from ullage.usage import Crossed, LedgerEntry, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The end of a turn: its usage, its cost, and the warnings that it caused."""

    usage: Usage
    estimated: tuple[str, ...] = ()
    """The usage figures that are our own count, because the provider sent none or an impossible one; empty if
    all figures are the provider's."""
    cost: Decimal | None
    """The cost in dollars; None if it is unknown."""
    fitted: Fitted[Message]
    """The request as it was sent."""
    warnings: tuple[Crossed, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerShortened:
    """A cap has no room for the longest answer, so the model is asked for a shorter one."""

    tokens: int
    """The most tokens of the answer."""


LEAST_ANSWER = 128
"""Tokens of the shortest answer that is worth asking for. If a cap leaves less, the call is refused."""
SHORT_ANSWER = 1_000
"""The user is told if a cap limits an answer to fewer tokens."""


@dataclass(slots=True)
class Call:
    """One request under way: its reservation, and the part of the answer that has arrived."""

    context: Context
    fitted: Fitted[Message]
    ledger: Ledger
    counts: Counts
    name: str
    """The name of the model on the bill."""
    category: str
    longest: int | None
    """The most tokens of an answer; None if it is unknown. A cap may lower it."""
    local: bool
    is_shortened: bool = False
    """True if a cap has lowered `longest`."""
    begun: bool = False
    _reservation: Reservation = field(init=False)
    _text: list[str] = field(default_factory=list)
    _thought: list[str] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)
    _usage: Usage | None = None
    _finished: bool = False
    _done: int = 0
    """The number of ending steps that are done."""
    _booked: LedgerEntry | None = None
    """The entry that the ledger has booked, or will book as soon as the store can be written."""
    _believed: tuple[Usage, tuple[str, ...]] | None = None
    _settled: Settled | None = None
    _failures: list[UllageError] = field(default_factory=list)
    _is_kept: bool = True
    _is_booked: bool = True

    def __post_init__(self) -> None:
        prompt = self.fitted.count.ceiling
        self._reservation = self.ledger.reserve(
            self.name,
            prompt,
            self.longest,
            least_output=LEAST_ANSWER,
            category=self.category,
            local=self.local,
        )
        granted = self._reservation.tokens - prompt
        if self.longest is not None and granted < self.longest:
            self.longest, self.is_shortened = granted, True

    def hear(self, event: Event) -> None:
        """Notes the content of an event."""
        self.begun = self.begun or not isinstance(event, Retrying)
        if isinstance(event, Text):
            self._text.append(event.text)
        elif isinstance(event, Reasoning):
            self._thought.append(event.text)
        elif isinstance(event, ToolCall):
            self._calls.append(event)
        elif isinstance(event, Used):
            self._usage = event.usage
        elif isinstance(event, Finished):
            self._finished = True

    def withdraw(self) -> None:
        """Releases the reservation, because nothing was answered or charged."""
        self.ledger.release(self._reservation)

    def end(self) -> Settled:
        """Appends the text that arrived, and settles with the known usage.

        A second call goes on with the steps that are not done. An error of the store is noted for
        `check_saved`.
        """
        steps = (self._keep_reply, self._book, self._learn, self._recalibrate)
        while self._done < len(steps):
            steps[self._done]()
            self._done += 1
        if self._settled is None:
            usage, estimated = self._check_usage()
            warnings = self.context.meter.add_entry(self.name, self.category, self._make_entry())
            self._settled = Settled(
                usage=usage, estimated=estimated, cost=self._cost, fitted=self.fitted, warnings=warnings
            )
        return self._settled

    def check_saved(self, broken: StreamBroken | None = None) -> None:
        """Raises the error that kept the end of the turn from being saved, with the text of `broken`."""
        if not self._failures:
            return
        first = self._failures[0]
        if not isinstance(first, StoreError):
            raise first
        reason = first.reason if isinstance(first, NotBooked) else str(first)
        raise NotSaved(
            reason if broken is None else f"{reason}. The answer also broke off: {broken}",
            is_answer_kept=self._is_kept,
            is_booked=self._is_booked,
            cost=self._cost,
        ) from first

    def _keep_reply(self) -> None:
        reply = self.reply()
        if reply is None:
            return
        try:
            self.context.append(reply)
        except StoreError as error:
            self._failures.append(error)
            self._is_kept = False
            self.context.append_later(reply)
        except UllageError as error:
            # For example, the conversation went on in another process. The call is paid for in any case.
            self._failures.append(error)

    def _book(self) -> None:
        try:
            usage, estimated = self._check_usage()
            tokens = self.fitted.count.tokens
            self._booked = self.ledger.settle(self._reservation, usage, tokens, estimated=bool(estimated))
        except StoreError as error:
            self._failures.append(error)
            self._is_booked = False
            self._booked = error.entry if isinstance(error, NotBooked) else None

    def _make_entry(self) -> LedgerEntry:
        """Returns the entry for the meter: the ledger's own, or only the tokens if nothing was booked."""
        if self._booked is not None:
            return self._booked
        usage, estimated = self._check_usage()
        return entry_of(usage, None, self.fitted.count.tokens, estimated=bool(estimated))

    @property
    def _cost(self) -> Decimal | None:
        return None if self._booked is None else self._booked.cost

    def _learn(self) -> None:
        self._observe(self.counts.learn_from)

    def _recalibrate(self) -> None:
        self._observe(self.counts.recalibrate)

    def _observe(self, step: Callable[[Context, Fitted[Message], int], None]) -> None:
        """Calls `step` with the provider's count of the prompt tokens, if there is one."""
        usage, estimated = self._check_usage()
        if "prompt" not in estimated:
            try:
                step(self.context, self.fitted, usage.prompt)
            except StoreError as error:
                self._failures.append(error)

    def _check_usage(self) -> tuple[Usage, tuple[str, ...]]:
        """Returns the provider's figures, and the names of those that our own count replaced."""
        if self._believed is None:
            self._believed = believable(self._usage, self._own_count())
        return self._believed

    def reply(self) -> Message | None:
        """Returns the answer as a turn. If it broke off, only its text: a call may be incomplete."""
        text = "".join(self._text)
        if self._calls and self._finished:
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self._calls
            ]
            return {"role": "assistant", "content": text or None, "tool_calls": calls}
        return {"role": "assistant", "content": text} if text or self._finished else None

    def _own_count(self) -> OwnCount:
        """Returns our own count of the request and of the answer so far."""
        called = (part for call in self._calls for part in (call.name, call.arguments))
        written = "".join([*self._thought, *self._text, *called])
        return OwnCount(
            prompt=self.fitted.count.tokens,
            ceiling=self.fitted.count.ceiling,
            completion=self.context.count_text(written).tokens,
            max_output=self.longest,
        )
