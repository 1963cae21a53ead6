"""The desk that a person works at: a conversation, the model that answers, tools and the bill; no screen.

What keyboard and screen do with it is the loop's affair, and goal mode is that loop without the keyboard.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ullage.classes import MAIN
from ullage.config.seats import Seats, seat_for
from ullage.config.using import (
    CHOSEN,
    chosen_model,
    context_options,
    ledger_options,
    meter_options,
    runs_here,
)
from ullage.context import RECALL_TOOL, Context, answer_recall
from ullage.cost import Ledger
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting import FitPolicy
from ullage.messages import arguments_text, calls_of
from ullage.shell.summarizing import Notes
from ullage.tokens.calibration import Calibration
from ullage.usage import Meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from ullage.config import ModelSettings, Settings
    from ullage.config.seats import Seat
    from ullage.messages import Tool
    from ullage.store import Store
    from ullage.tokens import Count
    from ullage.turn import Client, TurnEvent

ROLLING = "rolling-context"
"""The preference that says whether what does not fit is trimmed."""
MOST_STEPS = 50
"""How many times in a row one question may lead to calls."""
MOST_SESSIONS = 1_000
"""How many conversations, the latest first, can be named by a beginning."""
DECLINED = "[skipped by the user]"
"""The result of a call that the user did not allow."""

Allow: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Asked before a tool is called, with its name and arguments."""
CallTool: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Calls a tool by its name with its arguments; what goes wrong is an answer too."""


@dataclass(frozen=True, slots=True)
class Called:
    """A tool was called, or not allowed to be."""

    name: str
    arguments: str
    result: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The model would have gone on calling, and was not asked again; the user may say so."""

    calls: int
    """How many times in a row it was asked, and called something each time."""


