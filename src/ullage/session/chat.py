"""A chat session: a conversation, the model that answers, tools and the bill, without a screen."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ullage.categories import GOAL, MAIN
from ullage.context import RECALL_TOOL
from ullage.errors import (
    ConfigurationError,
    ContextOverflowError,
    InvalidConversation,
    NotSaved,
    StoreError,
)
from ullage.fitting import FitPolicy
from ullage.messages import arguments_text, calls_of
from ullage.patience import GRACE, limit_waiting, patiently, to_the_end
from ullage.session.accounts import ledger_for, meter_for
from ullage.session.budget import describe_limit
from ullage.session.conversation import context_options, is_trimming, resume_context, switch_model
from ullage.session.model_choice import choose_model
from ullage.session.model_pool import ModelPool
from ullage.session.preferences import CHOSEN_MODEL
from ullage.session.routes import route
from ullage.session.setup import SessionOptions, open_session_model
from ullage.session.summarizer import SummaryWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from ullage.config import ModelSettings, Settings
    from ullage.context import Context
    from ullage.messages import Tool
    from ullage.session.model_pool import OpenModel
    from ullage.session.routes import Routed
    from ullage.store import Store
    from ullage.tokens import Count
    from ullage.turn import Client, TurnEvent

MOST_STEPS = 50
"""Maximum number of answers in a row that may call tools, for one question."""
MOST_SESSIONS = 1_000
"""Number of latest conversations that can be named by the beginning of their name."""
DECLINED = "[skipped by the user]"
"""The result of a call that the user did not allow."""

Allow: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Returns True if a tool may be called; called with the tool's name and arguments."""
CallTool: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Calls a tool with its name and arguments; returns its result, or an error as a text."""


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool was called, or the user did not allow the call."""

    name: str
    arguments: str
    result: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class CallsStopped:
    """The model called tools too many times in a row and was not asked again; the user may continue."""

    calls: int
    """Number of answers in a row that called tools."""


