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
        contents = [_dumped(content) for content in llm_request.contents]
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
            llm_request.config.system_instruction = "\n\n".join(part["text"] for part in system["parts"])


def _dumped(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def _read(request: LlmRequest, contents: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the request as a body of Gemini's API."""
    body: dict[str, Any] = {"contents": contents}
    config = request.config
    if request.model:
        body["model"] = request.model
    if isinstance(config.system_instruction, str) and config.system_instruction:
        body["systemInstruction"] = {"parts": [{"text": config.system_instruction}]}
    if config.tools:
        body["tools"] = [_dumped(tool) for tool in config.tools if isinstance(tool, types.Tool)]
    return body
