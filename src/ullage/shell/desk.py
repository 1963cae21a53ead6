"""The desk that a person works at: a conversation, the model that answers, tools and the bill; no screen.

What keyboard and screen do with it is the loop's affair, and goal mode is that loop without the keyboard.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ullage.config.seats import seat_for
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
from ullage.errors import ConfigurationError
from ullage.fitting import FitPolicy
from ullage.messages import arguments_text, calls_of
from ullage.shell.summarizing import summarizer, summarizer_model
from ullage.tokens.calibration import Calibration
from ullage.usage import Meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from ullage.config import ModelSettings, Settings
    from ullage.config.seats import Seat
    from ullage.messages import Tool
    from ullage.store import Store
    from ullage.turn import Client, TurnEvent

ROLLING = "rolling-context"
"""The preference that says whether what does not fit is trimmed."""
MAIN = "main"
"""The class of turns that no rule sends elsewhere."""
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
        self._environ = environ
        self._routed: dict[str, Seat] = {}
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
        chosen = chosen_model(settings, kept.preferences, model)
        ledger = ledger_of(settings, kept, found, cwd)
        calibration = Calibration(kept.calibration)
        seat = await seat_for(chosen, settings, environ=environ, ledger=ledger, calibration=calibration)
        return cls(settings, kept, environ, cwd, seat, session=found)

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
            summarize=summarizer(settings, self._environ, self.seat.client, meter),
            summarizer_model=summarizer_model(settings),
        )
        context.roll(bool(self.kept.preferences.get(ROLLING, settings.context.rolling)))
        self.context = context
        self._send_tools()

    async def use_model(self, name: str) -> None:
        """Goes on with another model; where it cannot be opened, all stays as it was."""
        before, seat = self.seat, await self._opened(self.settings.model(name))
        try:
            self._sit(seat)
        except BaseException:
            await seat.close()
            raise
        self.kept.preferences.set(CHOSEN, name)
        await before.close()

    def resume(self, session: str) -> None:
        """Goes on with the conversation whose name begins so, with the model that answers now."""
        session = named(self.kept, session)
        listed = self.context.project
        self._take_up(session)
        self.context.set_project(listed)
        ledger = ledger_of(self.settings, self.kept, session, self.cwd)
        for seat in (self.seat, *self._routed.values()):
            seat.client.ledger = ledger

    async def close(self) -> None:
        """Lets go of the models."""
        for seat in (self.seat, *self._routed.values()):
            await seat.close()

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
            self.context.hold_to(self._limits.get(kind, self.context.limit))
            try:
                yield
            finally:
                self._limits[kind] = self.context.limit
                self.seat = before

    async def _seat_of(self, kind: str) -> Seat:
        """Who answers the turns of a class; without a model of its own, whoever answers now."""
        routing = self.settings.routing
        prompt = None if kind == MAIN else routing.system_prompts.get(kind)
        if kind not in routing.models:
            return replace(self.seat, prompt=prompt)
        if kind not in self._routed:
            self._routed[kind] = await self._opened(self.settings.route(kind).model)
        return replace(self._routed[kind], prompt=prompt)

    async def _opened(self, model: ModelSettings) -> Seat:
        client = self.client
        return await seat_for(
            model,
            self.settings,
            environ=self._environ,
            ledger=client.ledger,
            calibration=client.calibration,
        )

    def _sit(self, seat: Seat) -> None:
        self.context.use_model(**seat.held)
        self.context.use_tool_role = seat.model.use_tool_role
        self.seat = seat
        self._send_tools()

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

    async def answer(self, allow: Allow, *, category: str = "main") -> AsyncIterator[TurnEvent | Called]:
        """What the model says to the conversation as it stands; it goes on after each call until it ends."""
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
    """The one conversation whose name begins so; raises ConfigurationError for none, or for more."""
    names = [each.id for each in kept.sessions(MOST_SESSIONS)]
    found = [name for name in names if beginning and name.startswith(beginning)]
    if beginning in names:
        return beginning
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
