"""Reads the tools and the results of a server: foreign text, which is cleaned and limited first."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.text import remove_unsafe
from ullage.tokens.counter import counter_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mcp_types

    from ullage.messages import Tool
    from ullage.target import ModelLike

MAX_DESCRIPTION = 4_000
MAX_SCHEMA = 64_000
"""Most characters of a tool's schema; a longer one is left out, and the model may then give any arguments."""
MAX_NAME = 64

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool of a server, as the model sees it."""

    name: str
    """The name for the model, `server__tool`, valid for every provider."""
    original: str
    """The server's own name of the tool."""
    read_only: bool
    """True if the server says that the tool changes nothing; not verified, so the user is asked anyway."""
    definition: Tool


def exposed_name(server: str, tool: str) -> str:
    """Returns `server__tool` in characters that every provider accepts; a changed name gets a hash."""
    plain = f"{server}__{tool}"
    name = _UNSAFE.sub("_", plain)
    if name == plain and len(name) <= MAX_NAME:
        return name
    letters = hashlib.sha256(tool.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{letters}"


def result_text(result: mcp_types.CallToolResult) -> str:
    """Returns a result as one text: media and links are named, an error begins with `error: `."""
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    return f"error: {text or 'the tool failed and did not say why'}" if result.is_error else text


def _part(part: mcp_types.ContentBlock) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            return f"[{part.type}: {part.mime_type}, {len(part.data) * 3 // 4} bytes]"
        case "resource_link":
            return f"[resource {part.name}: {part.uri}]"
        case "resource":
            held = part.resource
            text = getattr(held, "text", None)
            return f"[resource {held.uri}]" + ("" if text is None else f"\n{text}")


def offer(server: str, tool: mcp_types.Tool) -> Offered:
    """Returns a tool of a server in the form that the model sees."""
    name = exposed_name(server, tool.name)
    description = remove_unsafe(tool.description or tool.title or "")
    if len(description) > MAX_DESCRIPTION:
        description = description[:MAX_DESCRIPTION] + " [cut]"
    schema = {key: _clean_value(value) for key, value in tool.input_schema.items() if key != "$schema"}
    if len(json.dumps(schema)) > MAX_SCHEMA:
        schema = {}
    # Some providers reject an object schema without `properties`.
    parameters = {"type": "object", "properties": {}, **schema}
    return Offered(
        name=name,
        original=tool.name,
        read_only=bool(tool.annotations and tool.annotations.read_only_hint),
        definition={
            "type": "function",
            "function": {"name": name, "description": description, "parameters": parameters},
        },
    )


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return remove_unsafe(value)
    if isinstance(value, Mapping):
        return {key: _clean_value(held) for key, held in value.items()}
    return [_clean_value(held) for held in value] if isinstance(value, list) else value


def schema_tokens(tools: Sequence[Tool], model: ModelLike) -> int:
    """Returns the tokens that these tools add to a request without tools."""
    counter = counter_for(model)
    return counter.request(tools=tools).tokens - counter.request().tokens
