"""Goal mode: the model works towards a goal in steps, within configured bounds.

    plan → answer → its commands run or are skipped → their output is the next turn → … → end

The goal is in the journal and in the system prompt, so neither eviction nor a crash loses it. The work ends
if the model says so, if a bound is reached, or if the user stops it.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ullage.categories import GOAL
from ullage.cost.prices import cost_of, prices_of
from ullage.errors import ConfigurationError, UllageError
from ullage.patience import patiently
from ullage.session.continuations import GO_ON, PAUSED, REMINDER, RESUMED
from ullage.shell.answer import AnswerProgress
from ullage.shell.confirmation import ASKED, FOR_GOOD, GRANT, PAUSE, RUN, SKIP, SKIPPED
from ullage.shell.directives import MARK, commands_in, ending_in
from ullage.shell.interrupts import on_press, stoppable
from ullage.shell.remedies import error_text
from ullage.shell.screen import NO, YES
from ullage.shell.status import dollars
from ullage.text import show_hidden
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.session.chat import ChatSession
    from ullage.shell.screen import Screen
    from ullage.shell.workplace import Workplace

_MARKS = re.compile(r"\*\*|__|`")
PATIENCE = 3
"""Number of answers in a row without a command or a tool call after which the goal counts as blocked."""

OPENING = f"""{{goal}}

Begin: a short plan, then the first step. Each command is a line that begins with "{MARK}"."""
"""The first user turn of a goal. It has the user's words, which stay when the goal is over."""
NOT_RUN = "[command not run, as the user paused before it] {}"

READ_ONLY = "read-only"
"""The class of commands that the user can allow for the whole goal at its start."""
ENDS = frozenset({"complete", "blocked", "stopped"})
"""Outcomes after which the goal is over; a goal that reached a bound can be continued."""
CHOICES = RUN + SKIP + FOR_GOOD + GRANT + PAUSE
"""Keys of the choices that the user has for a command that needs a confirmation."""


@dataclass(frozen=True, slots=True)
class GoalOutcome:
    """The result of the work on a goal."""

    reason: str
    """`complete`, `blocked`, `stopped`, or the bound that was reached, such as `max_steps`."""
    steps: int
    text: str
    """The model's summary or reason, or a sentence about the bound."""


class Bound(NamedTuple):
    """A bound of a goal, and its current use."""

    name: str
    most: Decimal | int | None
    """None if the bound is not set."""
    used: Decimal | float | None
    """None if the use is unknown."""
    ahead: Decimal | int
    """The least that the next step uses."""
    shown: Callable[[object], str]
    """Formats a value of this bound."""

    @property
    def is_reached(self) -> bool:
        """True if the bound does not allow another step."""
        if self.most is None or self.used is None:
            return False
        return self.used >= self.most or Decimal(self.used) + self.ahead > self.most


def pending(chat: ChatSession) -> str:
    """Returns a notice about the conversation's unfinished goal; empty if it has no goal."""
    goal = chat.context.goal
    return f"unfinished goal: {goal} (:goal continue resumes it, :goal stop ends it)" if goal else ""


def tell_pending(chat: ChatSession, screen: Screen) -> None:
    """Prints a notice if the conversation has an unfinished goal."""
    notice = pending(chat)
    if notice:
        screen.dim(notice)


async def stop(chat: ChatSession) -> bool:
    """Ends the goal of a conversation; returns False if it has none."""
    found = bool(chat.context.goal)
    if found:
        await _set_goal(chat, "")
    return found


async def _set_goal(chat: ChatSession, text: str) -> None:
    await patiently(partial(setattr, chat.context, "goal", text))


async def act(workplace: Workplace, rest: str) -> None:
    """Runs `:goal`: shows, stops, continues or begins a goal."""
    if rest == "stop":
        workplace.screen.dim("goal stopped" if await stop(workplace.chat) else "there is no goal to stop")
    elif rest in {"", "continue"}:
        if rest and workplace.chat.context.goal:
            await pursue(workplace, "")
        else:
            workplace.screen.dim(pending(workplace.chat) or "there is no goal; :goal TEXT sets one")
    else:
        await pursue(workplace, rest)