class Desk:
    """One conversation at work; `open` makes it, `close` lets go of the models."""

    def __init__(
        self,
        settings: Settings,
        kept: Store,
        environ: Mapping[str, str],
        cwd: Path,
        seat: Seat,
        *,
        session: str,
    ) -> None:
        self.settings = settings
        self.kept = kept
        self.cwd = cwd
        """Where the shell was opened: the project that the bill names."""
        self.seat = seat
        """Who answers now."""
        self._seats = Seats(seat, settings, environ)
        self._notes = Notes(settings, self._seats)
        self._limits: dict[str, int] = {}
        """What the models of classes were last held to: a provider's refusal may have lowered it."""
        self._tools: tuple[Tool, ...] = ()
        self._call: CallTool | None = None
        self._take_up(session)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        kept: Store,
        environ: Mapping[str, str],
        cwd: Path,
        *,
        session: str | None = None,
        model: str | None = None,
    ) -> Desk:
        """A desk with a new conversation, or with the one whose name begins with `session` as it was left."""
        found = uuid.uuid4().hex if session is None else named(kept, session)
        chosen, _ = chosen_model(settings, kept.preferences, model)
        ledger = ledger_of(settings, kept, found, cwd)
        calibration = Calibration(kept.calibration)
        seat = await seat_for(chosen, settings, environ=environ, ledger=ledger, calibration=calibration)
        try:
            return cls(settings, kept, environ, cwd, seat, session=found)
        except BaseException:
            await seat.close()
            raise

    def _take_up(self, session: str) -> None:
        """Goes on with a conversation, or begins it."""
        settings = self.settings
        prompt = settings.routing.system_prompts.get(MAIN)
        meter = Meter(**meter_options(settings))
        context = Context.resume(
            session,
            self.kept.journal,
            **{**context_options(settings, self.seat.model), **self.seat.held},
            **({} if prompt is None else {"system_prompt": prompt}),
            policy=FitPolicy(recall=True),
            meter=meter,
            summarize=self._notes.summarizer(meter),
        )
        context.roll(bool(self.kept.preferences.get(ROLLING, settings.context.rolling)))
        context.pursuing = False  # a goal that did not end waits until it is taken up
        self.context = context
        self._send_tools()

    async def use_model(self, name: str) -> None:
        """Goes on with another model; where it cannot be opened, all stays as it was."""
        before, seat = self.seat, await self._seats.get(self.settings.model(name))
        left = seat
        try:
            self._sit(seat)
            left = before
            self.kept.preferences.set(CHOSEN, name)
        finally:
            if before.client is not seat.client:
                await self._seats.let_go(left)

    def resume(self, session: str) -> None:
        """Goes on with the conversation whose name begins so, with the model that answers now."""
        self._change_to(named(self.kept, session))

    def begin(self) -> None:
        """Begins another conversation; the one before stays as it is."""
        self._change_to(uuid.uuid4().hex)

    def _change_to(self, session: str) -> None:
        listed = self.context.project
        self._take_up(session)
        self.context.set_project(listed)
        self._notes.break_off()  # on the bill of the conversation that it is about
        self._seats.bill(ledger_of(self.settings, self.kept, session, self.cwd))

    async def close(self) -> None:
        """Breaks off the summary that is being written, and lets go of the models."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._seats.close)
            closing.callback(self._notes.close)

    # Who answers ------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelSettings:
        """The model that answers now."""
        return self.seat.model

    @property
    def client(self) -> Client:
        """How it is asked."""
        return self.seat.client

    @asynccontextmanager
    async def routed(self, kind: str) -> AsyncIterator[None]:
        """Within this the turns are of a class: its model answers, within its own bounds, with its prompt."""
        before, seat = self.seat, await self._seat_of(kind)
        if seat.client is before.client:  # what is learned of it is to stay
            self.seat = seat
            try:
                yield
            finally:
                self.seat = before
            return
        with self.context.meanwhile():
            self._sit(seat)
            self.context.hold_to(self._limits.get(seat.model.name, self.context.limit))
            try:
                yield
            finally:
                self._limits[seat.model.name] = self.context.limit
                self.seat = before

    async def _seat_of(self, kind: str) -> Seat:
        """Who answers the turns of a class; without a model of its own, whoever answers now."""
        routing = self.settings.routing
        prompt = None if kind == MAIN else routing.system_prompts.get(kind)
        seat = self.seat
        if kind in routing.models:
            seat = await self._seats.get(self.settings.route(kind).model)
        return replace(seat, prompt=prompt)

    def _sit(self, seat: Seat) -> None:
        self.context.use_model(**seat.held)
        self.context.use_tool_role = seat.model.use_tool_role
        self.seat = seat
        self._send_tools()

    def count(self) -> Count:
        """What stands in the window of whoever answers now."""
        return self.context.count(system_prompt_override=self.seat.prompt, compress=self.seat.compress)

    def render(self) -> None:
        """Makes the request that would be sent now, so that `context.changes` tell of it."""
        with suppress(ContextOverflowError):  # what cannot be sent can still be looked at
            self.context.fitted(system_prompt_override=self.seat.prompt, compress=self.seat.compress)

    # Tools ------------------------------------------------------------------------------------------

    def use_tools(self, tools: tuple[Tool, ...], call: CallTool | None) -> None:
        """Sends these tools, and calls them by `call`."""
        self._tools, self._call = tools, call
        self._send_tools()

    def _send_tools(self) -> None:
        # A model in this process has a small window and, the one that comes with us, no use for tools.
        own = () if runs_here(self.model) else (RECALL_TOOL,)
        self.context.use_tools((*self._tools, *own) or None)

    # Turns ------------------------------------------------------------------------------------------

    async def answer(
        self, allow: Allow, *, category: str = MAIN
    ) -> AsyncIterator[TurnEvent | Called | Stopped]:
        """What the model says to the conversation as it stands; it goes on after each call until it ends.

        After too many in a row it is not asked again, and the last event says so.
        """
        seat = self.seat
        try:
            for _ in range(MOST_STEPS):
                stream = seat.client.stream(
                    self.context,
                    category=category,
                    system_prompt_override=seat.prompt,
                    compress=seat.compress,
                )
                async with aclosing(stream) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
                if not self.context.waiting:
                    return
                for call in calls_of(self.context.turns[-1]):
                    yield await self._called(
                        call["id"], call["function"]["name"], arguments_text(call), allow
                    )
            yield Stopped(MOST_STEPS)
        finally:
            self.context.interrupt()

    async def _called(self, identity: str, name: str, arguments: str, allow: Allow) -> Called:
        own = name == RECALL_TOOL["function"]["name"]
        allowed = own or await allow(name, arguments)
        if not allowed:
            result = DECLINED
        elif own:
            result = answer_recall(self.kept.journal, self.context.session, _object(arguments))
        elif self._call is None:
            result = f"error: no tool is called {name!r} any more"
        else:
            result = await self._call(name, arguments)
        self.context.append({"role": "tool", "tool_call_id": identity, "content": result})
        return Called(name, arguments, result, allowed)


def ledger_of(settings: Settings, kept: Store, session: str, cwd: Path) -> Ledger:
    """The bill of a conversation, with the caps that are configured."""
    return Ledger(book=kept.book, session=session, project=cwd.name, **ledger_options(settings))


def named(kept: Store, beginning: str) -> str:
    """The one conversation whose name begins so, or the latest; ConfigurationError for none, or for more."""
    names = [each.id for each in kept.sessions(MOST_SESSIONS if beginning else 1)]
    if beginning in names:
        return beginning
    found = [name for name in names if name.startswith(beginning)]
    if len(found) != 1:
        raise ConfigurationError(f"{len(found)} sessions begin with {beginning!r}; :sessions lists them")
    return found[0]


def _object(arguments: str) -> Mapping[str, object]:
    import orjson  # noqa: PLC0415 - only where a tool of our own is called

    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
