"""The fold: a conversation read from its start, trimmed at each point where a request was over the limit.

What comes out depends on the history and the options alone, so a program that keeps a `Window` and one
that calls `fit` on the whole history each time send the same messages, and between two trims every
request is a prefix of the next.
"""

from __future__ import annotations

import functools
from collections import ChainMap
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from ullage.errors import ContextOverflowError
from ullage.fitting.budget import limit_for
from ullage.fitting.digest import EMPTY, parse
from ullage.fitting.draft import Draft, Options
from ullage.fitting.policy import FitPolicy
from ullage.fitting.result import Fitted, Record
from ullage.fitting.shorten import is_error
from ullage.fitting.trim import trim, with_block
from ullage.fitting.units import Entry, Unit, first_system
from ullage.messages import SYSTEM_ROLES, check_message, split_content, text_of
from ullage.pairing import Waiting, follow, unanswered
from ullage.tokens import Cost, Count, counter_for, ready
from ullage.tokens.counting import BLOCKS, is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.fitting.draft import Done
    from ullage.messages import Message, Tool
    from ullage.tokens import Counter


class Window:
    """A conversation kept within a limit; a turn costs what is new in it."""

    def __init__(
        self,
        *,
        model: str = "gpt-4o",
        limit: int | None = None,
        reserve: int | None = None,
        tools: Sequence[Tool] | None = None,
        policy: FitPolicy | None = None,
    ) -> None:
        self.model = model
        self.limit = limit_for(model, limit, reserve)
        self.tools = tools
        self.policy = policy or FitPolicy()
        self._history: list[Message] = []
        self._pins = set(self.policy.pins)
        self._priorities = dict(self.policy.priorities)
        self._start()

    def _start(self) -> None:
        """The state of the fold before the first message."""
        ready(self.model)
        counter = counter_for(self.model)
        once = functools.cache(functools.partial(_once, counter, self.tools))
        most = max(once(end).ceiling for end in (False, "", "a"))
        self._once = once
        self._options = Options(counter, self.policy, self.limit, most)
        self._empty_output = counter.message({"role": "tool", "content": ""}).tokens
        self._units: list[Unit] = []
        self._waiting: Waiting = ()
        self._given_tokens = 0
        self._ceiling = 0
        self._prompt = Cost(0, 0)
        self._given_end: SystemEnd = False
        self._end: SystemEnd = False
        self._turns = self._turn_tokens = self._summary_tokens = self._shortened = self._dropped = 0
        self._exchange = self._steps = 0
        self._last = -1
        self._task: int | None = None
        self._digest = EMPTY
        self._handles: dict[str, bytes] = {}
        self._log: list[Done] = []
        self._trimmed: Draft | None = None

    def __len__(self) -> int:
        """How many messages were appended."""
        return len(self._history)

    def append(self, message: Message, *, pin: bool = False, priority: int = 0) -> None:
        """Adds a message; an assistant's answers the request that stood here, so its trim is now final."""
        index = len(self._history)
        check_message(message, index)
        waiting = follow(self._waiting, message, index)
        parallel = message["role"] == "tool" and self._units[-1].parallel
        cost = self._options.counter.message(message, parallel=parallel)
        # Nothing has changed up to here: a message that is refused leaves the window as it was.
        if pin:
            self._pins.add(index)
        if priority:
            self._priorities[index] = priority
        self._add(index, message, cost)
        self._history.append(message)
        self._waiting = waiting

    def fitted(self) -> Fitted:
        """What to send now; raises ContextOverflowError where what must be sent does not fit."""
        if self._waiting:
            raise unanswered(self._waiting)
        if not self._over():
            return self._result(self._draft())
        draft = self._trim()
        if draft.ceiling > self.limit:
            raise ContextOverflowError(draft.ceiling, self.limit, self._count(draft).breakdown)
        return self._result(draft)

    def refold(
        self, *, model: str | None = None, limit: int | None = None, policy: FitPolicy | None = None
    ) -> None:
        """Reads the whole history again, for another model, limit or policy."""
        self.model = model or self.model
        self.limit = limit or self.limit
        self.policy = policy or self.policy
        self._pins |= self.policy.pins
        self._priorities |= self.policy.priorities
        self._start()
        history, self._history = self._history, []
        for message in history:
            self.append(message)

    def pin(self, index: int) -> None:
        """Keeps the message at `index` of the history from now on; the history is read again."""
        self._pins.add(index)
        self.refold()

    # The fold ---------------------------------------------------------------------------------------

    def _add(self, index: int, message: Message, cost: Cost) -> None:
        role = message["role"]
        if role == "assistant" and self._over():
            self._commit(self._trim())
        self._trimmed = None
        units = self._units
        self._given_tokens += cost.tokens
        self._ceiling += cost.ceiling
        if role in SYSTEM_ROLES:
            self._add_system(Entry(index, message, *cost, message))
            return
        self._turns += 1
        self._turn_tokens += cost.tokens
        pinned = index in self._pins
        priority = self._priorities.get(index, 0)
        if role == "tool":
            _, entries, exchange, step, pinned_before, priority_before, loose = units[-1]
            entry = self._output(index, message, cost)
            units[-1] = Unit(
                "step",
                (*entries, entry),
                exchange,
                step,
                pinned_before or pinned,
                max(priority_before, priority),
                max(loose, entry.size),
            )
            return
        self._last = index
        number = 0
        if role == "user":
            self._exchange += 1
            if self._exchange == 1 and self.policy.keep_first_user and self._digest.task is None:
                self._task = index
        elif message.get("tool_calls"):
            role = "step"
            self._steps = number = self._steps + 1
        entry = Entry(index, message, *cost, message)
        units.append(Unit(role, (entry,), self._exchange, number, pinned, priority))

    def _output(self, index: int, message: Message, cost: Cost) -> Entry:
        policy = self.policy
        size = max(0, cost.tokens - self._empty_output)
        error = (
            size >= policy.small_output_threshold
            and policy.preserve_errors
            and is_error(text_of(message["content"]), policy.error_marks)
        )
        return Entry(index, message, *cost, message, size, error)

    def _add_system(self, entry: Entry) -> None:
        """System messages stay; the first may bring the digest of an earlier fit."""
        own = Cost(entry.tokens, entry.ceiling)
        if self._given_end is False:
            content = entry.given["content"]
            self._given_end = self._end = text_of(content)[-1:]
            _, block = split_content(content)
            if block and self._digest is EMPTY:
                self._digest = parse(block)
                own = self._options.counter.message(with_block(entry.given, ""))
                self._summary_tokens = entry.tokens - own.tokens
        self._prompt = Cost(self._prompt.tokens + own.tokens, self._prompt.ceiling + own.ceiling)
        self._units.append(Unit("system", (entry,), self._exchange, 0, pinned=False, priority=0))

    def _over(self) -> bool:
        most = self.policy.max_turns
        once = self._once(self._end).ceiling
        return self._ceiling + once > self.limit or (most is not None and self._turns > most)

    def _trim(self) -> Draft:
        """The trim that happens here; worked out once, however often it is asked for."""
        if self._trimmed is None:
            self._trimmed = trim(self._draft())
        return self._trimmed

    def _draft(self) -> Draft:
        return Draft(
            options=self._options,
            units=tuple(self._units),
            digest=self._digest,
            prompt_ceiling=self._prompt.ceiling,
            ceiling=self._ceiling + self._options.once,
            task=self._task,
            turns=self._turns,
            turn_tokens=self._turn_tokens,
            summary_tokens=self._summary_tokens,
            shortened=self._shortened,
            exchange=self._exchange,
            last=self._last,
            steps=self._steps,
            handles=ChainMap(self._handles),
        )

    def _commit(self, draft: Draft) -> None:
        self._units = list(draft.units)
        self._ceiling = draft.ceiling - self._options.once
        self._end = _system_end(draft.units)
        self._turns = draft.turns
        self._turn_tokens = draft.turn_tokens
        self._summary_tokens = draft.summary_tokens
        self._shortened = draft.shortened
        self._task = draft.task
        self._digest = draft.digest
        for added in draft.handles.maps[:-1]:
            self._handles.update(added)
        self._log += draft.log
        self._dropped += _dropped(draft)

    # The result -------------------------------------------------------------------------------------

    def _result(self, draft: Draft) -> Fitted:
        count = self._count(draft)
        return Fitted(
            messages=[entry.message for unit in draft.units for entry in unit.entries],
            count=count,
            limit=self.limit,
            changed=bool(self._log or draft.log) or _rewritten(draft.units),
            dropped=self._dropped + _dropped(draft),
            truncated=draft.shortened,
            tokens_before=self._given_tokens + self._once(self._given_end).tokens,
            tokens_after=count.tokens,
            record=Record(self._history, self._log, len(self._log), draft.log),
        )

    def _count(self, draft: Draft) -> Count:
        """What the draft costs, by block."""
        counter, end = self._options.counter, _system_end(draft.units)
        once, framing = self._once(end), counter.request(system=end).tokens
        blocks = dict.fromkeys(BLOCKS, 0)
        blocks["system"] = self._prompt.tokens
        blocks["tools"] = once.tokens - framing
        blocks["summary"] = draft.summary_tokens
        blocks["turns"] = draft.turn_tokens + framing
        exact = counter.exact and not self.tools and all(_plain(unit) for unit in draft.units)
        ceiling = draft.ceiling - self._options.once + once.ceiling
        return Count(sum(blocks.values()), ceiling, exact, blocks)


