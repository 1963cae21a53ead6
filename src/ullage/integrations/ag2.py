"""AG2: a middleware around each call of the model. The stream of the conversation keeps every event."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.ag2_events import fit_events
from ullage.integrations.fitter import HistoryFitter, run_aside

try:
    from ag2.middleware import BaseMiddleware
    from ag2.tools.final import FunctionTool
except ImportError as error:
    raise MissingHost("AG2", "ag2>=1.2", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from ullage.integrations.fitter import FitterOptions


class FitEvents:
    """Keeps the requests of an agent within `limit` input tokens, less `reserve` if both are given.

    A middleware of AG2 sees neither the model nor the tools. Name the model, and give `tools` as the agent
    has them.
    """

    def __init__(self, *, tools: Iterable[Any] = (), **options: Unpack[FitterOptions]) -> None:
        self._fitter = HistoryFitter(**options)
        functions = [FunctionTool.ensure_tool(tool).schema.function for tool in tools]
        self._tools = [
            {
                "type": "function",
                "function": {
                    "name": each.name,
                    "description": each.description,
                    "parameters": each.parameters,
                },
            }
            for each in functions
        ]

    def __call__(self, event: Any, context: Any) -> BaseMiddleware:
        """Returns the middleware of one turn."""
        return _TurnMiddleware(event, context, self._fitter, self._tools)


class _TurnMiddleware(BaseMiddleware):
    """Calls the model with events and a prompt that fit."""

    def __init__(self, event: Any, context: Any, fitter: HistoryFitter, tools: list[dict[str, Any]]) -> None:
        super().__init__(event, context)
        self._fitter, self._tools = fitter, tools

    async def on_llm_call(self, call_next: Any, events: Sequence[Any], context: Any) -> Any:
        prompt = "\n".join(context.prompt)
        done = await run_aside(fit_events, self._fitter, list(events), prompt, self._tools)
        if done is None:
            return await call_next(events, context)
        fitted = context if done.prompt == prompt else replace(context, prompt=[done.prompt])
        return await call_next(done.events, fitted)
