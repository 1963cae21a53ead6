"""Translates a request into another API: Claude Code on a server of chat completions, and the like.

`wire` reads and writes the messages and the tools. Here the options follow, and everything that the other API
cannot say is refused with its name. The answer is always asked for as a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage import wire
from ullage.broker.dialects.anthropic import MAX_OUTPUT
from ullage.broker.dialects.openai_chat import limit_field
from ullage.errors import InvalidRequest
from ullage.gateway.foreign_messages import adapt_messages
from ullage.gateway.foreign_tools import adopt_tools
from ullage.gateway.limits import FIELDS
from ullage.gateway.translated_fields import check_fields
from ullage.models import model_info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.gateway.tool_names import ToolNames
    from ullage.target import ApiName

EFFORTS: Mapping[ApiName, tuple[str, ...]] = {
    "openai.chat": ("reasoning_effort",),
    "openai.responses": ("reasoning", "effort"),
    "anthropic.messages": ("output_config", "effort"),
}
"""The place of the effort in each API."""
EFFORT_NAMES: Mapping[ApiName, Mapping[str, str]] = {
    "openai.chat": {"max": "xhigh"},
    "openai.responses": {"max": "xhigh"},
    "anthropic.messages": {"none": "low", "minimal": "low", "xhigh": "max"},
}
"""The nearest effort of an API for one that it does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A request in another API, and the facts that its answer is translated back with."""

    source: ApiName
    """The client's API."""
    target: ApiName
    """The upstream's API."""
    body: dict[str, Any]
    """The request for the upstream."""
    asked: Mapping[str, Any]
    """The client's request."""
    names: ToolNames
    left_out: tuple[str, ...]
    """The fields that were left out because they are only advice, and the tools that only a provider has."""


def translate(body: Mapping[str, Any], source: ApiName, target: ApiName, model: str) -> Translation:
    """Returns a request for another API; raises InvalidRequest for a field without an equivalent.

    `model` is the upstream's name of the model.
    """
    left_out = tuple(check_fields(body, source, target))
    adopted = adopt_tools(wire.read(body, source))
    request = adapt_messages(adopted.request, target)
    written = wire.write(request, target)
    written |= {"model": model, "stream": True}
    _put_effort(written, _effort(body, source), target)
    _FINISH[target](written, body, model)
    return Translation(
        source=source,
        target=target,
        body=written,
        asked=body,
        names=adopted.names,
        left_out=left_out + adopted.left_out + _names(adopted.request),
    )


def _names(request: wire.Request) -> tuple[str, ...]:
    """Returns the field of the names of speakers, which only chat completions has, if a message has one."""
    has_names = any(message["role"] != "tool" and message.get("name") for message in request.messages)
    return ("messages[].name",) if has_names else ()


def _effort(body: Mapping[str, Any], source: ApiName) -> Any:
    value: Any = body
    for step in EFFORTS[source]:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _put_effort(written: dict[str, Any], effort: Any, target: ApiName) -> None:
    if not isinstance(effort, str):
        return
    *holders, last = EFFORTS[target]
    holder = written
    for step in holders:
        holder = holder.setdefault(step, {})
    holder[last] = EFFORT_NAMES[target].get(effort, effort)


def _finish_chat(written: dict[str, Any], _: Mapping[str, Any], model: str) -> None:
    """Asks for the usage, and names the output limit as the model knows it."""
    written["stream_options"] = {"include_usage": True}
    for name in FIELDS["openai.chat"]:
        if name in written:
            written[limit_field(model)] = written.pop(name)
            break


def _finish_responses(written: dict[str, Any], _: Mapping[str, Any], __: str) -> None:
    """Asks the provider to store nothing, because the client sends the whole history each time."""
    written["store"] = False
    for tool in written.get("tools", ()):
        tool.setdefault("strict", False)  # the default of the two other APIs


def _finish_messages(written: dict[str, Any], body: Mapping[str, Any], model: str) -> None:
    """Sets the output limit, which this API requires."""
    given = body.get("response_format") or (body.get("text") or {}).get("format")
    if isinstance(given, dict) and given.get("type") == "json_object":
        raise InvalidRequest(
            "the model's server returns JSON only for a schema: give one as 'json_schema'",
            api="anthropic.messages",
            field="response_format" if "response_format" in body else "text.format",
        )
    info = model_info(model)
    known = None if info is None else info.max_output
    written.setdefault("max_tokens", MAX_OUTPUT if known is None else known)


_FINISH: Mapping[ApiName, Callable[[dict[str, Any], Mapping[str, Any], str], None]] = {
    "openai.chat": _finish_chat,
    "openai.responses": _finish_responses,
    "anthropic.messages": _finish_messages,
}
