"""`Renderer`: makes the requests of a conversation, and keeps them within its limits.

The renderer reads the record and changes none of its turns. It writes one kind of event: a summary that
replaces evicted turns.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.context.blocks import system_messages
from ullage.context.forms import Rendition, fit_without_tool_role, short_form
from ullage.context.journal import JournalEvent
from ullage.context.learned import NOTHING_LEARNED, make_learned, new_texts
from ullage.context.request_log import Evictions
from ullage.context.window_cache import WindowCache
from ullage.errors import ContextOverflowError
from ullage.tokens import texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ullage.context.blocks import Blocks
    from ullage.context.bounds import Bounds
    from ullage.context.forms import Compress
    from ullage.context.learned import Learned
    from ullage.context.record import Record
    from ullage.context.summary import Summaries
    from ullage.context.window_cache import CachedWindow
    from ullage.fitting import Change, Fitted
    from ullage.messages import Message
    from ullage.tokens import Count, RemoteTokenizer, Tokenizer
    from ullage.tokens.calibration import Factor

WORTHWHILE = 1.05
"""A tighter ceiling must give this many times the room, or the history is not read again for it."""


class Renderer:
    """The bounds of a conversation, the windows that read it, and the last request."""

    def __init__(
        self, record: Record, bounds: Bounds, summaries: Summaries | None, *, use_tool_role: bool
    ) -> None:
        self.use_tool_role = use_tool_role
        self.windows = WindowCache(bounds, record.journal, record.session)
        self.evictions = Evictions(record, summaries)
        self.unanswered: Fitted[Message] | None = None
        """The last request, until it is answered."""
        self._record = record
        self._summaries = summaries
        self._next_factor = bounds.factor
        self._last: Rendition | None = None
        self._is_away = False
        self._learned: dict[Tokenizer, Learned] = {}

    def hear(self, event: JournalEvent, before: Blocks) -> None:
        """Updates the windows after an event; `before` are the blocks of the prompt before the event."""
        if event.kind == "summary":
            # The summary is in the prompt from now on; earlier trims stay unchanged.
            self.windows.renew(before, self._record.blocks(), self._record.state)
        elif event.kind in {"undo", "reset"}:
            self.windows.clear()
            self.evictions.clear()
            self._last = self.unanswered = None
            self._learned = {}
            if self._summaries:
                self._summaries.drop()

    # Limits -----------------------------------------------------------------------------------------

    @property
    def bounds(self) -> Bounds:
        """The target, the limit and the policy of the conversation.

        If no window in the cache has these bounds, the history is read again.
        """
        return self.windows.bounds

    @bounds.setter
    def bounds(self, bounds: Bounds) -> None:
        self.windows.bounds = bounds

    @contextmanager
    def temporary_limits(self) -> Iterator[None]:
        """Undoes, at the end of the block, all changes of the bounds."""
        before = self.bounds, self._next_factor, self.use_tool_role, self._is_away
        self._is_away = True
        try:
            yield
        finally:
            self.bounds, self._next_factor, self.use_tool_role, self._is_away = before

    def recalibrate(self, factor: Factor, *, at_once: bool = False) -> None:
        """Sets the calibration factor, from the next trim on or at once."""
        self._next_factor = factor
        if at_once and factor != self.bounds.factor:
            self.bounds = replace(self.bounds, factor=factor)

    def _adopt_factor(self) -> bool:
        """Adopts a new factor if it leaves less room, or enough more to read the history again."""
        before, limit = self.bounds.factor, self.bounds.limit
        now, then = before.limit(limit), self._next_factor.limit(limit)
        if then < now or then > now * WORTHWHILE:
            self.bounds = replace(self.bounds, factor=self._next_factor)
        return self.bounds.factor != before

    # Requests ---------------------------------------------------------------------------------------

    def render(self, prompt: str | None, compress: Compress | None, limit: int | None) -> Fitted[Message]:
        """Returns the request to send now; raises ContextOverflowError if its mandatory part does not fit."""
        short = None if self._record.in_goal_mode else compress
        lower = limit if limit is not None and limit < self.bounds.limit else None
        if lower is None and short is None:
            cached, fitted = self._render_trimmed(prompt)
            self.evictions.note(cached, fitted, is_own=prompt is None and not self._is_away)
            self.windows.save(cached, fitted, self._record.state)
            made = Rendition(fitted, cached.line_of)
        else:
            made = self._render_anew(prompt, short, lower)
        if not self.use_tool_role:
            whole = self._messages(prompt, short)
            made = made._replace(fitted=fit_without_tool_role(made.fitted, whole, self.bounds))
        self._last, self.unanswered = made, made.fitted
        return made.fitted

    @property
    def rendered(self) -> Fitted[Message] | None:
        """The last request; None before the first."""
        return None if self._last is None else self._last.fitted

    @property
    def changes(self) -> tuple[Change, ...]:
        """One change for each turn that the last request left out or altered, in order."""
        if self._last is None:
            return ()
        return self._last.changes(self._record.state.lines, self.bounds.counter())

    def count(self, prompt: str | None, compress: Compress | None) -> Count:
        """Returns the count of a request now, before any trim."""
        if compress is not None and not self._record.in_goal_mode:
            return self.bounds.count(self._messages(prompt, compress))
        return self._window(prompt).count()

    def forecast(self) -> list[Message]:
        """Returns the messages that the next trim will probably evict."""
        cached, lines = self._window(), self._record.state.lines
        if self._record.waiting or not lines:
            return []
        return [lines[cached.line_of(place)].turn.message for place in cached.window.forecast()]

    def _window(self, prompt: str | None = None) -> CachedWindow:
        return self.windows.get(self._record.blocks(prompt), self._record.state)

    def _render_trimmed(self, prompt: str | None) -> tuple[CachedWindow, Fitted[Message]]:
        """Returns the request, trimmed; without the summary if there is no room for it."""
        state = self._record.state
        try:
            return self._render_with_changes(prompt)
        except ContextOverflowError:
            if not (state.summary and state.shown):
                raise
        self._record.change(JournalEvent("summary", {"text": state.summary, "covered": [], "shown": False}))
        cached = self._window(prompt)
        return cached, cached.fitted()

    def _render_with_changes(self, prompt: str | None) -> tuple[CachedWindow, Fitted[Message]]:
        """Returns the request. If it is trimmed, the waiting changes of the prompt are made as well."""
        cached = self._window(prompt)
        fitted = cached.fitted()
        if fitted.record.pending and self._take_over():
            cached = self._window(prompt)
            fitted = cached.fitted()
        if fitted.record.pending and self._summarize(cached.list_evicted(fitted)):
            cached = self._window(prompt)
            fitted = cached.fitted()
        return cached, fitted

    def _take_over(self) -> bool:
        """Makes the changes that wait for a trim; returns True if there were any."""
        has_prompt, has_factor = self._record.take_over_prompt(), self._adopt_factor()
        return has_prompt or has_factor

    def _render_anew(self, prompt: str | None, compress: Compress | None, limit: int | None) -> Rendition:
        """Returns a request that no cached window can make: the short form, or one with a lower limit."""
        lines, before = self._record.state.lines, len(system_messages(self._record.blocks(prompt)))
        short = None if compress is None else short_form(lines, compress)
        fitted = self.bounds.fit(self._messages(prompt, compress), limit)
        places = range(len(lines)) if short is None else short.lines
        made = Rendition(fitted, lambda index: places[index - before], short)
        changed = {made.line_of(change.index) for change in fitted.changes}
        self.evictions.note_lines(changed, None if short is None else short.instead)
        return made

    def _messages(self, prompt: str | None, compress: Compress | None) -> list[Message]:
        """Returns all messages before fitting."""
        lines = self._record.state.lines
        turns = [line.turn.message for line in lines]
        if compress is not None:
            turns = list(short_form(lines, compress).messages)
        return [*system_messages(self._record.blocks(prompt)), *turns]

    # Counts of a remote tokenizer -------------------------------------------------------------------

    async def learn(
        self, tokenizer: RemoteTokenizer, prompt: str | None = None, compress: Compress | None = None
    ) -> None:
        """Lets a remote tokenizer count the texts of the conversation that it has not counted yet."""
        if compress is not None and not self._record.in_goal_mode:
            await tokenizer.learn(texts_of(self.bounds.target, self._messages(prompt, compress)))
        lines = self._record.state.lines
        before = self._learned.get(tokenizer, NOTHING_LEARNED)
        found = make_learned(lines, self._record.blocks(prompt), self.bounds)
        if found == before:
            return
        texts = new_texts(before, found, lines, self.bounds.limit)
        if await tokenizer.learn(texts) and self.bounds.tokenizer is tokenizer:
            self.windows.clear()  # the sums of the windows contain estimates
        self._learned[tokenizer] = found

    def recount_request(self, fitted: Fitted[Message]) -> Fitted[Message]:
        """Returns a request with a new count, after the tokenizer has learned texts that rendering made.

        If the request is now over the limit, the next render reads the history again.
        """
        anew = self.bounds.recount_request(fitted)
        if anew.count.ceiling > anew.limit:
            self.windows.clear()
        else:
            self.windows.recount()
        return anew

    # Summaries --------------------------------------------------------------------------------------

    @property
    def _summarizes(self) -> bool:
        return not (self._record.in_goal_mode or self._is_away)

    def look_ahead(self) -> None:
        """Starts the next summary if a trim is near."""
        if self._summaries is not None and self._summarizes and not self._record.waiting:
            self._summaries.look_ahead(self._window(), self._record.state)

    async def await_summary(self) -> None:
        """Waits for the summary that the next request needs, if it needs one."""
        if self._summaries is None or self._record.waiting or not self._summarizes:
            return
        cached = self._window()
        with suppress(ContextOverflowError):  # the request itself raises it, or drops the summary
            going = cached.list_evicted(cached.fitted())
            if going:
                self._summaries.begin(self._record.state, going)
        if self._summaries.future is not None:
            import asyncio  # noqa: PLC0415 - the caller has it loaded

            waited = asyncio.wrap_future(self._summaries.future)
            # The render that uses the summary reports a failure; this only waits for the end.
            waited.add_done_callback(lambda each: each.cancelled() or each.exception())
            await asyncio.wait([waited])

    def _summarize(self, going: Iterable[int]) -> bool:
        """Uses the prepared summary, or has it written now; returns True if there is a new summary."""
        if self._summaries is None or not self._summarizes:
            return False
        self._summaries.begin(self._record.state, going)
        written = self._summaries.take(self._record.state)
        if written is None:
            return False
        try:
            self._record.change(
                JournalEvent("summary", {"text": written.text, "covered": sorted(written.covered)})
            )
        except BaseException:  # the summary has been paid for
            self._summaries.put_back(written)
            raise
        return True