class ChatSession:
    """One running conversation; `open` creates it, `close` closes its models."""

    def __init__(
        self,
        settings: Settings,
        kept: Store,
        environ: Mapping[str, str],
        cwd: Path,
        open_model: OpenModel,
        *,
        session: str,
    ) -> None:
        self.settings = settings
        self.kept = kept
        self.cwd = cwd
        """The folder of the session; costs are booked on its name as the project."""
        self.open_model = open_model
        """The current model."""
        self._pool = ModelPool(open_model, settings, environ)
        self._summary_writer = SummaryWriter(settings, self._pool)
        self._limits: dict[str, int] = {}
        """Lowered token limit of each routed model: a provider's refusal may have lowered it."""
        self.max_answer: int | None = None
        """The most tokens of an answer that the user asked for; None for the model's own limit."""
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
    ) -> ChatSession:
        """Opens a session with a new conversation, or with the one whose name begins with `session`."""
        found = uuid.uuid4().hex if session is None else find_session(kept, session)
        chosen = choose_model(settings, kept.preferences, model).model
        options = SessionOptions(session=found, project=cwd.name)
        open_model = await open_session_model(chosen, settings, kept, environ, options)
        try:
            return cls(settings, kept, environ, cwd, open_model, session=found)
        except BaseException:
            await open_model.close()
            raise

    def _take_up(self, session: str) -> None:
        """Loads a conversation from the journal, or begins a new one."""
        settings = self.settings
        meter = meter_for(settings)
        context = resume_context(
            session,
            self.kept.journal,
            context_options(settings, self.model),
            self.open_model.limits,
            system_prompt=settings.routing.system_prompts.get(MAIN),
            policy=FitPolicy(recall=True),
            meter=meter,
            summarize=self._summary_writer.summarizer(meter),
        )
        context.set_trimming(is_trimming(settings, self.kept.preferences))
        if len(context):
            self._take_up_bill(context)
        context.pursuing = False  # an unfinished goal waits until the user continues it
        self.context = context
        self._send_tools()

    def _take_up_bill(self, context: Context) -> None:
        """Adds the earlier costs of the conversation to its meter, without the warnings about them."""
        for account, entry in self.kept.book.entries(session=context.session):
            context.meter.add_entry(account.model, account.category, entry)
        context.meter.pop_warnings()

    async def use_model(self, name: str) -> None:
        """Switches to another model and saves the choice; if it cannot be opened, nothing changes."""
        before, open_model = self.open_model, await self._pool.get(self.settings.model(name))
        left = open_model
        try:
            self._switch_to(open_model)
            left = before
            await patiently(partial(CHOSEN_MODEL.set, self.kept.preferences, name))
        finally:
            if before.client is not open_model.client:
                await self._pool.close_unless_routed(left)

    def resume(self, session: str) -> None:
        """Switches to the conversation whose name begins with `session`; the model stays the same."""
        self._change_to(find_session(self.kept, session))

    def begin(self) -> None:
        """Begins a new conversation; the store keeps the previous one."""
        self._change_to(uuid.uuid4().hex)

    def _change_to(self, session: str) -> None:
        self._save()
        listed = self.context.project
        self._take_up(session)
        self.context.set_project(listed)
        self._summary_writer.break_off()  # its cost belongs to the old ledger
        self._pool.use_ledger(ledger_for(self.settings, self.kept, session, self.cwd.name))

    async def close(self) -> None:
        """Cancels a summary that is being written, and closes the models."""
        async with AsyncExitStack() as closing:
            closing.callback(self._save)
            closing.push_async_callback(self._pool.close)
            closing.callback(self._summary_writer.close)

    def _save(self) -> None:
        """Writes an answer that the store failed to save before; raises NotSaved if it fails again."""
        try:
            with limit_waiting(GRACE):
                self.context.save()
        except StoreError as error:
            raise NotSaved(str(error), is_answer_kept=False, is_booked=True, cost=None) from error

    def route(self, text: str) -> Routed:
        """Returns a question with its category, which the text names or the rules of the settings find."""
        return route(text, self.settings.routing)

    # The current model ------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelSettings:
        """The settings of the current model."""
        return self.open_model.model

    @property
    def client(self) -> Client:
        """The client of the current model."""
        return self.open_model.client

    @property
    def longest_answer(self) -> int | None:
        """The most tokens of the next answer, before a cap lowers it; None if only the window limits it."""
        longest = self.client.longest_answer(self.context)
        if longest == self.context.bounds.window:
            longest = None
        return min((each for each in (self.max_answer, longest) if each is not None), default=None)

    @asynccontextmanager
    async def routed(self, category: str) -> AsyncIterator[None]:
        """Inside the with block, the model of a category answers, with its limits and its prompt."""
        before, open_model = self.open_model, await self._model_of(category)
        if open_model.client is before.client:  # keep the limits that were learned about this model
            self.open_model = open_model
            try:
                yield
            finally:
                self.open_model = before
            return
        with self.context.temporary_limits():
            self._switch_to(open_model)
            self.context.lower_limit(self._limits.get(open_model.model.name, self.context.limit))
            try:
                yield
            finally:
                self._limits[open_model.model.name] = self.context.limit
                self.open_model = before

    async def _model_of(self, category: str) -> OpenModel:
        """Returns the model of a category, with its prompt; by default the current model.

        The work on a goal always has the prompt that asks for commands.
        """
        routing = self.settings.routing
        open_model = self.open_model
        if category in routing.models:
            open_model = await self._pool.get(self.settings.route(category).model)
        prompt = None if category == MAIN else routing.system_prompts.get(category)
        own = None if category == GOAL else open_model.prompt
        return replace(open_model, prompt=prompt or own)

    def _switch_to(self, open_model: OpenModel) -> None:
        switch_model(self.context, open_model.limits)
        self.context.use_tool_role = open_model.model.use_tool_role
        self.open_model = open_model
        self._send_tools()

    async def count_ahead(self) -> None:
        """Lets the server count the new turns, if the server is configured to count."""
        await self.open_model.client.counts.count_ahead(
            self.context, self.open_model.prompt, self.open_model.compress
        )

    def count(self) -> Count:
        """Returns the token count of the conversation as the current model would receive it."""
        return self.context.count(
            system_prompt_override=self.open_model.prompt, compress=self.open_model.compress
        )

    def describe_limit(self) -> str:
        """Returns the reason for the limit of the conversation, and the setting that changes it."""
        return describe_limit(self.context.bounds, self.settings.context.token_budget)

    def render(self, *, must_fit: bool = False) -> None:
        """Renders the next request, so that `context.changes` describes it.

        If it does not fit, ContextOverflowError is raised with `must_fit`, and nothing happens without.
        """
        # A conversation that cannot be sent can still be shown.
        with suppress(InvalidConversation, *(() if must_fit else (ContextOverflowError,))):
            self.context.fitted(
                system_prompt_override=self.open_model.prompt, compress=self.open_model.compress
            )

    def overflow(self) -> ContextOverflowError | None:
        """Returns the error with which the next request would be refused; None if it fits."""
        try:
            self.render(must_fit=True)
        except ContextOverflowError as error:
            return error
        return None

    # Tools ------------------------------------------------------------------------------------------

    def use_tools(self, tools: tuple[Tool, ...], call: CallTool | None) -> None:
        """Offers these tools to the model from now on; `call` runs them."""
        self._tools, self._call = tools, call
        self._send_tools()

    def _send_tools(self) -> None:
        # A model in this process has a small window, and the built-in model cannot use tools.
        own = () if self.model.runs_here else (RECALL_TOOL,)
        self.context.use_tools((*self._tools, *own) or None)

    # Turns ------------------------------------------------------------------------------------------

    async def answer(
        self, allow: Allow, *, category: str = MAIN
    ) -> AsyncIterator[TurnEvent | ToolCalled | CallsStopped]:
        """Yields the model's answer to the conversation; runs the tools it calls and asks it again.

        After `MOST_STEPS` answers with calls it is not asked again, and the last event is `CallsStopped`.
        """
        open_model = self.open_model
        try:
            for _ in range(MOST_STEPS):
                stream = open_model.client.stream(
                    self.context,
                    category=category,
                    system_prompt_override=open_model.prompt,
                    compress=open_model.compress,
                    max_output=self.max_answer,
                    tell_retries=True,
                )
                async with aclosing(stream) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
                if not self.context.waiting:
                    return
                for call in calls_of(self.context.turns[-1]):
                    yield await self._call_tool(
                        call["id"], call["function"]["name"], arguments_text(call), allow
                    )
            yield CallsStopped(MOST_STEPS)
        finally:
            self.interrupt()

    def interrupt(self) -> None:
        """Ends open calls with the result `[interrupted]`; if the store fails, the next turn does it."""
        with suppress(StoreError), limit_waiting(GRACE):
            self.context.interrupt()

    async def _call_tool(self, identity: str, name: str, arguments: str, allow: Allow) -> ToolCalled:
        own = name == RECALL_TOOL["function"]["name"]
        allowed = own or await allow(name, arguments)
        if not allowed:
            result = DECLINED
        elif own:
            result = self.context.answer_recall(_object(arguments))
        elif self._call is None:
            result = f"error: the tool {name!r} is no longer available"
        else:
            result = await self._call(name, arguments)
        answer = {"role": "tool", "tool_call_id": identity, "content": result}
        await to_the_end(partial(self.context.append, answer))  # the tool has run: its result must be saved
        await self.count_ahead()  # so that the counts that are shown next include the result
        return ToolCalled(name, arguments, result, allowed)


def find_session(kept: Store, beginning: str) -> str:
    """Returns the name of the only conversation that begins with `beginning`; if empty, of the latest one.

    Raises ConfigurationError if no conversation or more than one begins so.
    """
    names = [each.id for each in kept.sessions(MOST_SESSIONS if beginning else 1)]
    if beginning in names:
        return beginning
    found = [name for name in names if name.startswith(beginning)]
    if len(found) != 1:
        number = f"{len(found)} sessions begin" if found else "no session begins"
        raise ConfigurationError(f"{number} with {beginning!r}: :sessions lists all")
    return found[0]


def _object(arguments: str) -> Mapping[str, object]:
    import orjson  # noqa: PLC0415 - only needed for a call of the recall tool

    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