async def pursue(
    workplace: Workplace, text: str, *, clock: Callable[[], float] = time.monotonic
) -> GoalOutcome:
    """Works towards a goal until it ends. An empty `text` continues the interrupted goal.

    A provider error pauses the goal; without a terminal it ends the goal and is raised. If the program ends
    for another reason, the goal stays unfinished and can be continued.
    """
    context = workplace.chat.context
    if not text and not context.goal:
        raise ConfigurationError("there is no goal to continue; :goal TEXT sets one")
    async with workplace.chat.routed(GOAL):
        if text:
            await _set_goal(workplace.chat, text)
        context.pursuing = True
        try:
            pursuit = _Pursuit(workplace, OPENING.format(goal=text) if text else RESUMED, clock)
            workplace.report.goal = pursuit.summary
            with on_press(pursuit.press):
                outcome = await pursuit.run()
        finally:
            context.pursuing = False
            workplace.report.goal = None
    steps = f"{outcome.steps} step{'' if outcome.steps == 1 else 's'}"
    # The answer above has the whole text, with its looks
    first = outcome.text.strip().partition("\n")[0]
    said = f": {_MARKS.sub('', first)}" if first else ""
    if outcome.reason in ENDS:
        await _set_goal(workplace.chat, "")
        workplace.screen.dim(f"goal {outcome.reason} after {steps}{said}")
    else:
        workplace.screen.dim(f"goal paused after {steps}{said}; :goal continue resumes it")
    return outcome


