"""Goal mode: the shell's loop without the keyboard, within bounds that are set beforehand.

    plan → answer → its commands run, or are skipped → what they printed is the next turn → … → an end

The goal is in the journal and in the system prompt, so neither eviction nor a crash loses it. It ends where
the model says so, where a bound is reached, or where the user stops it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from ullage.classes import GOAL
from ullage.cost.prices import cost_of, prices_of
from ullage.errors import ConfigurationError, UllageError
from ullage.shell.hearing import Heard, hear
from ullage.shell.interrupting import on_press, stoppable
from ullage.shell.offering import FOR_GOOD, GRANT, PAUSE, RUN, SKIP, SKIPPED, offer
from ullage.shell.status import dollars
from ullage.shell.suggestions import MARK, commands_in, ending_in
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.shell.desk import Desk
    from ullage.shell.loop import Shell

PATIENCE = 3
"""How many answers in a row may do nothing before the goal counts as blocked."""

OPENING = f'Begin: a short plan, then the first step. Each command is a line that begins with "{MARK}".'
GO_ON = "Go on."
REMINDER = (
    f'That had neither a command nor an end. Write the next command on a line that begins with "{MARK}", or '
    '"GOAL: complete" or "GOAL: blocked" on a line of its own.'
)
RESUMED = "You were interrupted here. See what has been done of the goal so far, and go on."
PAUSED = "The user paused you here; no command of your last answer was run. Go on."
NOT_RUN = "[command not run, as the user paused before it] {}"

ENDS = frozenset({"complete", "blocked", "stopped"})
"""How a goal may end other than by a bound."""
CHOICES = RUN + SKIP + FOR_GOOD + GRANT + PAUSE
"""What the user may do with a command that has to be asked about."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the pursuit of a goal has ended."""

    reason: str
    """`complete`, `blocked`, `stopped`, or the bound that was reached, such as `max_steps`."""
    steps: int
    text: str
    """The model's summary or reason, or what there is to say of the bound."""


class Bound(NamedTuple):
    """A bound, how much of it is used, and what the next step takes at least."""

    name: str
    most: Decimal | int | None
    used: Decimal | float | None
    """None where it is not known."""
    ahead: Decimal | int
    shown: Callable[[object], str]

    @property
    def is_reached(self) -> bool:
        """Whether there is nothing left, or not enough for another step."""
        if self.most is None or self.used is None:
            return False
        return self.used >= self.most or Decimal(self.used) + self.ahead > self.most


def pending(desk: Desk) -> str:
    """What to tell a user who opens a conversation whose goal has not ended; empty where there is none."""
    goal = desk.context.goal
    return f"unfinished goal: {goal} (:goal continue goes on, :goal stop ends it)" if goal else ""


def stop(desk: Desk) -> bool:
    """Ends the goal of a conversation; False where it has none."""
    found = bool(desk.context.goal)
    if found:
        desk.context.goal = ""
    return found


async def act(shell: Shell, rest: str) -> None:
    """Does what `:goal` asks for: shows, stops, continues or begins."""
    if rest == "stop":
        shell.screen.dim("the goal is given up" if stop(shell.desk) else "there is no goal")
    elif rest in {"", "continue"}:
        if rest and shell.desk.context.goal:
            await pursue(shell, "")
        else:
            shell.screen.dim(pending(shell.desk) or "there is no goal; :goal TEXT sets one")
    else:
        await pursue(shell, rest)


