"""The rounds of one answer: a model that recalls is asked again, and the client gets one answer for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.gateway.answer_filter import FILTERS
from ullage.gateway.answer_filter.shared import sum_usage
from ullage.gateway.recall import MOST_ROUNDS

if TYPE_CHECKING:
    from decimal import Decimal

    from ullage.gateway.answer_filter import StreamFilter
    from ullage.gateway.answer_writer import StreamWriter
    from ullage.gateway.answer_writer.collected import CollectedAnswer
    from ullage.gateway.bill import BookedCall
    from ullage.target import ApiName


class AnswerRounds:
    """The state of one answer over its rounds."""

    def __init__(self, api: ApiName) -> None:
        self.number = 1
        self.is_begun = False
        """True once the client has got the beginning of a stream."""
        self._api = api
        self._filter: StreamFilter | None = None
        self.collected: CollectedAnswer | None = None
        """The parts of a translated answer."""
        self.writer: StreamWriter | None = None
        """The writer of a translated stream."""
        self.cost: Decimal | None = None
        """The known cost of all rounds."""
        self._usage: Any = None

    @property
    def filter(self) -> StreamFilter:
        """The filter that hides recalls in a stream; made when a stream first needs it."""
        if self._filter is None:
            self._filter = FILTERS[self._api].stream()
        return self._filter

    @property
    def is_last(self) -> bool:
        """True if the model is not asked again."""
        return self.number >= MOST_ROUNDS

    def add_usage(self, usage: Any) -> Any:
        """Returns the sum of a usage object and those of the rounds before."""
        self._usage = usage if self._usage is None else sum_usage(self._usage, usage)
        return self._usage

    def book(self, settled: BookedCall | None) -> None:
        """Adds the cost of a round."""
        if settled is not None and settled.cost is not None:
            self.cost = settled.cost if self.cost is None else self.cost + settled.cost

    def next(self) -> None:
        """Begins another round."""
        self.number += 1
        if self._filter is not None:
            self._filter.next_round()
