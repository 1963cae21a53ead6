"""The folds behind a conversation: a Window for each prompt and model in use, each fed with what is new."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.context.blocks import shares, split, system_messages, with_blocks
from ullage.errors import ContextOverflowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.context.blocks import Blocks
    from ullage.context.bounds import Bounds
    from ullage.context.rendering import Compaction, Line
    from ullage.fitting import Fitted
    from ullage.messages import Message
    from ullage.tokens import Count

MOST = 4
"""How many are followed at a time; another pays for reading the history once."""


class Fold:
    """A Window, the blocks of its system message, and how far it has read the conversation."""

    def __init__(self, bounds: Bounds, blocks: Blocks) -> None:
        self.bounds = bounds
        self.blocks = blocks
        self.window = bounds.open_window()
        self._counter = bounds.counter()
        self._shares = shares(self._counter, blocks)
        self._last: Message | None = None
        self._compacted = 0
        self._reported = 0
        for message in system_messages(blocks):
            self.window.append(message)
        self._before = len(self.window)  # messages before the first line

    def follow(self, lines: Sequence[Line], compactions: Sequence[Compaction]) -> None:
        """Reads what is new: lines, a last one that has grown since, and compactions where they happened."""
        window = self.window
        read = len(window) - self._before
        if read and self._last is not lines[read - 1].turn.message:
            window.retract()
            read -= 1
        for number, share in compactions[self._compacted :]:
            if read > number:
                window.retract()  # the question that is still open
            self._read(lines[read:number])
            read = number
            window.compact(share)
        self._compacted = len(compactions)
        self._read(lines[read:])

    def _read(self, lines: Sequence[Line]) -> None:
        for turn, _ in lines:
            self.window.append(turn.message, pin=turn.pin, priority=turn.priority)
            self._last = turn.message

    def renew(self, blocks: Blocks) -> bool:
        """Puts other blocks into the system message from here on; False where one comes or goes."""
        system = system_messages(blocks)
        if len(system) != self._before:
            return False
        for message in system:
            self.window.renew(message)
        self.blocks = blocks
        self._shares = shares(self._counter, blocks)
        return True

    def fitted(self) -> Fitted:
        """What to send, with the blocks told apart."""
        try:
            fitted = self.window.fitted()
        except ContextOverflowError as error:
            told = split(error.breakdown, self._shares)
            raise ContextOverflowError(
                error.tokens, error.limit, told, trimmed=self.bounds.rolling
            ) from error
        return replace(fitted, count=with_blocks(fitted.count, self._shares)) if self._shares else fitted

    def count(self) -> Count:
        """What stands here before a trim, with the blocks told apart."""
        return with_blocks(self.window.count(), self._shares)

    def line_of(self, place: int) -> int:
        """Which line stands at a place of the window's history."""
        return place - self._before

    def going(self, fitted: Fitted) -> list[int]:
        """The lines that this request is the first to go without."""
        return [self.line_of(place) for kind, place, *_ in fitted.record.pending if kind == "evict"]

    def taken(self, fitted: Fitted) -> Iterator[tuple[str, int]]:
        """What was done to which line, where the line is no longer sent whole and that was not told yet."""
        log, length, pending = fitted.record.log, fitted.record.length, fitted.record.pending
        for kind, place, *_ in (*log[self._reported : length], *pending):
            yield kind, self.line_of(place)
        self._reported = length


class Folds:
    """The folds that are in use, by their bounds and blocks; the one that was used last stands last."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        """What the conversation is held to now; with bounds that no fold has, the history is read again."""
        self._folds: list[Fold] = []

    def clear(self) -> None:
        """Forgets what was read of the history."""
        self._folds.clear()

    def get(self, blocks: Blocks, lines: Sequence[Line], compactions: Sequence[Compaction]) -> Fold:
        """The fold with these blocks, up to date."""
        place = next((at for at, fold in enumerate(self._folds) if self._is_for(fold, blocks)), None)
        fold = Fold(self.bounds, blocks) if place is None else self._folds.pop(place)
        self._folds = [*self._folds[1 - MOST :], fold]
        fold.follow(lines, compactions)
        return fold

    def _is_for(self, fold: Fold, blocks: Blocks) -> bool:
        return fold.blocks == blocks and (fold.bounds is self.bounds or fold.bounds == self.bounds)

    def renew(
        self, before: Blocks, blocks: Blocks, lines: Sequence[Line], compactions: Sequence[Compaction]
    ) -> None:
        """Goes on with other blocks where the fold with those before stands now."""
        fold = self.get(before, lines, compactions)
        self._folds = [fold] if fold.renew(blocks) else []
