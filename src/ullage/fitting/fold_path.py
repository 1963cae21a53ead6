"""`FoldPath`: the newest states of a fold.

A history that changed near its end is read again from that point, and not from its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.fitting import fold

if TYPE_CHECKING:
    from ullage.fitting.state import FoldState
    from ullage.messages import Message

KEPT = 32
"""Number of states that a path keeps. Clients change at most the last few messages of what they sent."""


class FoldPath:
    """The state of a fold now, and after each of the newest messages."""

    def __init__(self, state: FoldState) -> None:
        self.state = state
        self._by_length = {len(state.history): state}
        self._trimmed: FoldState | None = None

    def trimmed(self) -> FoldState:
        """The state with the trim that a request at this point needs; worked out once for each point."""
        if self._trimmed is None:
            self._trimmed = fold.commit(self.state)
        return self._trimmed

    def reprice(self, trimmed: FoldState) -> None:
        """Takes the trim of this point with other prices."""
        self._trimmed = trimmed

    def add(self, message: Message, *, pin: bool = False, priority: int = 0, joins: bool = False) -> None:
        """Reads one more message. An assistant's message makes the trim before it final."""
        state = self.trimmed() if message["role"] == "assistant" else self.state
        self._go_to(fold.append(state, message, pin=pin, priority=priority, joins=joins))

    def back_to(self, length: int) -> None:
        """Goes back to the state after the first `length` messages."""
        state, now = self.state, len(self.state.history)
        if length == now:
            return
        for read in range(length + 1, now + 1):
            self._by_length.pop(read, None)
        found = self._by_length.get(length)
        if found is None:
            marks = {mark.place: mark for mark in state.marks}
            found = fold.read(state.options, state.history[:length], marks)
        self._go_to(found)

    def _go_to(self, state: FoldState) -> None:
        self.state, self._trimmed = state, None
        length = len(state.history)
        self._by_length[length] = state
        self._by_length.pop(length - KEPT, None)