class _Pursuit:
    """The work on one goal: the steps, tokens and dollars used so far, and the next message to the model."""

    def __init__(self, workplace: Workplace, opening: str, clock: Callable[[], float]) -> None:
        self.workplace = workplace
        self.chat, self.screen = workplace.chat, workplace.screen
        self.bounds = workplace.chat.settings.goal
        self.steps = 0
        self._next = opening
        self._clock = clock
        self._began = clock()
        self._paid = self.chat.context.total_cost()
        self._used = sum(self.chat.context.total_tokens())
        self._estimated = False
        self._idle = 0
        self._granted: set[str] = set()
        self._pressed = False

    def press(self) -> None:
        """Handles Ctrl-C: the goal pauses as soon as possible."""
        self._pressed = True

    async def run(self) -> GoalOutcome:
        """Runs steps until the goal ends or reaches a bound; returns the outcome."""
        if self._ahead()[1] is None and not self.chat.client.local and self.bounds.max_dollars is not None:
            self.screen.dim("the model's prices are unknown, so goal.max_dollars does not limit this goal")
        try:
            self._offer_reading()
        except KeyboardInterrupt:  # a key at the question: the user does not want the goal
            return self._make_outcome("stopped")
        while True:
            outcome = self._out_of_bounds() or await self._step()
            if outcome is not None:
                return outcome

    async def _step(self) -> GoalOutcome | None:
        """Runs one answer and its commands; returns the outcome if this step was the last."""
        await patiently(partial(self.chat.context.append_user, self._next))
        self._next = GO_ON
        self.steps += 1
        try:
            answer = await self._answer()
        except UllageError as error:
            if not self.screen.is_interactive:
                await _set_goal(self.chat, "")
                raise
            self.screen.error(error_text(error))
            return self._pause(RESUMED)
        self.screen.dim(self.progress())
        commands, ending = commands_in(answer.text), ending_in(answer.text)
        if self._pressed:
            return self._pause(PAUSED)
        if ending is not None:
            for command in commands:
                self.screen.dim(f"not run, because the goal has ended: {show_hidden(command)}")
            return self._make_outcome("complete" if ending.complete else "blocked", ending.text)
        if commands:
            self._idle = 0
            return await self._run(commands)
        self._idle = 0 if answer.calls else self._idle + 1
        if self._idle >= PATIENCE:
            return self._make_outcome("blocked", f"{PATIENCE} answers in a row had no command and no end")
        self._next = REMINDER if self._idle else GO_ON
        return None

    def _make_outcome(self, reason: str, text: str = "") -> GoalOutcome:
        return GoalOutcome(reason, self.steps, text)

    # Answers ----------------------------------------------------------------------------------------

    async def _answer(self) -> AnswerProgress:
        """Asks the model and returns its answer, or the part that had arrived when it was stopped."""
        answer = AnswerProgress()
        listening = self.workplace.stream(
            answer, category=GOAL, enough=lambda: self._find_reached_bound() is not None
        )
        try:
            async with asyncio.timeout(self._seconds_left()) as limit:
                await stoppable(listening, tell=self.screen.dim, pressed=self.press)
        except asyncio.CancelledError:
            if not self._pressed:
                raise
            answer.is_reported = False  # the provider reports no usage for an incomplete answer
        except TimeoutError:
            if not limit.expired():
                raise
            answer.is_reported = False
            self._began -= self._seconds_left() or 0  # the two clocks may differ slightly
        finally:
            self._estimated = self._estimated or not answer.is_reported
            self.chat.interrupt()
        return answer

    # Commands ---------------------------------------------------------------------------------------

    async def _run(self, commands: tuple[str, ...]) -> GoalOutcome | None:
        """Runs the commands of an answer in order. After a pause, notes for the model which did not run."""
        for index, command in enumerate(commands):
            if self._late:
                return None
            paused = await self._offer_command(command)
            if paused and not self._late:
                for left in commands[index + 1 :]:
                    await self._note(NOT_RUN.format(left))
                return self._pause(GO_ON)
        return None

    async def _offer_command(self, command: str) -> bool:
        """Runs a command, if needed after a confirmation; returns True if the user wants a pause."""
        chosen = self.workplace.offer(
            command, CHOICES, refuse=PAUSE, granted=self._granted, waiting=self._waiting
        )
        if chosen != RUN:
            await self._note((SKIPPED if chosen == SKIP else NOT_RUN).format(command))
            return chosen == PAUSE
        with self._alarm():
            ran = await self.workplace.execute(command)
        return ran.interrupted or self._pressed

    async def _note(self, text: str) -> None:
        """Adds a text to the next message to the model."""
        await patiently(partial(self.chat.context.append_exec_output, text))

    # The user ---------------------------------------------------------------------------------------

    def _pause(self, then: str) -> GoalOutcome | None:
        """Asks the user how to continue; returns an outcome if the user stops, or if there is no terminal."""
        while True:
            choices = {YES: "continue", "i": "instruct", NO: "stop"}
            chosen = self._ask("paused", choices, refuse=NO, default=YES)
            instruction = self._instruction() if chosen == "i" else ""
            self._pressed = False
            if chosen == NO:
                return self._make_outcome("stopped")
            if chosen == YES or instruction:
                self._next = instruction or then
                return None

    def _offer_reading(self) -> None:
        """Asks once if the read-only commands of this goal may run without a question."""
        if READ_ONLY not in ASKED[self.chat.settings.shell.confirm] or not self.screen.is_interactive:
            return
        choices = {YES: "run them unasked", NO: "ask about each"}
        if self._ask("Commands of this goal that only read:", choices, refuse=None, default=YES) == YES:
            self._granted.add(READ_ONLY)

    def _ask(self, question: str, choices: Mapping[str, str], *, refuse: str | None, default: str) -> str:
        """Asks the user, as `Screen.ask` does. The goal's minutes stop until the answer."""
        with self._waiting():
            return self.screen.ask(question, choices, refuse=refuse, default=default)

    def _instruction(self) -> str:
        """Returns a line that the user types; empty after Ctrl-C and Ctrl-D."""
        with self._waiting():
            return self.screen.line("instruct> ")

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Stops the goal's clock."""
        since = self._clock()
        try:
            yield
        finally:
            self._began += self._clock() - since

    # Bounds -----------------------------------------------------------------------------------------

    def _sum_usage(self) -> tuple[int, Decimal | None]:
        """Returns the tokens and dollars used since the goal began or was resumed; None if unknown."""
        context = self.chat.context
        total = context.total_cost()
        paid = None if total is None or total == self._paid else total - (self._paid or 0)
        return sum(context.total_tokens()) - self._used, paid

    def _ahead(self) -> tuple[int, Decimal | None]:
        """Returns the least tokens and dollars of the next request: its current input, without an answer."""
        context, client = self.chat.context, self.chat.client
        tokens = min(context.count().tokens, context.limit)
        prices = prices_of(client.name, client.ledger.prices)
        return tokens, None if client.local else cost_of(Usage(prompt=tokens), prices)

    def _bounds(self) -> tuple[Bound, ...]:
        tokens, paid = self._sum_usage()
        next_tokens, next_paid = self._ahead()
        known = paid if next_paid is None else paid or Decimal(0)
        minutes = (self._clock() - self._began) / 60
        most = self.bounds
        return (
            Bound("max_steps", most.max_steps, self.steps, 1, _whole),
            Bound("max_tokens", most.max_tokens, tokens, next_tokens, _whole),
            Bound("max_dollars", most.max_dollars, known, next_paid or Decimal(0), dollars),
            Bound("max_minutes", most.max_minutes, minutes, 0, _whole),
        )

    def _find_reached_bound(self) -> Bound | None:
        return next((bound for bound in self._bounds() if bound.is_reached), None)

    def _out_of_bounds(self) -> GoalOutcome | None:
        bound = self._find_reached_bound()
        if bound is None:
            return None
        used, most = bound.shown(bound.used), bound.shown(bound.most)
        return self._make_outcome(
            bound.name, f"goal.{bound.name} is {most}, {used} used: another step would exceed it"
        )

    def _seconds_left(self) -> float | None:
        minutes = self.bounds.max_minutes
        return None if minutes is None else max(0.0, self._began + 60 * minutes - self._clock())

    @property
    def _late(self) -> bool:
        return self._seconds_left() == 0

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        """Interrupts the running command when the goal's time is over."""
        left = self._seconds_left()
        if left is None:
            yield
            return
        timer = threading.Timer(left, self.workplace.runner.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def summary(self) -> str:
        """Returns the steps, dollars and minutes against their bounds, short enough for the status line."""
        shown = (each for each in self._bounds() if each.most is not None and each.name != "max_tokens")
        return " · ".join(filter(None, (describe_use(each, between="/") for each in shown)))

    def progress(self) -> str:
        """Returns the use of all bounds, for the line after each step."""
        shown = (describe_use(each, is_estimate=self._estimated) for each in self._bounds())
        return " · ".join(filter(None, shown))


UNITS: Mapping[str, str] = {
    "max_steps": "step {}",
    "max_tokens": "{} tokens",
    "max_dollars": "{}",
    "max_minutes": "{} min",
}
"""Bound → the words around its use."""


def describe_use(bound: Bound, *, between: str = " of ", is_estimate: bool = False) -> str:
    """Returns the use of a bound: `step 3 of 20`, or only the use if the bound is not set.

    It is empty if the use is unknown, and for minutes without a bound.
    """
    if bound.used is None or (bound.most is None and bound.name == "max_minutes"):
        return ""
    mark = "~" if is_estimate and bound.name == "max_tokens" else ""
    most = "" if bound.most is None else f"{between}{bound.shown(bound.most)}"
    return UNITS[bound.name].format(f"{mark}{bound.shown(bound.used)}{most}")


def _whole(value: object) -> str:
    return f"{int(value):,}" if isinstance(value, int | float | Decimal) else str(value)
