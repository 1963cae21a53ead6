"""Writes a request for Gemini's countTokens: texts, calls, results and tools. Media raise InvalidRequest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidRequest
from ullage.messages import RESULT_ROLES, SYSTEM_ROLES, answered_id, arguments_text, calls_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.messages import Message, Tool

API = "gemini.count_tokens"


def count_body(model: str, messages: Sequence[Message], tools: Sequence[Tool]) -> dict[str, Any]:
    """Returns the body of countTokens for these messages and tools."""
    inner: dict[str, Any] = {"model": f"models/{model}", "contents": _contents(messages)}
    system = [part for message in messages if message["role"] in SYSTEM_ROLES for part in _texts(message)]
    if system:
        inner["systemInstruction"] = {"parts": system}
    if tools:
        inner["tools"] = [{"functionDeclarations": [dict(tool["function"]) for tool in tools]}]
    return {"generateContentRequest": inner}


def _contents(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Returns the turns; turns of one role in a row are joined, because Gemini's roles must alternate."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            continue
        role = "model" if message["role"] == "assistant" else "user"
        parts = [*_parts(message, names)]
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    return contents


def _parts(message: Message, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    if message["role"] in RESULT_ROLES:
        name = names.get(answered_id(message), "function")
        text = "".join(part["text"] for part in _texts(message))
        yield {"functionResponse": {"name": name, "response": {"result": text}}}
        return
    yield from _texts(message)
    for call in calls_of(message):
        name = call["function"]["name"]
        names[call.get("id", "")] = name
        yield {"functionCall": {"name": name, "args": _arguments(arguments_text(call))}}


def _texts(message: Message) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    for part in [content] if isinstance(content, str) else content or ():
        text = part if isinstance(part, str) else part.get("text")
        if not isinstance(text, str):
            raise InvalidRequest("media cannot be counted here", api=API, field="content")
        yield {"text": text}


def _arguments(text: str) -> dict[str, Any]:
    """Returns arguments as the object that Gemini requires; any other value is wrapped in an object."""
    import orjson  # noqa: PLC0415 - only a call pays for it

    try:
        found = orjson.loads(text or "{}")
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"arguments": found}