SystemEnd: TypeAlias = str | Literal[False]
"""How the first system message ends, False where there is none: for some models the tools that follow
it cost a token more or less by that."""


def _system_end(units: Sequence[Unit]) -> SystemEnd:
    first = first_system(units)
    return False if first is None else text_of(first.message["content"])[-1:]


def _rewritten(units: Sequence[Unit]) -> bool:
    """Whether the first system message is not as it was given, or was not given at all."""
    first = first_system(units)
    return first is not None and first.form != ""


def _once(counter: Counter, tools: Sequence[Tool] | None, end: SystemEnd) -> Cost:
    return counter.request(tools, system=end)


def _plain(unit: Unit) -> bool:
    return unit.step == 0 and is_plain(unit.entries[0].message)


def _dropped(draft: Draft) -> int:
    return sum(1 for kind, *_ in draft.log if kind == "evict")


def fit(  # noqa: PLR0917 - callers hand on a request's own three, in the order of a request
    messages: Sequence[Message],
    model: str = "gpt-4o",
    tools: Sequence[Tool] | None = None,
    limit: int | None = None,
    reserve: int | None = None,
    policy: FitPolicy | None = None,
) -> Fitted:
    """Messages that fit in `limit` input tokens: the same object where they do already."""
    window = Window(model=model, limit=limit, reserve=reserve, tools=tools, policy=policy)
    for message in messages:
        window.append(message)
    fitted = window.fitted()
    return fitted if fitted.changed else replace(fitted, messages=messages)


enforce_context_limit = fit
