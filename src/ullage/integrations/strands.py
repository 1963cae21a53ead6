"""Strands Agents: a middleware around the call of the model.

A conversation manager would edit the agent's messages. The middleware gets copies, so the agent and its
session keep every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.fitter import BodyFitter, run_aside

try:
    from strands.middleware import InvokeModelStage
except ImportError as error:
    raise MissingHost("Strands Agents", "strands-agents>=1.60", str(error)) from error

if TYPE_CHECKING:
    from typing import Unpack

    from strands import Agent
    from strands.middleware import InvokeModelContext

    from ullage.integrations.fitter import FitterOptions


def fit_agent(agent: Agent, **options: Unpack[FitterOptions]) -> Agent:
    """Adds a middleware to the agent that keeps its requests within `limit` tokens; returns the agent."""
    fitter = BodyFitter("bedrock.converse", **options)

    async def fit(context: InvokeModelContext) -> InvokeModelContext:
        done = await run_aside(fitter.fit, _read(context))
        if not done.changed:
            return context
        system = done.body.get("system") or None
        if system is not None and not isinstance(context.system_prompt, list):
            system = "\n\n".join(block["text"] for block in system)
        return context.replace(messages=done.body["messages"], system_prompt=system)

    agent.add_middleware(InvokeModelStage.Input, fit)
    return agent


def _read(context: InvokeModelContext) -> dict[str, Any]:
    """Returns the request as a body of Bedrock's Converse API, whose messages Strands uses."""
    system, model = context.system_prompt, getattr(context.model, "config", {}).get("model_id")
    body: dict[str, Any] = {"messages": context.messages}
    if model is not None:
        body["modelId"] = model
    if system:
        body["system"] = [{"text": system}] if isinstance(system, str) else system
    if context.tool_specs:
        body["toolConfig"] = {"tools": [{"toolSpec": spec} for spec in context.tool_specs]}
    return body
