"""The desk that a person works at: a conversation, the model that answers, tools and the bill; no screen.

What keyboard and screen do with it is the loop's affair, and goal mode is that loop without the keyboard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ullage.broker.opening import EMBEDDED, LOCAL_OUTPUT
from ullage.config.using import (
    compress_of,
    context_options,
    ledger_options,
    meter_options,
    opened,
    runs_here,
    tree_options,
)
from ullage.context import RECALL_TOOL, Context, answer_recall
from ullage.cost import Ledger
from ullage.errors import ConfigurationError
from ullage.fitting import FitPolicy
from ullage.messages import arguments_text, calls_of
from ullage.tokens.calibration import Calibration
from ullage.turn import Client, TurnEvent
from ullage.usage import Meter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from ullage.broker.opening import Opened
    from ullage.config import ModelSettings, Settings
    from ullage.messages import Tool
    from ullage.store import Store

ROLLING, CHOSEN = "rolling-context", "model"
"""Preferences that outlive a session: whether what does not fit is trimmed, and which model answers."""
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
    """One conversation at work; `open` makes it, `close` lets go of the model."""

    def __init__(self, settings: Settings, kept: Store, environ: Mapping[str, str], cwd: Path) -> None:
        self.settings = settings
        self.kept = kept
        self.cwd = cwd
        self.context: Context
        self.client: Client
        self.model: ModelSettings
        self._environ = environ
        self._calibration = Calibration(kept.calibration)
        self._opened: Opened | None = None
        self._tools: tuple[Tool, ...] = ()
        self._call: CallTool | None = None

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
        desk = cls(settings, kept, environ, cwd)
        session = None if session is None else desk.named(session)
        chosen = settings.model(model or kept.preferences.get(CHOSEN) or settings.default_model)
        await desk._start(chosen, session)
        if settings.project.auto_tree:
            desk.draw_tree()
        return desk

    async def _start(self, model: ModelSettings, session: str | None) -> None:
        found = opened(model, self._environ)
        options = await self._options(found, model)
        self.context = Context.resume(
            session or "",
            self.kept.journal,
            **{**context_options(self.settings, model), **options},
            policy=FitPolicy(recall=True),
            meter=Meter(**meter_options(self.settings)),
        )
        self.context.roll(bool(self.kept.preferences.get(ROLLING, self.settings.context.rolling)))
        self._adopt(found, model)

    async def _options(self, found: Opened, model: ModelSettings) -> dict[str, object]:
        """What the provider says of itself, for the context."""
        provider = found.provider
        window = await found.window(model.window)
        reserved = self.settings.context.reserved_output
        if reserved is None and found.local and window is not None:
            reserved = min(LOCAL_OUTPUT, window // 4)
        factor = self._calibration.factor(provider.endpoint, provider.model)
        return {"model": provider.model, "window": window, "reserved_output": reserved, "factor": factor}

    def _adopt(self, found: Opened, model: ModelSettings) -> None:
        self._opened, self.model = found, model
        ledger = Ledger(
            book=self.kept.book,
            session=self.context.session,
            project=self.cwd.name,
            **ledger_options(self.settings),
        )
        self.client = Client(
            found.provider,
            ledger=ledger,
            calibration=self._calibration,
            name=model.name if model.name in self.settings.models else None,
            max_output=self.context.bounds.reserved_output,
            local=found.local,
            use_endpoint=self.settings.tokenize.use_endpoint,
        )
        self._send_tools()

    async def use_model(self, name: str) -> None:
        """Goes on with another model; where it cannot be opened, all stays as it was."""
        model = self.settings.model(name)
        found = opened(model, self._environ)
        before = self._opened
        try:
            options = await self._options(found, model)
            self.context.use_model(**options)  # type: ignore[arg-type] # as _options has them
        except BaseException:
            await found.provider.close()
            raise
        self.context.use_tool_role = model.use_tool_role
        self._adopt(found, model)
        self.kept.preferences.set(CHOSEN, name)
        if before is not None:
            await before.provider.close()

    async def resume(self, session: str) -> None:
        """Goes on with the conversation whose name begins so, with the model that answers now."""
        session = self.named(session)
        before = self._opened
        await self._start(self.model, session)
        if before is not None:
            await before.provider.close()

    def named(self, beginning: str) -> str:
        """The one conversation whose name begins so; raises ConfigurationError for none, or for more."""
        names = [each.id for each in self.kept.sessions(MOST_SESSIONS)]
        found = [name for name in names if beginning and name.startswith(beginning)]
        if beginning in names:
            return beginning
        if len(found) != 1:
            raise ConfigurationError(
                f"{len(found)} sessions begin with {beginning!r}; :sessions in ullage shell lists them"
            )
        return found[0]

    async def close(self) -> None:
        """Lets go of the model."""
        if self._opened is not None:
            await self._opened.provider.close()

    @property
    def is_embedded(self) -> bool:
        """Whether the model that comes with Ullage answers."""
        return self.model.name == EMBEDDED and runs_here(self.model)

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
        compress = compress_of(self.settings, self.model)
        try:
            for _ in range(MOST_STEPS):
                stream = self.client.stream(self.context, category=category, compress=compress)
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

    # The project ------------------------------------------------------------------------------------

    def draw_tree(self, depth: int | None = None) -> str:
        """Puts the project's files into the prompt, and gives what was put there."""
        from ullage.project import tree  # noqa: PLC0415 - only who draws it needs it

        options = tree_options(self.settings)
        text = tree(self.cwd, options if depth is None else replace(options, depth=depth)).text
        self.context.set_project(text)
        return text


def _object(arguments: str) -> Mapping[str, object]:
    import orjson  # noqa: PLC0415 - only where a tool of our own is called

    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
