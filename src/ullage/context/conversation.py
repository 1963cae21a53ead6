"""`Context`: a conversation, rendered and held within its budget.

Rendering goes through the core's Window, and the record's turns are never touched by it.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.context.blocks import DEFAULT_PROMPT, system_messages
from ullage.context.bounds import Bounds
from ullage.context.folds import Folds
from ullage.context.forms import fitted_without_tool_role
from ullage.context.outputs import blocks_of, expected, in_front
from ullage.context.record import Record
from ullage.context.requests import Request, short_form
from ullage.context.summaries import Summaries
from ullage.context.summary import Summarizer
from ullage.errors import ContextOverflowError
from ullage.fitting import FitPolicy
from ullage.fitting.log import RequestLog
from ullage.fitting.units import piece_of
from ullage.pairing import unanswered
from ullage.tokens.calibration import NEUTRAL
from ullage.usage import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from ullage.context.folds import Fold
    from ullage.context.forms import Compress
    from ullage.context.journal import Event, Journal
    from ullage.context.summary import Summarize
    from ullage.fitting import Change, Fitted
    from ullage.messages import Message, Tool
    from ullage.tokens import Count, Tokenizer
    from ullage.tokens.calibration import Factor
    from ullage.usage import Crossed

WORTHWHILE = 1.05
"""How much more room a tighter ceiling must give before the history is read again for it."""


class Context(Record):
    """A conversation: turns, memory, summary and budget; what it must not lose is in its journal."""

    def __init__(
        self,
        *,
        model: str = "gpt-4o",
        system_prompt: str = DEFAULT_PROMPT,
        tools: Sequence[Tool] | None = None,
        max_turns: int | None = 40,
        token_budget: int | None = 4_096,
        window: int | None = None,
        reserved_output: int | None = None,
        policy: FitPolicy | None = None,
        tokenizer: Tokenizer | None = None,
        factor: Factor = NEUTRAL,
        use_tool_role: bool = True,
        summarize: Summarize | Summarizer | None = None,
        summarizer_model: str | None = None,
        summarize_at: float = 0.8,
        max_summary_chars: int = 2_000,
        memory_max_chars: int = 2_000,
        journal: Journal | None = None,
        session: str | None = None,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(journal, session, system_prompt, memory_max_chars)
        self.use_tool_role = use_tool_role
        self.meter = Meter() if meter is None else meter
        self.requests = RequestLog()
        bounds = Bounds(
            model=model,
            token_budget=token_budget,
            window=window,
            reserved_output=reserved_output,
            tools=tools,
            policy=replace(policy or FitPolicy(), max_turns=max_turns),
            tokenizer=tokenizer,
            factor=factor,
        )
        self._folds = Folds(bounds)
        self._token_budget = token_budget
        self._next_factor = factor
        self._summaries: Summaries | None = None
        if summarize is not None:
            if not isinstance(summarize, Summarizer):
                writer = summarizer_model or model
                summarize = Summarizer.for_model(summarize, max_summary_chars, writer, bounds.limit)
            self._summaries = Summaries(summarize, summarize_at)
        self._clock = clock
        self._request: Request | None = None
        self._asked: Fitted | None = None
        self._evicted: set[int] = set()
        self._untold: set[int] = set()  # evicted, and not yet told by enforce_budget
        self._known: set[tuple[str, int, str]] = (
            set()
        )  # what was done for a model to a line, told or in _news
        self._news: Counter[str] = Counter()
        self._short: set[int] = set()  # lines that are kept because a short form goes without them
        self._is_away = False
        self._replay()

    @classmethod
    def resume(cls, session: str, journal: Journal, **options: Any) -> Context:
        """The conversation as it was kept; calls that were never answered get the result `[interrupted]`."""
        context = cls(session=session or None, journal=journal, **options)
        context.interrupt()
        return context

    # What happened ----------------------------------------------------------------------------------

    def append(self, message: Message, *, pin: bool = False, priority: int = 0) -> None:
        """Adds a turn: kept when this returns; raises InvalidConversation for what is none."""
        self._append(message, pin=pin, priority=priority)
        if message["role"] == "assistant":
            self._answered()

    def append_user(self, content: Any, *, pin: bool = False, priority: int = 0) -> None:
        """Adds a user turn, with what commands printed since the last one in front of it."""
        printed = blocks_of(
            self._state.outputs,
            self._room() if self._state.outputs else 0,
            self.bounds.counter().text,
            lambda text: self.journal.keep(self.session, [text]),
        )
        content, quoted = in_front(printed, content)
        self._append({"role": "user", "content": content}, pin=pin, priority=priority, quoted=quoted)

    @property
    def printed_tokens(self) -> int:
        """About what the commands since the last user turn will add to the next one."""
        return expected(self._state.outputs, self._room(), self.bounds.counter().text)

    def _room(self) -> int:
        """What the blocks of the prompt leave for turns."""
        blocks = self.count().breakdown
        return self.limit - sum(tokens for name, tokens in blocks.items() if name != "turns")

    def compact(self, share: float = 0.25) -> int:
        """Trims now, down to this share of the room; tells how many tokens that saved."""
        before = self.estimate_tokens()
        if self.waiting:
            raise unanswered(self._state.waiting)
        self._happened("compact", {"share": share})
        return before - self.estimate_tokens()

    def _apply(self, event: Event) -> None:
        before = self._blocks()
        super()._apply(event)
        if event.kind == "summary":
            # It stands in the prompt from here on: what was decided before it stays decided.
            self._folds.renew(before, self._blocks(), self._state.lines, self._state.compactions)
        elif event.kind in {"undo", "reset"}:
            self._folds.clear()
            self._request = self._asked = None
            self._evicted, self._untold, self._known, self._short = set(), set(), set(), set()
            if self._summaries:
                self._summaries.drop()

    def _answered(self) -> None:
        """A request was answered: notes it, and has the next summary written before it is needed."""
        if self._asked is not None:
            self.requests.note(self._asked, self._clock())
            self._asked = None
        if self._summaries is not None and self._summarizes and not self.waiting:
            self._summaries.look_ahead(self._fold(), self._state)

    # Bounds -----------------------------------------------------------------------------------------

    @property
    def bounds(self) -> Bounds:
        """The model, the limit and the policy that the conversation is held to."""
        return self._folds.bounds

    @property
    def limit(self) -> int:
        """The most input tokens: `token_budget`, or what the window leaves where that is less."""
        return self.bounds.limit

    def use_model(
        self,
        model: str,
        *,
        window: int | None = None,
        reserved_output: int | None = None,
        tokenizer: Tokenizer | None = None,
        factor: Factor = NEUTRAL,
    ) -> None:
        """Goes on with another model: the history is counted once more, and refitted."""
        self._folds.bounds = replace(
            self.bounds,
            model=model,
            token_budget=self._token_budget,
            window=window,
            reserved_output=reserved_output,
            tokenizer=tokenizer,
            factor=factor,
        )
        self._next_factor = factor

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """What the conversation is held to within this, another model or other tools, ends with it.

        What leaves another model's window is no reason for a summary: its own still has it.
        """
        before = self.bounds, self._next_factor, self.use_tool_role, self._is_away
        self._is_away = True
        try:
            yield
        finally:
            self._folds.bounds, self._next_factor, self.use_tool_role, self._is_away = before

    def hold_to(self, limit: int) -> None:
        """Keeps to a lower limit from now on, as after a provider's refusal; a higher one changes nothing."""
        if limit < self.limit:
            self._folds.bounds = replace(self.bounds, token_budget=max(1, limit))

    def use_tools(self, tools: Sequence[Tool] | None) -> None:
        """Sends these tools from now on; their schemas count."""
        self._folds.bounds = replace(self.bounds, tools=tools)

    def roll(self, on: bool) -> None:
        """Trims what does not fit, or, off, lets a request that is over be an error."""
        self._folds.bounds = replace(self.bounds, rolling=on)

    def recalibrate(self, factor: Factor, *, at_once: bool = False) -> None:
        """Counts by another factor: from the next trim on, or at once after a provider's overflow error."""
        self._next_factor = factor
        if at_once and factor != self.bounds.factor:
            self._folds.bounds = replace(self.bounds, factor=factor)

    def _adopt_factor(self) -> None:
        """Takes a new factor over that leaves less room, or so much more that reading all again pays."""
        now, then = (factor.limit(self.limit) for factor in (self.bounds.factor, self._next_factor))
        if then < now or then > now * WORTHWHILE:
            self._folds.bounds = replace(self.bounds, factor=self._next_factor)

    @property
    def summary_failure(self) -> BaseException | None:
        """Why the last attempt at a summary gave nothing; None where it did not fail."""
        return self._summaries.failure if self._summaries else None

    # Rendering --------------------------------------------------------------------------------------

    def to_messages(
        self, *, system_prompt_override: str | None = None, compress: Compress | None = None
    ) -> list[Message]:
        """The messages to send now; raises ContextOverflowError where what must be sent does not fit."""
        return list(self.fitted(system_prompt_override=system_prompt_override, compress=compress).messages)

    def fitted(
        self,
        *,
        system_prompt_override: str | None = None,
        compress: Compress | None = None,
        limit: int | None = None,
    ) -> Fitted:
        """The messages to send now, with their count and what was done to make them fit.

        A lower `limit` is for this one request; the history is read again for it.
        """
        short = None if self.in_goal_mode else compress
        lower = limit if limit is not None and limit < self.limit else None
        if lower is None and short is None:
            fold, fitted = self._trimmed(system_prompt_override)
            self._keep(fold.taken(fitted), own=system_prompt_override is None and not self._is_away)
            request = Request(fitted, fold.line_of)
        else:
            request = self._made_anew(system_prompt_override, short, lower)
        if not self.use_tool_role:
            whole = self._whole(system_prompt_override, short)
            request = request._replace(fitted=fitted_without_tool_role(request.fitted, whole, self.bounds))
        self._request, self._asked = request, request.fitted
        return request.fitted

    @property
    def rendered(self) -> Fitted | None:
        """The last render; None before the first."""
        return None if self._request is None else self._request.fitted

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the last render did to each turn that it did not send as it is, by the turn's place."""
        if self._request is None:
            return ()
        return self._request.changes(self._state.lines, self.bounds.counter())

    def news(self) -> Mapping[str, int]:
        """How often renders did what to a turn that the same model had as it was, since this was last asked.

        What a short form leaves out by itself is in `changes`, and no news.
        """
        news, self._news = self._news, Counter()
        return news

    def count(self, *, system_prompt_override: str | None = None, compress: Compress | None = None) -> Count:
        """What stands in the window now, before the trim that it may need."""
        if compress is not None and not self.in_goal_mode:
            return self.bounds.count(self._whole(system_prompt_override, compress))
        return self._fold(system_prompt_override).count()

    def forecast(self) -> list[Message]:
        """The messages that the next trim will likely evict, if the conversation goes on."""
        fold, lines = self._fold(), self._state.lines
        if self.waiting or not lines:
            return []
        return [lines[fold.line_of(place)].turn.message for place in fold.window.forecast()]

    def estimate_tokens(self) -> int:
        """The best estimate of the same."""
        return self.count().tokens

    def enforce_budget(self) -> list[Message]:
        """The turns that requests go without since this was last asked; raises where none can fit."""
        self.fitted()
        lines, turns = self._state.lines, self._state.turns
        ends = [*(line.place for line in lines[1:]), len(turns)]
        news, self._untold = sorted(self._untold), set()
        return [turn.message for line in news for turn in turns[lines[line].place : ends[line]]]

    def _fold(self, prompt: str | None = None) -> Fold:
        return self._folds.get(self._blocks(prompt), self._state.lines, self._state.compactions)

    def _trimmed(self, prompt: str | None) -> tuple[Fold, Fitted]:
        """The request here; one that has no room for the summary goes without it."""
        try:
            return self._renewed(prompt)
        except ContextOverflowError:
            if not (self._state.summary and self._state.shown):
                raise
        self._happened("summary", {"text": self._state.summary, "covered": [], "shown": False})
        fold = self._fold(prompt)
        return fold, fold.fitted()

    def _renewed(self, prompt: str | None) -> tuple[Fold, Fitted]:
        """The request here. A trim changes the prompt, so all that waits to change it does so then."""
        fold = self._fold(prompt)
        fitted = fold.fitted()
        if fitted.record.pending and self._take_over():
            fold = self._fold(prompt)
            fitted = fold.fitted()
        if fitted.record.pending and self._summarized(fold.going(fitted)):
            fold = self._fold(prompt)
            fitted = fold.fitted()
        return fold, fitted

    async def ready(self) -> None:
        """Waits until the summary that the next request needs is written; then rendering does not wait."""
        if self._summaries is None or self.waiting or not self._summarizes:
            return
        fold = self._fold()
        with suppress(ContextOverflowError):  # the request itself will tell, or do without the summary
            going = fold.going(fold.fitted())
            if going:
                self._summaries.begin(self._state, going)
        if self._summaries.future is not None:
            import asyncio  # noqa: PLC0415 - whoever awaits this has it loaded

            waited = asyncio.wrap_future(self._summaries.future)
            # Whoever takes the summary hears why there is none; here it is only waited for.
            waited.add_done_callback(lambda each: each.cancelled() or each.exception())
            await asyncio.wait([waited])

    @property
    def _summarizes(self) -> bool:
        return not (self.in_goal_mode or self._is_away)

    def _summarized(self, going: Iterable[int]) -> bool:
        """Takes over the summary that was prepared, or has it written now; whether there is a new one."""
        if self._summaries is None or not self._summarizes:
            return False
        self._summaries.begin(self._state, going)
        written = self._summaries.take(self._state)
        if written is not None:
            self._happened("summary", {"text": written.text, "covered": sorted(written.covered)})
        return written is not None

    def _take_over(self) -> bool:
        """Takes over what waits for a trim; whether there was anything."""
        before = (self._memory, self._project, self.bounds.factor)
        self._refresh_memory()
        self._project = self._next_project
        self._adopt_factor()
        return before != (self._memory, self._project, self.bounds.factor)

    def _keep(self, taken: Iterable[tuple[str, int]], *, own: bool) -> None:
        """Keeps the texts of lines that are no longer sent whole; `own` is the conversation's own request."""
        lines, texts, model = self._state.lines, [], self.bounds.model
        for kind, line in taken:
            texts.append(piece_of(lines[line].turn.message))
            if (model, line, kind) not in self._known:
                self._known.add((model, line, kind))
                self._news[kind] += 1
            if kind == "evict" and own and line not in self._evicted:
                self._evicted.add(line)
                self._untold.add(line)
                if self._summaries:
                    self._summaries.owe(line)
        if texts:
            self.journal.keep(self.session, texts)

    def _made_anew(self, prompt: str | None, compress: Compress | None, limit: int | None) -> Request:
        """A request that no fold follows: the short form, or one by a lower limit."""
        lines, before = self._state.lines, len(system_messages(self._blocks(prompt)))
        short = None if compress is None else short_form(lines, compress)
        fitted = self.bounds.fit(self._whole(prompt, compress), limit)
        places = range(len(lines)) if short is None else short.lines
        request = Request(fitted, lambda index: places[index - before], short)
        taken = {request.line_of(change.index) for change in fitted.changes}
        taken |= (short.instead.keys() if short else set()) - self._short
        if short is not None:
            self._short |= taken
        self.journal.keep(self.session, [piece_of(lines[line].turn.message) for line in sorted(taken)])
        return request

    def _whole(self, prompt: str | None, compress: Compress | None) -> list[Message]:
        lines = self._state.lines
        short = None if compress is None else short_form(lines, compress)
        turns = [line.turn.message for line in lines] if short is None else short.messages
        return [*system_messages(self._blocks(prompt)), *turns]

    # Usage ------------------------------------------------------------------------------------------

    def add_usage(self, *arguments: Any, **options: Any) -> tuple[Crossed, ...]:
        """Adds what a request used to the meter; gives the warnings that this is the first to cross."""
        return self.meter.add_usage(*arguments, **options)

    def total_cost(self) -> Decimal | None:
        """The known costs in dollars; None where none is known."""
        return self.meter.total_cost()

    def total_tokens(self) -> tuple[int, int]:
        """All prompt tokens, and all completion tokens."""
        return self.meter.total_tokens()

    def reset_usage(self) -> None:
        """Clears the meter and arms its warnings again."""
        self.meter.reset()
