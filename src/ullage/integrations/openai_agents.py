"""OpenAI Agents: a filter for the input of each model call. Unchanged items are the given objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.fitter import BodyFitter, run_aside

try:
    from agents import (
        AgentOutputSchema,
        AgentOutputSchemaBase,
        FunctionTool,
        Handoff,
        RunContextWrapper,
        handoff,
    )
    from agents.models import get_default_model
    from agents.run import ModelInputData
except ImportError as error:
    raise MissingHost("OpenAI Agents", "openai-agents>=0.24", str(error)) from error

if TYPE_CHECKING:
    from typing import Unpack

    from agents.run import CallModelData

    from ullage.integrations.fitter import FitterOptions


class FitFilter:
    """Keeps the requests of agents within `limit` input tokens, less `reserve` if both are given.

    It is the `call_model_input_filter` of a `RunConfig`. Without a limit, the table of models has the window
    of the agent's model, or of the SDK's default model if the agent names none. If the run names another
    model, name it here too.
    """

    def __init__(self, **options: Unpack[FitterOptions]) -> None:
        self._fitter = BodyFitter("openai.responses", **options)
        self._needs_window = options.get("limit") is None and options.get("model") is None

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Returns the instructions and items to send; the given object if nothing had to change."""
        given = data.model_data
        body = {
            "model": self._model_name(data.agent.model),
            "input": given.input,
            "tools": await _tools(data),
            **({} if given.instructions is None else {"instructions": given.instructions}),
            **_answer_format(data.agent.output_type),
        }
        done = await run_aside(self._fitter.fit, body)
        if not done.changed:
            return given
        return ModelInputData(input=list(done.body["input"]), instructions=done.body.get("instructions"))

    def _model_name(self, model: Any) -> str | None:
        """Returns the name of the model of an agent; None if it is not known and not needed."""
        name = model if isinstance(model, str) else getattr(model, "model", None)
        if name is None and self._needs_window:
            name = get_default_model()
        return name if isinstance(name, str) else None


async def _tools(data: CallModelData[Any]) -> list[dict[str, Any]]:
    """Returns the tools and handoffs of the agent that the model reads as functions."""
    functions = [
        (tool.name, tool.description, tool.params_json_schema)
        for tool in await data.agent.get_all_tools(RunContextWrapper(context=data.context))
        if isinstance(tool, FunctionTool)
    ]
    for each in data.agent.handoffs:
        made = each if isinstance(each, Handoff) else handoff(each)
        functions.append((made.tool_name, made.tool_description, made.input_json_schema))
    return [
        {"type": "function", "name": name, "description": description, "parameters": schema}
        for name, description, schema in functions
    ]


def _answer_format(output_type: Any) -> dict[str, Any]:
    """Returns the field of a body that has the schema of the answer; empty if the answer is text."""
    if output_type is None or output_type is str:
        return {}
    made = output_type if isinstance(output_type, AgentOutputSchemaBase) else AgentOutputSchema(output_type)
    schema = {"type": "json_schema", "name": "final_output", "schema": made.json_schema()}
    return {"text": {"format": schema}}
