"""Summaries of evicted turns: `Summarizer` asks a model for one, `Summaries` has them written ahead of time.

The caller's `summarize(prior, turns)` is called with (None, turns) for the first summary, with (prior, turns)
to extend a summary, and with (prior, None) to compress a summary that is too long. If it fails, the
conversation goes on: then only the digest stands for evicted turns, and `failure` has the reason.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ullage.errors import UllageError
from ullage.fitting import Budget, FitPolicy, fit
from ullage.fitting.shorten import cut_middle
from ullage.messages import Message, arguments_text, calls_of, text_of
from ullage.models import model_info
from ullage.patience import without_limit
from ullage.target import target_of
from ullage.tokens import count, counter_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ullage.context.state import State
    from ullage.context.window_cache import CachedWindow
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
        given = turns if self.model is None else fit_turns(self.model, self.limit, prior, turns)
        whole = len(prior or "") + sum(len(text_of(turn.get("content"))) for turn in turns)
        text = await self._ask_summarizer(prior, given)
        if len(text) > max(whole, len(prior or "")):
            raise SummaryRefused(f"the summary has {len(text)} characters, but the turns have only {whole}")
        return text if len(text) <= self.max_chars else await self._compress_summary(text)

    async def _compress_summary(self, text: str) -> str:
        try:
            shorter = await self._ask_summarizer(text, None)
        except Exception:  # noqa: BLE001 - the summary itself is good, so it is cut instead
            return cut_to_length(text, self.max_chars)
        return cut_to_length(shorter if len(shorter) < len(text) else text, self.max_chars)

    async def _ask_summarizer(self, prior: str | None, turns: Sequence[Message] | None) -> str:
        answer = self.summarize(prior, turns)
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str) or not answer.strip():
            raise SummaryRefused(f"the summarizer answered {answer!r}")
        return answer.strip()


def fit_turns(model: ModelLike, limit: int, prior: str | None, turns: Sequence[Message]) -> Sequence[Message]:
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


def cut_to_length(text: str, most: int) -> str:
    """Returns at most `most` characters of a text: its head and its tail."""
    if len(text) <= most:
        return text
    mark = " … "
    if most <= 2 * len(mark):
        return text[:most]
    head = (most - len(mark) + 1) // 2
    return text[:head] + mark + text[len(text) - (most - len(mark) - head) :]


ATTEMPTS = 2
"""Most failures in a row; after them these turns are given up, and only newer ones are summarized."""


@dataclass(frozen=True, slots=True)
class Written:
    """A summary, and the indexes of the turns that it adds to those before."""

    text: str
    covered: frozenset[int]


class Summaries:
    """The one summary that is being written, or is ready for the next trim."""

    def __init__(self, summarizer: Summarizer, at: float) -> None:
        self.failure: BaseException | None = None
        """The reason why the last attempt failed; None if it succeeded."""
        self._summarizer = summarizer
        self._at = at
        self._owed: set[int] = set()
        self._future: Future[str] | None = None
        self._stop: Stop = _nothing
        self._prior = ""
        self._places: frozenset[int] = frozenset()
        self._on_this_loop = False
        self._failures = 0

    @property
    def future(self) -> Future[str] | None:
        """The summary that is being written or is ready, or None."""
        return self._future

    def owe(self, line: int) -> None:
        """Notes an evicted line; the next summary includes it if no summary has it yet."""
        self._owed.add(line)

    def drop(self) -> None:
        """Forgets everything and cancels the writing, because the turns were removed."""
        if self._future is not None:
            self._stop()
        self._future = None
        self._owed.clear()

    def look_ahead(self, cached: CachedWindow, state: State) -> None:
        """Starts the next summary if so much of the window is used that a trim is near."""
        if self._future is None and cached.window.utilization >= self._at:
            self.begin(state, [cached.line_of(place) for place in cached.window.forecast()])

    def begin(self, state: State, lines: Iterable[int]) -> None:
        """Starts a summary that includes these lines, unless one is being written."""
        if self._future is not None:
            return
        gone = [state.lines[line] for line in sorted(self._owed.union(lines))]
        turns = {place: turn.message for turn, place in gone if place not in state.covered}
        if not turns:
            return
        self._prior, self._places = state.summary, frozenset(turns)
        write = partial(self._summarizer.write, state.summary or None, list(turns.values()))
        start, self._on_this_loop = self._start()
        self._future = Future()
        with without_limit():
            self._stop = start(_resolve(self._future, write))

    def _start(self) -> tuple[Start, bool]:
        """Returns the function that starts the writing, and True if it uses the running event loop."""
        summarizer = self._summarizer
        if summarizer.start is not None:
            return summarizer.start, False
        loop = _running_loop() if _is_async(summarizer.summarize) else None
        return (_in_thread, False) if loop is None else (partial(_on_loop, loop), True)

    def take(self, state: State) -> Written | None:
        """Returns the summary, or None; waits for a thread, but not for this event loop, which would block.

        Turns that failed too often are given up: the earlier summary is returned as covering them.
        """
        future = self._future
        if future is None or (self._on_this_loop and not future.done()):
            return None
        self._future = None
        self.failure = future.exception()
        if self.failure is None:
            self._failures = 0
            text = future.result()
        else:
            self._failures = (self._failures + 1) % ATTEMPTS
            if self._failures:
                return None
            text = self._prior
        self._owed = {line for line in self._owed if state.lines[line].place not in self._places}
        return Written(text, self._places)

    def put_back(self, written: Written) -> None:
        """Takes back a summary that could not be kept; the next call of `take` returns it."""
        self._future = Future()
        self._future.set_result(written.text)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async `__call__` counts too
    )


def _running_loop() -> Any:
    import asyncio  # noqa: PLC0415 - conversations without a summarizer do not need it

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _nothing() -> None:
    """Does nothing, because no summary was started."""


def _on_loop(loop: Any, writing: Coroutine[Any, Any, None]) -> Stop:
    task = loop.create_task(writing)
    stop: Stop = task.cancel  # it also holds the task, to which the loop keeps no reference
    return stop


def _in_thread(writing: Coroutine[Any, Any, None]) -> Stop:
    import asyncio  # noqa: PLC0415 - the same

    loop = asyncio.new_event_loop()
    task = loop.create_task(writing)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(asyncio.wait([task]))

    def stop() -> None:
        with suppress(RuntimeError):  # the writing has ended and its loop is closed
            loop.call_soon_threadsafe(task.cancel)

    threading.Thread(target=run, name="ullage-summary", daemon=True).start()
    return stop


async def _resolve(future: Future[str], write: Callable[[], Coroutine[Any, Any, str]]) -> None:
    """Puts the result of the writing, or its error, into the future."""
    try:
        text = await write()
    except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
        future.set_exception(error)
    except BaseException as error:
        future.set_exception(SummaryRefused(f"the summarizer was stopped: {error!r}"))
        raise
    else:
        future.set_result(text)
