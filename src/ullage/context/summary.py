"""The summary of what was evicted, written by a model: what it is asked, and what is made of its answer.

The caller's `summarize(prior, turns)` is asked (None, turns) for the first summary, (prior, turns) to
extend one, and (prior, None) to compress one that has become too long.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ullage.errors import UllageError
from ullage.fitting import Budget, FitPolicy, fit
from ullage.fitting.shorten import cut_middle
from ullage.messages import Message, arguments_text, calls_of, text_of
from ullage.models import model_info
from ullage.tokens import count, counter_for

if TYPE_CHECKING:
    from collections.abc import Mapping

Summarize: TypeAlias = Callable[[str | None, Sequence[Message] | None], str | Awaitable[str | None] | None]
"""(prior summary or None, turns or None) → the new summary; sync or async."""
Stop: TypeAlias = Callable[[], object]
"""Breaks off what was started, from any thread, and does not wait for its end."""
Start: TypeAlias = Callable[[Coroutine[Any, Any, None]], Stop]
"""Has a summary written somewhere, at once or later, and returns at once."""

INSTRUCTIONS = 512
"""Tokens that the summarizer's own prompt may need beside the turns."""
SHARES = 6
"""Where the turns do not fit, no text among them has more than this part of the room."""


class SummaryRefused(UllageError):  # noqa: N818 - says what happened to an answer, not to the program
    """The summarizer answered, but with something that is no summary."""


@dataclass(frozen=True, slots=True)
class Summarizer:
    """Who writes summaries, how long they may be, and where they are written."""

    summarize: Summarize
    max_chars: int
    """A longer summary is compressed, and cut where that does not help."""
    model: str | None = None
    """The model whose window the turns are fitted to; None where `summarize` sees to that itself."""
    limit: int = 0
    """The most input tokens that this model takes."""
    start: Start | None = None
    """Where they are written; None for the loop that runs, or a thread where there is none."""

    @classmethod
    def for_model(cls, summarize: Summarize, max_chars: int, model: str, limit: int) -> Summarizer:
        """A summarizer whose limit is its model's, or `limit` where that is not known."""
        known = model_info(model)
        return cls(summarize, max_chars, model, Budget.for_model(model).max_input if known else limit)

    async def write(self, prior: str | None, turns: Sequence[Message]) -> str:
        """The summary of `prior` and `turns`, at most `max_chars` long; raises where there is none."""
        given = turns if self.model is None else fitted_to(self.model, self.limit, prior, turns)
        whole = len(prior or "") + sum(len(text_of(turn.get("content"))) for turn in turns)
        text = await self._asked(prior, given)
        if len(text) > max(whole, len(prior or "")):
            raise SummaryRefused(f"a summary of {len(text)} characters for {whole} that it stands for")
        return text if len(text) <= self.max_chars else await self._compressed(text)

    async def _compressed(self, text: str) -> str:
        try:
            shorter = await self._asked(text, None)
        except Exception:  # noqa: BLE001 - the summary itself is good: cut, it is still worth having
            return bounded(text, self.max_chars)
        return bounded(shorter if len(shorter) < len(text) else text, self.max_chars)

    async def _asked(self, prior: str | None, turns: Sequence[Message] | None) -> str:
        answer = self.summarize(prior, turns)
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str) or not answer.strip():
            raise SummaryRefused(f"the summarizer answered {answer!r}")
        return answer.strip()


def fitted_to(model: str, limit: int, prior: str | None, turns: Sequence[Message]) -> Sequence[Message]:
    """The turns made to fit the window of the model that summarizes them, beside the prior summary."""
    used = counter_for(model).text(prior or "").ceiling + min(INSTRUCTIONS, limit // 4)
    room = max(1, limit - used)
    if count(turns, model).ceiling <= room:
        return turns
    # No turn is more essential than another here: none may fill the window alone.
    short = [_shorter(turn, model, room // SHARES) for turn in turns]
    return fit(short, model, limit=room, policy=FitPolicy(low_water=1.0)).messages


def _shorter(turn: Message, model: str, room: int) -> Message:
    """A turn whose texts have at most `room` tokens each."""
    measure = counter_for(model).text

    def cut(text: str, room: int) -> str:
        cost = measure(text)
        if cost.ceiling <= room:
            return text
        return cut_middle(text, room, cost.ceiling, lambda each: measure(each).ceiling)

    content, calls = text_of(turn.get("content")), calls_of(turn)
    short: dict[str, Any] = {**turn, "content": cut(content, room)}
    if calls:
        short["tool_calls"] = [_with_arguments(call, cut, room // len(calls)) for call in calls]
    return short


def _with_arguments(call: Mapping[str, Any], cut: Callable[[str, int], str], room: int) -> Mapping[str, Any]:
    """A call whose arguments, where they are too long, are an object with what is left of them."""
    text = arguments_text(call)
    short = cut(text, room)
    if short == text:
        return call
    return {**call, "function": {**call["function"], "arguments": json.dumps({"arguments": short})}}


def bounded(text: str, most: int) -> str:
    """At most `most` characters of a text: its head and its tail."""
    if len(text) <= most:
        return text
    mark = " … "
    if most <= 2 * len(mark):
        return text[:most]
    head = (most - len(mark) + 1) // 2
    return text[:head] + mark + text[len(text) - (most - len(mark) - head) :]
