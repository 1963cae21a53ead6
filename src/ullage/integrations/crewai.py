"""CrewAI: hooks around each call of a model.

A hook can change the messages of an agent only in place. So the messages are put back after the call, or
before the next one: CrewAI asks no hook after an answer that calls tools, or after an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.errors import MissingHost
from ullage.integrations.fitter import HistoryFitter

try:
    from crewai.hooks import (
        register_after_llm_call_hook,
        register_before_llm_call_hook,
        unregister_after_llm_call_hook,
        unregister_before_llm_call_hook,
    )
    from crewai.utilities.agent_utils import convert_tools_to_openai_schema
except ImportError as error:
    raise MissingHost("CrewAI", "crewai>=1.15", str(error)) from error

if TYPE_CHECKING:
    from typing import Unpack

    from crewai.hooks import LLMCallHookContext

    from ullage.integrations.fitter import FitterOptions

MOST = 100
"""Most lists whose messages can wait to be put back; the oldest is forgotten first."""


class _Lent(NamedTuple):
    """A list of messages that holds fitted ones for a call."""

    messages: list[Any]
    fitted: list[Any]
    stored: list[Any]
    """The messages that belong in the list."""


class FitHooks:
    """Keeps all requests of CrewAI within `limit` input tokens, less `reserve` if both are given.

    The hooks are in effect from `register` to `unregister`, or inside a `with` block.
    """

    def __init__(self, **options: Unpack[FitterOptions]) -> None:
        self._fitter = HistoryFitter(**options)
        self._lent: dict[int, _Lent] = {}

    def register(self) -> FitHooks:
        """Adds the hooks to all agents that are made from now on; returns this object."""
        register_before_llm_call_hook(self._before)
        register_after_llm_call_hook(self._after)
        return self

    def unregister(self) -> None:
        """Removes the hooks."""
        unregister_before_llm_call_hook(self._before)
        unregister_after_llm_call_hook(self._after)

    def __enter__(self) -> FitHooks:
        return self.register()

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def _before(self, context: LLMCallHookContext) -> None:
        """Puts the messages that fit into the list for the time of the call."""
        messages = context.messages
        self._put_back(messages)
        model = getattr(context.llm, "model", None)
        tools, *_ = convert_tools_to_openai_schema(getattr(context.executor, "original_tools", None) or [])
        fitted = self._fitter.fit(messages, tools, model=model if isinstance(model, str) else None)
        if fitted.changed:
            if len(self._lent) >= MOST:
                self._lent.pop(next(iter(self._lent)))
            lent = _Lent(messages, list(fitted.messages), list(messages))
            self._lent[id(messages)] = lent
            messages[:] = lent.fitted

    def _after(self, context: LLMCallHookContext) -> None:
        self._put_back(context.messages)

    def _put_back(self, messages: list[Any]) -> None:
        """Puts the stored messages back, in front of those that the agent has added since."""
        lent = self._lent.pop(id(messages), None)
        if lent is None or lent.messages is not messages:
            return
        head, added = messages[: len(lent.fitted)], messages[len(lent.fitted) :]
        if len(head) == len(lent.fitted) and all(map(_is, head, lent.fitted)):
            messages[:] = [*lent.stored, *added]


def _is(one: object, other: object) -> bool:
    return one is other
