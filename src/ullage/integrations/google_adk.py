"""Google's Agent Development Kit: a plugin that fits each request before it goes to the model.

The request is made anew for each call, so the events of the session stay complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.fitter import BodyFitter, run_aside

try:
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai import types
    from pydantic import TypeAdapter
except ImportError as error:
    raise MissingHost("Google's ADK", "google-adk>=2", str(error)) from error

if TYPE_CHECKING:
    from typing import Unpack

    from google.adk.models.llm_request import LlmRequest

    from ullage.integrations.fitter import FitterOptions


class FitPlugin(BasePlugin):
    """Keeps the requests of agents within `limit` input tokens, less `reserve` if both are given."""

    def __init__(self, *, name: str = "ullage", **options: Unpack[FitterOptions]) -> None:
        super().__init__(name)
        self._fitter = BodyFitter("gemini", **options)

    async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> None:  # noqa: ARG002 - the plugin's interface
        """Replaces the contents of the request, and its system instruction, by ones that fit."""
        contents = [_dump_value(content) for content in llm_request.contents]
        done = await run_aside(self._fitter.fit, _read(llm_request, contents))
        if not done.changed:
            return
        owners = {id(dumped): own for dumped, own in zip(contents, llm_request.contents, strict=True)}
        llm_request.contents = [
            owners[id(each)] if id(each) in owners else types.Content.model_validate(each)
            for each in done.body["contents"]
        ]
        system = done.body.get("systemInstruction")
        if system is not None:
            is_text = isinstance(llm_request.config.system_instruction, str | None)
            llm_request.config.system_instruction = (
                "\n\n".join(part["text"] for part in system["parts"])
                if is_text
                else types.Content.model_validate(system)
            )


def _dump_value(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def _read(request: LlmRequest, contents: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the request as a body of Gemini's API."""
    body: dict[str, Any] = {"contents": contents}
    config = request.config
    if request.model:
        body["model"] = request.model
    if parts := _instruction_parts(config.system_instruction):
        body["systemInstruction"] = {"parts": parts}
    tools = [_dump_value(tool) for tool in config.tools or () if isinstance(tool, types.Tool)]
    answer = config.response_json_schema or config.response_schema
    if answer is not None:  # the model reads it in some form
        declared = {"name": "answer", "parametersJsonSchema": _schema(answer)}
        tools.append({"functionDeclarations": [declared]})
    if tools:
        body["tools"] = tools
    return body


def _instruction_parts(given: Any) -> list[dict[str, Any]]:
    """Returns the parts of an instruction: a text, a content, a part, or a list of texts and parts."""
    held = given.parts if isinstance(given, types.Content) else given
    listed = held if isinstance(held, list) else [held]
    known = [part for part in listed if part and isinstance(part, str | types.Part)]
    return [{"text": part} if isinstance(part, str) else _dump_value(part) for part in known]


def _schema(answer: Any) -> Any:
    """Returns the schema of an answer, which a program gives as a schema or as a type."""
    if isinstance(answer, dict):
        return answer
    return _dump_value(answer) if isinstance(answer, types.Schema) else TypeAdapter(answer).json_schema()
