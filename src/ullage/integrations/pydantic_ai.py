"""Pydantic AI: a capability that fits each request of an agent, without a trace in its history."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.fitter import HistoryFitter, run_aside
from ullage.integrations.pydantic_messages import find_changed_instructions, read_history, restore_history

try:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import InstructionPart
except ImportError as error:
    raise MissingHost("Pydantic AI", "pydantic-ai-slim>=2.60", str(error)) from error

if TYPE_CHECKING:
    from typing import Unpack

    from pydantic_ai import RunContext
    from pydantic_ai.models import ModelRequestContext

    from ullage.fitting import Fitted
    from ullage.integrations.fitter import FitterOptions
    from ullage.integrations.pydantic_messages import Place
    from ullage.messages import Message


class FitCapability(AbstractCapability[Any]):
    """Keeps the requests of an agent within `limit` input tokens, less `reserve` if both are given.

    Without a limit, the table of models has the window of the model that serves the request.
    """

    def __init__(self, **options: Unpack[FitterOptions]) -> None:
        super().__init__()
        self._fitter = HistoryFitter(**options)

    async def prepare_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the host's signature
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Returns a request that fits; the given one if nothing had to change."""
        return await run_aside(self._fit, request_context)

    def _fit(self, request: ModelRequestContext) -> ModelRequestContext:
        parameters = request.model_request_parameters
        told = [part.content for part in parameters.instruction_parts or ()]
        instructions = "\n\n".join(filter(None, [*told, find_changed_instructions(request.messages)]))
        given: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
        places: list[Place | None] = [None] * len(given)
        for place, message in read_history(request.messages):
            places.append(place)
            given.append(message)
        fitted = self._fitter.fit(given, _tools(parameters), model=request.model.model_name)
        if not fitted.changed:
            return request
        return replace(
            request,
            messages=restore_history(request.messages, given, places, fitted),
            model_request_parameters=_with_digest(parameters, instructions, places, fitted),
        )


def _with_digest(parameters: Any, instructions: str, places: list[Place | None], fitted: Fitted[Any]) -> Any:
    """Returns the parameters with the text that fitting put behind the instructions, as a part of its own."""
    source = fitted.sources[0]
    if source is not None and places[source] is not None:
        return parameters  # the text stands in a system prompt of the history
    added = str(fitted.messages[0]["content"]).removeprefix(instructions).strip()
    if not added:
        return parameters
    parts = [*(parameters.instruction_parts or ()), InstructionPart(added, dynamic=True)]
    return replace(parameters, instruction_parts=parts)


def _tools(parameters: Any) -> list[dict[str, Any]]:
    """Returns the tools of a request. The schema of an answer counts as one, whichever way it is sent."""
    schemas = [
        (tool.name, tool.description, tool.parameters_json_schema)
        for tool in (*parameters.function_tools, *parameters.output_tools)
    ]
    if (answer := parameters.output_object) is not None:
        schemas.append((answer.name or "answer", answer.description, answer.json_schema))
    return [
        {
            "type": "function",
            "function": {"name": name, "description": description or "", "parameters": schema},
        }
        for name, description, schema in schemas
    ]
