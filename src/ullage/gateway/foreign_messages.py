"""The messages of a request that goes to another API: each in a form that the servers of that API take."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidRequest
from ullage.messages import SYSTEM_ROLES
from ullage.wire.api import HISTORIES
from ullage.wire.parts import listed, text_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ullage.messages import Message
    from ullage.target import ApiName
    from ullage.wire import Request

SEALED = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Parts that the writer of another API leaves out."""
INVALID_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that Anthropic refuses in the id of a call."""
ATTACHED = "The tool returned what the next message shows."


def adapt_messages(request: Request, target: ApiName) -> Request:
    """Returns a request with messages for another API; raises InvalidRequest, which names a part, if one
    cannot be said there."""
    for place, message in enumerate(request.messages):
        _check_parts(request, place, message, target)
    messages: Iterable[Message] = map(_with_plain_parts, map(_with_refusal_as_text, request.messages))
    for step in STEPS.get(target, ()):
        messages = step(messages)
    return replace(request, messages=tuple(messages))


def _check_parts(request: Request, place: int, message: Message, target: ApiName) -> None:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        lost = _name_lost_part(part, target)
        if lost:
            raise InvalidRequest(
                f"message {place + 1} has {lost}, which the model's server cannot read: remove it, or use "
                "another model",
                api=str(request.api),
            )


def _name_lost_part(part: Mapping[str, Any], target: ApiName) -> str:
    """Returns the name of a part that would be lost; empty if it can be said."""
    kind = part.get("type")
    if kind in HISTORIES:
        return f"a part of the type {kind!r}"
    if kind == "image_url" and not part["image_url"].get("url"):
        return "an image that is a file at its provider"
    if kind == "file":
        file = part["file"]
        if not file.get("file_data") and not file.get("file_url"):
            return "a file that is stored at its provider"
        if target == "openai.chat" and not file.get("file_data"):
            return "a file by its address"
    return ""


def _with_refusal_as_text(message: Message) -> Message:
    """Returns a message with the words of a refusal as its content, if it has no other."""
    refusal = message.get("refusal")
    if message.get("content") or not isinstance(refusal, str):
        return message
    return {**message, "content": refusal}


def _with_plain_parts(message: Message) -> Message:
    """Returns a message with words in place of the parts that only Anthropic's API has."""
    content = message.get("content")
    if not isinstance(content, list) or not any(part.get("type") in PLAIN for part in content):
        return message
    plain = [PLAIN[kind](part) if (kind := part.get("type")) in PLAIN else part for part in content]
    return {**message, "content": plain}


def _write_tool_reference(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the words for a tool that a search has found; its definition is among the tools."""
    return text_part(f"The tool {part.get('tool_name')} can be called now.")


def _quote_document(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a document that is text, with its title and its context before the text."""
    about = [part[name] for name in ("title", "context") if isinstance(part.get(name), str) and part[name]]
    return text_part("\n\n".join([*about, str(part.get("text", ""))])) if about else part


PLAIN: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "tool_reference": _write_tool_reference,
    "document": _quote_document,
}
"""The type of a part → what says it in the other APIs."""


# The chat API


def _one_system_message(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields one system message first, and later ones as words of the user.

    The templates of many local models take a system message only at the beginning, and no `developer`.
    """
    first: list[Message] = []
    has_begun = False
    for message in messages:
        if message["role"] not in SYSTEM_ROLES:
            if first:
                yield _join_messages(first)
                first = []
            has_begun = True
            yield message
        elif has_begun:
            inner = [text_part("<system>"), *listed(message.get("content")), text_part("</system>")]
            yield {"role": "user", "content": _with_lines(inner)}
        else:
            first.append(message)
    if first:
        yield _join_messages(first)


def _join_messages(messages: Sequence[Message]) -> Message:
    if len(messages) == 1 and isinstance(messages[0].get("content"), str):
        return {"role": "system", "content": messages[0]["content"]}
    return {"role": "system", "content": _with_lines([p for m in messages for p in listed(m.get("content"))])}


def _with_lines(parts: Sequence[Mapping[str, Any]]) -> Any:
    """Returns parts that are all text as one string, because some servers join them without a space."""
    if all(part.get("type") == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return list(parts)


def _one_user_message(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields the messages; those of the user that follow each other are one."""
    held: Message | None = None
    for message in messages:
        if held is not None and message["role"] == "user":
            parts = [*listed(held.get("content")), *listed(message.get("content"))]
            held = {"role": "user", "content": _with_lines(parts)}
            continue
        if held is not None:
            yield held
            held = None
        if message["role"] == "user":
            held = message
        else:
            yield message
    if held is not None:
        yield held


def _text_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields the messages; images in results follow them as a message of the user.

    In this API a result is text, and nothing marks it as an error.
    """
    attached: list[Mapping[str, Any]] = []
    for message in messages:
        if message["role"] != "tool":
            if attached:
                yield {"role": "user", "content": attached}
                attached = []
            yield message
            continue
        parts = listed(message.get("content"))
        others = [part for part in parts if part.get("type") not in {"text", "document"}]
        attached += others
        texts = [str(part.get("text", "")) for part in parts if part not in others]
        text = "\n\n".join(texts) if texts or not others else ATTACHED
        if message.get("is_error") and "error" not in text.lower():
            text = f"Error: {text}"
        yield {"role": "tool", "tool_call_id": message["tool_call_id"], "content": text}
    if attached:
        yield {"role": "user", "content": attached}


# Anthropic's messages


def _without_empty(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields the messages without turns of the assistant that would be empty, which this API refuses."""
    for message in messages:
        content = message.get("content")
        is_empty = not content or (
            isinstance(content, list) and all(part.get("type") in SEALED for part in content)
        )
        if message["role"] != "assistant" or message.get("tool_calls") or not is_empty:
            yield message


def _with_valid_ids(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields the messages with ids of calls that this API takes."""
    for message in messages:
        if message["role"] == "tool":
            yield {**message, "tool_call_id": _valid_id(message["tool_call_id"])}
        elif calls := message.get("tool_calls"):
            yield {**message, "tool_calls": [{**call, "id": _valid_id(call["id"])} for call in calls]}
        else:
            yield message


def _valid_id(given: str) -> str:
    """Returns an id that Anthropic takes; a changed one has a hash, so that no two become the same."""
    valid = INVALID_IN_ID.sub("_", given)
    if valid == given:
        return given
    digest = hashlib.blake2b(given.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{valid}_{digest}"


STEPS: Mapping[ApiName, tuple[Callable[[Iterable[Message]], Iterator[Message]], ...]] = {
    "openai.chat": (_text_results, _one_system_message, _one_user_message),
    "anthropic.messages": (_without_empty, _with_valid_ids),
}
"""The steps for the messages of each API; the responses API takes all that `wire.write` makes."""