async def pursue(shell: Shell, text: str, *, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """Works towards a goal until it ends; without a text, goes on with the one that was interrupted.

    An error of the provider pauses; without a terminal it ends the goal, and is raised. Whatever else ends
    the program leaves the goal where it is, to be continued.
    """
    context = shell.desk.context
    if not text and not context.goal:
        raise ConfigurationError("there is no goal to go on with; :goal TEXT sets one")
    async with shell.desk.routed(GOAL):
        if text:
            context.goal = text
        context.pursuing = True
        try:
            pursuit = _Pursuit(shell, OPENING if text else RESUMED, clock)
            with on_press(pursuit.press):
                outcome = await pursuit.run()
        finally:
            context.pursuing = False
    steps = f"{outcome.steps} step{'' if outcome.steps == 1 else 's'}"
    said = f": {outcome.text}" if outcome.text else ""
    if outcome.reason in ENDS:
        context.goal = ""
        shell.screen.dim(f"goal {outcome.reason} after {steps}{said}")
    else:
        shell.screen.dim(f"goal paused after {steps}{said}; :goal continue goes on")
    return outcome


class _Pursuit:
    """One goal being pursued: what it has used, and what the model is told next."""

    def __init__(self, shell: Shell, opening: str, clock: Callable[[], float]) -> None:
        self.shell = shell
        self.desk, self.screen = shell.desk, shell.screen
        self.bounds = shell.desk.settings.goal
        self.steps = 0
        self._next = opening
        self._clock = clock
        self._began = clock()
        self._paid = self.desk.context.total_cost()
        self._used = sum(self.desk.context.total_tokens())
        self._estimated = False
        self._idle = 0
        self._granted: set[str] = set()
        self._pressed = False

    def press(self) -> None:
        """Ctrl-C: it pauses as soon as it can, as often as it is pressed."""
        self._pressed = True

    async def run(self) -> Outcome:
        """Step after step, until one of them is the last."""
        if self._ahead()[1] is None and not self.desk.client.local and self.bounds.max_dollars is not None:
            self.screen.dim("the model's prices are not known, so goal.max_dollars does not bound this goal")
        while True:
            outcome = self._out_of_bounds() or await self._step()
            if outcome is not None:
                return outcome

    async def _step(self) -> Outcome | None:
        """One answer and its commands; the outcome, where that was the end."""
        self.desk.context.append_user(self._next)
        self._next = GO_ON
        self.steps += 1
        try:
            heard = await self._heard()
        except UllageError as error:
            if not self.screen.is_interactive:
                self.desk.context.goal = ""
                raise
            self.screen.error(str(error))
            return self._pause(RESUMED)
        self.screen.dim(self._spend())
        commands, ending = commands_in(heard.text), ending_in(heard.text)
        if self._pressed:
            return self._pause(PAUSED)
        if ending is not None:
            for command in commands:
                self.screen.dim(f"not run, as the goal has ended: {command}")
            return self._ended("complete" if ending.complete else "blocked", ending.text)
        if commands:
            self._idle = 0
            return await self._run(commands)
        self._idle = 0 if heard.calls else self._idle + 1
        if self._idle >= PATIENCE:
            return self._ended("blocked", f"{PATIENCE} answers in a row had neither a command nor an end")
        self._next = REMINDER if self._idle else GO_ON
        return None

    def _ended(self, reason: str, text: str = "") -> Outcome:
        return Outcome(reason, self.steps, text)

    # Answers ----------------------------------------------------------------------------------------

    async def _heard(self) -> Heard:
        """What the model says; what has come so far where it is stopped."""
        heard = Heard()
        listening = hear(self.shell, heard, category=GOAL, enough=lambda: self._reached() is not None)
        try:
            async with asyncio.timeout(self._seconds_left()) as limit:
                await stoppable(listening, tell=self.screen.dim, pressed=self.press)
        except asyncio.CancelledError:
            if not self._pressed:
                raise
            heard.told = False  # nobody told what a part of an answer has used
        except TimeoutError:
            if not limit.expired():
                raise
            heard.told = False
            self._began -= self._seconds_left() or 0  # two clocks may differ by a little
        finally:
            self._estimated = self._estimated or not heard.told
            self.desk.context.interrupt()
        return heard

    # Commands ---------------------------------------------------------------------------------------

    async def _run(self, commands: tuple[str, ...]) -> Outcome | None:
        """Runs the commands of an answer in order; a pause leaves out the rest, and the model is told."""
        for place, command in enumerate(commands):
            if self._late:
                return None
            paused = await self._offered(command)
            if paused and not self._late:
                for left in commands[place + 1 :]:
                    self.desk.context.append_exec_output(NOT_RUN.format(left))
                return self._pause(GO_ON)
        return None

    async def _offered(self, command: str) -> bool:
        """Runs a command, after a question where it needs one; whether the user wants a pause."""
        chosen = offer(
            self.shell, command, CHOICES, refuse=PAUSE, granted=self._granted, waiting=self._waiting
        )
        if chosen != RUN:
            self.desk.context.append_exec_output((SKIPPED if chosen == SKIP else NOT_RUN).format(command))
            return chosen == PAUSE
        self.screen.dim(f"$ {command}")
        with self._alarm():
            ran = await self.shell.execute(command)
        return ran.interrupted or self._pressed

    # The user ---------------------------------------------------------------------------------------

    def _pause(self, then: str) -> Outcome | None:
        """Asks how to go on; the outcome, where the user stops. Without a terminal it is a stop."""
        while True:
            choices = {"c": "continue", "i": "instruct", "s": "stop"}
            chosen = self._ask("paused", choices, refuse="s")
            instruction = self._instruction() if chosen == "i" else ""
            self._pressed = False
            if chosen == "s":
                return self._ended("stopped")
            if chosen == "c" or instruction:
                self._next = instruction or then
                return None

    def _ask(self, question: str, choices: Mapping[str, str], *, refuse: str) -> str:
        """As the screen asks; the time that the user takes is not the goal's."""
        with self._waiting():
            return self.screen.ask(question, choices, refuse=refuse)

    def _instruction(self) -> str:
        """A line that the user types; empty at Ctrl-C and Ctrl-D."""
        with self._waiting():
            return self.screen.line("instruct> ")

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        since = self._clock()
        try:
            yield
        finally:
            self._began += self._clock() - since

    # Bounds -----------------------------------------------------------------------------------------

    def _spent(self) -> tuple[int, Decimal | None]:
        """The tokens and, where any are known, the dollars since the goal was taken up."""
        context = self.desk.context
        total = context.total_cost()
        paid = None if total is None or total == self._paid else total - (self._paid or 0)
        return sum(context.total_tokens()) - self._used, paid

    def _ahead(self) -> tuple[int, Decimal | None]:
        """The least that the next request takes: its input as it stands, and the price of that."""
        context, client = self.desk.context, self.desk.client
        tokens = min(context.count().tokens, context.limit)
        prices = prices_of(client.name, client.ledger.prices)
        return tokens, None if client.local else cost_of(Usage(prompt=tokens), prices)

    def _bounds(self) -> tuple[Bound, ...]:
        tokens, paid = self._spent()
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

    def _reached(self) -> Bound | None:
        return next((bound for bound in self._bounds() if bound.is_reached), None)

    def _out_of_bounds(self) -> Outcome | None:
        bound = self._reached()
        if bound is None:
            return None
        used, most = bound.shown(bound.used), bound.shown(bound.most)
        return self._ended(
            bound.name, f"goal.{bound.name} is {most}, {used} used, and a step more is over it"
        )

    def _seconds_left(self) -> float | None:
        minutes = self.bounds.max_minutes
        return None if minutes is None else max(0.0, self._began + 60 * minutes - self._clock())

    @property
    def _late(self) -> bool:
        return self._seconds_left() == 0

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        """Interrupts a command that would outlast the goal's time."""
        left = self._seconds_left()
        if left is None:
            yield
            return
        timer = threading.Timer(left, self.shell.runner.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _spend(self) -> str:
        tokens, paid = self._spent()
        parts = [
            f"step {self.steps} of {self.bounds.max_steps}",
            f"{'~' if self._estimated else ''}{tokens:,} tokens",
            *([] if paid is None else [dollars(paid)]),
        ]
        return " · ".join(parts)


def _whole(value: object) -> str:
    return f"{int(value):,}" if isinstance(value, int | float | Decimal) else str(value)
