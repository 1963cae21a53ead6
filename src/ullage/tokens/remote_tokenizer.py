"""Lists the texts of a request to be counted, so that a remote tokenizer can count them in advance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ullage.tokens.counter import counter_for
from ullage.tokens.request_count import message_costs
from ullage.tokens.vocabularies import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ullage.messages import Message, Tool
    from ullage.target import ModelLike
    from ullage.tokens.counter import Counter


@runtime_checkable
class RemoteTokenizer(Tokenizer, Protocol):
    """A tokenizer on a server. It learns counts in advance, so `count` never waits.

    `count` returns the learned count of a text. For any other text it returns a safe estimate.
    """

    async def learn(self, texts: Iterable[str]) -> bool:
        """Gets the counts of the texts that are not known yet; never raises.

        Returns True if `count` returned an estimate for one of these texts before. Sums that include the
        estimate are then out of date.
        """
        ...


class _Recorder:
    """A tokenizer that records each text that it counts."""

    name = "recorder"

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}

    def count(self, text: str) -> int:
        if text:
            self.texts[text] = None
        return 0


def texts_counted(model: ModelLike, price: Callable[[Counter], object]) -> list[str]:
    """Returns the texts that `price` counts with the model's counter, without repetitions and in order."""
    recorder = _Recorder()
    price(counter_for(model, recorder))
    return list(recorder.texts)


def texts_of(model: ModelLike, messages: Iterable[Message], tools: Sequence[Tool] | None = None) -> list[str]:
    """Returns the texts that the model's counter counts for these messages and tools."""

    def price(counter: Counter) -> None:
        counter.request(tools)
        for _ in message_costs(counter, messages):
            pass

    return texts_counted(model, price)
