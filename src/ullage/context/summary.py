"""Asks a model for the summary of evicted turns, and checks its answer.

The caller's `summarize(prior, turns)` is called with (None, turns) for the first summary, with (prior, turns)
to extend a summary, and with (prior, None) to compress a summary that is too long.
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
from ullage.target import target_of
from ullage.tokens import count, counter_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.target import ModelLike

Summarize: TypeAlias = Callable[[str | None, Sequence[Message] | None], str | Awaitable[str | None] | None]
"""(prior summary or None, turns or None) → the new summary; sync or async."""
Stop: TypeAlias = Callable[[], object]
"""Cancels the writing, from any thread, and does not wait for its end."""
Start: TypeAlias = Callable[[Coroutine[Any, Any, None]], Stop]
"""Starts the writing of a summary, and returns at once."""

INSTRUCTIONS = 512
"""Tokens for the summarizer's own prompt, beside the turns."""
SHARES = 6
"""If the turns do not fit, each text gets at most the room divided by this number."""


class SummaryRefused(UllageError):  # noqa: N818 - it describes an answer, not a failure of the program
    """The summarizer answered, but not with a usable summary."""


@dataclass(frozen=True, slots=True)
class Summarizer:
    """The function that writes summaries, with the limits of its model."""

    summarize: Summarize
    max_chars: int
    """Most characters of a summary; a longer one is compressed, and cut if it is still too long."""
    model: ModelLike = None
    """The model whose window the turns are fitted to; None if `summarize` fits them itself."""
    limit: int = 0
    """The limit of this model in input tokens."""
    start: Start | None = None
    """Starts the writing; None for the running event loop, or else a thread."""

    @classmethod
    def for_model(cls, summarize: Summarize, max_chars: int, model: ModelLike, limit: int) -> Summarizer:
        """Returns a summarizer with its model's limit, or `limit` if that is unknown."""
        known = model_info(target_of(model).model)
        return cls(summarize, max_chars, model, Budget.for_model(model).max_input if known else limit)

    async def write(self, prior: str | None, turns: Sequence[Message]) -> str:
        """Returns the summary of `prior` and `turns`, at most `max_chars` long; raises if it cannot."""
        given = turns if self.model is None else fitted_to(self.model, self.limit, prior, turns)
        whole = len(prior or "") + sum(len(text_of(turn.get("content"))) for turn in turns)
        text = await self._asked(prior, given)
        if len(text) > max(whole, len(prior or "")):
            raise SummaryRefused(f"the summary has {len(text)} characters, but the turns have only {whole}")
        return text if len(text) <= self.max_chars else await self._compressed(text)

    async def _compressed(self, text: str) -> str:
        try:
            shorter = await self._asked(text, None)
        except Exception:  # noqa: BLE001 - the summary itself is good, so it is cut instead
            return bounded(text, self.max_chars)
        return bounded(shorter if len(shorter) < len(text) else text, self.max_chars)

    async def _asked(self, prior: str | None, turns: Sequence[Message] | None) -> str:
        answer = self.summarize(prior, turns)
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str) or not answer.strip():
            raise SummaryRefused(f"the summarizer answered {answer!r}")
        return answer.strip()


def fitted_to(model: ModelLike, limit: int, prior: str | None, turns: Sequence[Message]) -> Sequence[Message]:
    """Returns the turns made to fit the summarizing model's window, beside the prior summary."""
    counter = counter_for(model)
    used = counter.text(prior or "").ceiling + min(INSTRUCTIONS, limit // 4)
    room = max(1, limit - used)
    if count(turns, model).ceiling <= room:
        return turns
    # All turns are equally important here, so none may fill the window alone.
    share = max(0, room - counter.request().ceiling) // SHARES
    short = [_shorter(turn, model, share) for turn in turns]
    return fit(short, model, limit=room, policy=FitPolicy(low_water=1.0, recall_share=0)).messages


def _shorter(turn: Message, model: ModelLike, room: int) -> Message:
    """Returns a turn whose texts have at most `room` tokens each."""
    measure = counter_for(model).text

    def cut(text: str, room: int) -> str:
        cost = measure(text)
        if cost.ceiling <= room:
            return text
        return cut_middle(text, room, cost.ceiling, lambda each: measure(each).ceiling)

    content, calls = text_of(turn.get("content")), calls_of(turn)
    short: dict[str, Any] = {**turn, "content": cut(content, room)}
    if calls:
        short.pop("function_call", None)  # `tool_calls` has it too
        short["tool_calls"] = [_with_arguments(call, cut, room // len(calls)) for call in calls]
    return short


def _with_arguments(call: Mapping[str, Any], cut: Callable[[str, int], str], room: int) -> Mapping[str, Any]:
    """Returns a call with shortened arguments, as a JSON object that holds the rest of them."""
    text = arguments_text(call)
    short = cut(text, room)
    if short == text:
        return call
    return {**call, "function": {**call["function"], "arguments": json.dumps({"arguments": short})}}


def bounded(text: str, most: int) -> str:
    """Returns at most `most` characters of a text: its head and its tail."""
    if len(text) <= most:
        return text
    mark = " … "
    if most <= 2 * len(mark):
        return text[:most]
    head = (most - len(mark) + 1) // 2
    return text[:head] + mark + text[len(text) - (most - len(mark) - head) :]
