"""LangChain: a middleware for agents, and `trim_messages` for chains.

The middleware wraps the call of the model, so the state of the agent keeps every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError, MissingHost
from ullage.integrations.fitter import HistoryFitter, run_aside
from ullage.integrations.langchain_messages import fit_messages, model_name

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.structured_output import ToolStrategy
    from langchain_core.messages import SystemMessage, convert_to_messages
    from langchain_core.runnables import RunnableLambda
except ImportError as error:
    raise MissingHost("LangChain", "langchain>=1", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Unpack

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.messages import BaseMessage

    from ullage.fitting import FitPolicy
    from ullage.integrations.fitter import FitterOptions

ALWAYS: dict[str, tuple[Any, ...]] = {
    "strategy": ("last",),
    "include_system": (True,),
    "start_on": (None, "human"),
    "end_on": (None, ("human", "tool"), ["human", "tool"]),
    "allow_partial": (True,),
    "text_splitter": (None,),
}
"""Options of LangChain's own `trim_messages` → the values that say what fitting always does."""


class FitMiddleware(AgentMiddleware):
    """Keeps the requests of an agent within `limit` input tokens, less `reserve` if both are given.

    Without a limit, the table of models has the window of the agent's model.
    """

    def __init__(self, **options: Unpack[FitterOptions]) -> None:
        super().__init__()
        self._fitter = HistoryFitter(**options)

    def wrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
    ) -> ModelResponse:
        """Calls the model with a request that fits."""
        return handler(self._fit(request))

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Calls the model with a request that fits; the event loop runs on meanwhile."""
        return await handler(await run_aside(self._fit, request))

    def _fit(self, request: ModelRequest) -> ModelRequest:
        system = request.system_message
        messages = [*([] if system is None else [system]), *request.messages]
        tools = [*request.tools, *_schemas(request.response_format)]
        fitted = fit_messages(self._fitter, messages, tools, model_name(request.model))
        if fitted is messages:
            return request
        if isinstance(fitted[0], SystemMessage):  # the first of the messages, or the one beside them
            system, fitted = fitted[0], fitted[1:]
        return request.override(system_message=system, messages=fitted)


def _schemas(response_format: Any) -> list[dict[str, Any]]:
    """Returns the schemas of a structured answer as tools: the model reads them in one form or the other."""
    if response_format is None:
        return []
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.json_schema},
        }
        for spec in ToolStrategy(response_format.schema).schema_specs
    ]


def trim_messages(
    messages: Iterable[Any] | None = None,
    *,
    max_tokens: int,
    token_counter: Any = None,
    tools: Iterable[Any] = (),
    policy: FitPolicy | None = None,
    **options: Any,
) -> Any:
    """Returns messages that fit in `max_tokens`; without messages, a Runnable that does so.

    It stands in for LangChain's function of this name. `token_counter` is a chat model or the name of one.
    Other options of LangChain may be given if they ask for what fitting does in any case: it keeps the newest
    messages and the system prompt, and begins with the user.
    """
    for name, value in options.items():
        if name not in ALWAYS or value not in ALWAYS[name]:
            advice = f"leave {name} out" if name in ALWAYS else f"there is no option {name}"
            raise ConfigurationError(f"trim_messages cannot do {name}={value!r}; {advice}")
    model = token_counter if isinstance(token_counter, str) else model_name(token_counter)
    if token_counter is not None and model is None:
        raise ConfigurationError(
            "token_counter must be a chat model or the name of one; Ullage counts by itself"
        )
    fitter = HistoryFitter(model=model, limit=max_tokens, policy=policy)

    def trim(given: Iterable[Any]) -> list[BaseMessage]:
        return fit_messages(fitter, convert_to_messages(list(given)), tools)

    return RunnableLambda(trim, name="trim_messages") if messages is None else trim(messages)
