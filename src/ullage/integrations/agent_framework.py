"""Microsoft's Agent Framework: a chat middleware, which fits the messages of each call of the model.

A compaction strategy would mark and edit the messages that the agent keeps. The middleware gets a list of its
own, so the response and the session keep every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.agent_messages import fit_messages
from ullage.integrations.fitter import HistoryFitter, run_aside

try:
    from agent_framework import ChatMiddleware, FunctionTool
except ImportError as error:
    raise MissingHost("Agent Framework", "agent-framework-core>=1.23", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Unpack

    from agent_framework import ChatContext

    from ullage.integrations.fitter import FitterOptions


class FitChatMiddleware(ChatMiddleware):
    """Keeps the requests of agents within `limit` input tokens, less `reserve` if both are given.

    Without a limit, the table of models has the window of the model.
    """

    def __init__(self, **options: Unpack[FitterOptions]) -> None:
        self._fitter = HistoryFitter(**options)

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Calls the model with instructions and messages that fit."""
        options = context.options or {}
        model = options.get("model") or getattr(context.client, "model", None)
        done = await run_aside(
            fit_messages,
            self._fitter,
            list(context.messages),
            _text(options.get("instructions")),
            _functions(options),
            model if isinstance(model, str) else None,
        )
        if done is not None:
            context.messages = done.messages
            if done.instructions is not None:
                context.options = {**options, "instructions": done.instructions}
        await call_next()


def _text(instructions: Any) -> str | None:
    """Returns the instructions as one text; several are sent one after another."""
    if not instructions:
        return None
    return instructions if isinstance(instructions, str) else "\n".join(instructions)


def _functions(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the tools, and the schema of the answer: the model reads it in some form."""
    tools: Any = options.get("tools") or ()
    given = tools if isinstance(tools, list | tuple) else [tools]
    functions = [tool.to_json_schema_spec() for tool in given if isinstance(tool, FunctionTool)]
    functions += [tool for tool in given if isinstance(tool, dict) and tool.get("type") == "function"]
    answer: Any = options.get("response_format")
    if answer is not None:
        schema = answer if isinstance(answer, dict) else answer.model_json_schema()
        functions.append({"type": "function", "function": {"name": "answer", "parameters": schema}})
    return functions
