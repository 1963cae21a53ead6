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

from ullage.errors import ContextOverflowError, InvalidConversation
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
from ullage.tokens import Cost, Count, counter_for, counter_with, ready
from ullage.tokens.calibration import NEUTRAL
from ullage.tokens.counting import BLOCKS, is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.fitting.draft import Done
    from ullage.messages import Message, Tool
    from ullage.tokens import Counter, Tokenizer
    from ullage.tokens.calibration import Factor


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
        tokenizer: Tokenizer | None = None,
        factor: Factor = NEUTRAL,
    ) -> None:
        self.model = model
        self.limit = limit_for(model, limit, reserve)
        self.tools = tools
        self.policy = policy or FitPolicy()
        self.tokenizer = tokenizer
        self.factor = factor
        self._history: list[Message] = []
        self._pins = set(self.policy.pins)
        self._priorities = dict(self.policy.priorities)
        self._start()

    def _start(self) -> None:
        """The state of the fold before the first message."""
        if self.tokenizer is None:
            ready(self.model)
            counter = counter_for(self.model)
        else:
            counter = counter_with(self.model, self.tokenizer)
        once = functools.cache(functools.partial(_once, counter, self.tools))
        most = max(once(end).ceiling for end in (False, "", "a"))
        self._once = once
        # The fold counts in our own tokens; what the model's own are is known to the factor alone.
        self._options = Options(counter, self.policy, self.factor.limit(self.limit), most)
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

    @property
    def waiting(self) -> Waiting:
        """The calls that have no result yet."""
        return self._waiting

    def check(self, message: Message) -> tuple[Waiting, Cost]:
        """Raises InvalidConversation where `append` would, and changes nothing.

        Tells the calls that wait for a result after the message, and what it costs.
        """
        index = len(self._history)
        check_message(message, index)
        waiting = follow(self._waiting, message, index)
        parallel = message["role"] == "tool" and self._units[-1].parallel
        return waiting, self._options.counter.message(message, parallel=parallel)

    def append(self, message: Message, *, pin: bool = False, priority: int = 0) -> None:
        """Adds a message; an assistant's answers the request that stood here, so its trim is now final."""
        index = len(self._history)
        waiting, cost = self.check(message)
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
        if draft.ceiling > self._options.limit:
            count = self.factor.count(self._count(draft))
            raise ContextOverflowError(count.ceiling, self.limit, count.breakdown)
        return self._result(draft)

    def count(self) -> Count:
        """What stands here, before the trim that it may need; calls may still wait for their results."""
        return self.factor.count(self._count(self._draft()))

    @property
    def utilization(self) -> float:
        """How far the limit is used, or `max_turns` where that is nearer."""
        tokens = (self._ceiling + self._once(self._end).ceiling) / max(1, self._options.limit)
        most = self.policy.max_turns
        return tokens if most is None else max(tokens, self._turns / most)

    def forecast(self) -> tuple[int, ...]:
        """The places of the messages that the next trim will likely evict, if the conversation goes on."""
        draft, most = self._draft(), self.policy.max_turns
        if most is not None and self._turns / most * draft.options.limit > draft.ceiling:
            draft = draft._replace(turns=max(draft.turns, most + 1))
        else:  # as if what is still to come stood there already
            draft = draft._replace(ceiling=max(draft.ceiling, draft.options.limit + 1))
        return tuple([place for kind, place, *_ in trim(draft).log if kind == "evict"])

    def retract(self) -> None:
        """Takes back the last message, a user's: no request has been answered since."""
        if not self._history or self._history[-1]["role"] != "user":
            raise InvalidConversation("only a user's message can be taken back, as the last one")
        index = len(self._history) - 1
        del self._history[index]
        entry = self._units.pop().entries[0]
        self._given_tokens -= entry.tokens
        self._ceiling -= entry.ceiling
        self._turns -= 1
        self._turn_tokens -= entry.tokens
        self._exchange -= 1
        self._pins.discard(index)
        self._priorities.pop(index, None)
        self._task = None if self._task == index else self._task
        spoken = (place for place in range(index - 1, -1, -1) if _starts_unit(self._history[place]))
        self._last = next(spoken, -1)
        self._trimmed = None

    def renew(self, message: Message) -> None:
        """Puts `message` in the place of the first one, a system message: from here on, and not before."""
        check_message(message, 0)
        position = next((n for n, unit in enumerate(self._units) if unit.start == 0), None)
        if position is None or not {self._history[0]["role"], message["role"]} <= SYSTEM_ROLES:
            raise InvalidConversation("only a system message can be renewed, by another", index=0)
        counter, entry = self._options.counter, self._units[position].entries[0]
        _, block = split_content(entry.message["content"])
        shown = with_block(message, block)
        before, own, cost = (
            counter.message(with_block(entry.given, "")),
            counter.message(message),
            counter.message(shown),
        )
        self._history[0] = message
        entry = entry._replace(message=shown, tokens=cost.tokens, ceiling=cost.ceiling, given=message)
        self._given_tokens += own.tokens - before.tokens
        self._ceiling += cost.ceiling - self._units[position].ceiling
        self._units[position] = self._units[position]._replace(entries=(entry,))
        self._prompt = Cost(
            self._prompt.tokens + own.tokens - before.tokens,
            self._prompt.ceiling + own.ceiling - before.ceiling,
        )
        self._summary_tokens = cost.tokens - own.tokens
        self._given_end = text_of(message["content"])[-1:]
        self._end = text_of(shown["content"])[-1:]
        self._trimmed = None

    def compact(self, share: float) -> None:
        """Trims here and now, down to this share of the room, whether it is needed or not."""
        if self._waiting:
            raise unanswered(self._waiting)
        draft = self._draft()
        options = replace(draft.options, policy=replace(self.policy, low_water=share))
        self._commit(trim(draft._replace(options=options))._replace(options=self._options))
        self._trimmed = None

    def refold(
        self,
        *,
        model: str | None = None,
        limit: int | None = None,
        policy: FitPolicy | None = None,
        factor: Factor | None = None,
    ) -> None:
        """Reads the whole history again, for another model, limit, policy or factor."""
        self.model = model or self.model
        self.limit = limit or self.limit
        self.policy = policy or self.policy
        self.factor = factor or self.factor
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
        return self._ceiling + once > self._options.limit or (most is not None and self._turns > most)

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
        raw = self._count(draft)
        before = self._given_tokens + self._once(self._given_end).tokens
        count = self.factor.count(raw)
        return Fitted(
            messages=[entry.message for unit in draft.units for entry in unit.entries],
            count=count,
            limit=self.limit,
            changed=bool(self._log or draft.log) or _rewritten(draft.units),
            dropped=self._dropped + _dropped(draft),
            truncated=draft.shortened,
            tokens_before=self.factor.tokens(before),
            tokens_after=count.tokens,
            estimate=Cost(raw.tokens, raw.ceiling),
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


def _starts_unit(message: Message) -> bool:
    return message["role"] in {"user", "assistant"}


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
