"""Fits the events of AG2: events that did not change are the given objects, others are copies.

Only some events are sent to the model as messages. The others, such as the thoughts of a model, stay with the
event that follows them, or go with it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.errors import MissingHost
from ullage.integrations.fitter import MessageOrigin, join_results, restore, restore_parts
from ullage.integrations.media_parts import media_part, opaque_part

try:
    from ag2.compact import CompactionSummary
    from ag2.events import (
        BinaryInput,
        DataInput,
        FileIdInput,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        TextInput,
        ToolResult,
        ToolResultsEvent,
        UrlInput,
    )
except ImportError as error:
    raise MissingHost("AG2", "ag2>=1.2", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.integrations.fitter import HistoryFitter

SENT = (ModelRequest, ModelResponse, ToolResultsEvent, CompactionSummary)
"""Events that are messages."""


class FittedEvents(NamedTuple):
    """Events that fit, and the prompt beside them."""

    events: list[Any]
    prompt: str


def fit_events(
    fitter: HistoryFitter, events: list[Any], prompt: str, tools: Sequence[Any]
) -> FittedEvents | None:
    """Returns events and a prompt that fit; None if nothing had to change."""
    sent = [event for event in events if isinstance(event, SENT)]
    read = [(MessageOrigin(prompt), {"role": "system", "content": prompt})] if prompt else []
    read += [each for event in sent for each in _read(event)]
    given = [message for _, message in read]
    fitted = fitter.fit(given, tools)
    if not fitted.changed:
        return None
    restored: list[MessageOrigin] = restore(fitted, given, [origin for origin, _ in read], _remake)
    new_prompt = prompt
    if isinstance(restored[0].message, str):
        new_prompt, restored = restored[0].message, restored[1:]
    joined = join_results(restored, _results, _with_results)
    places = [source for source in fitted.sources if source is not None]
    kept = {id(read[place][0].message) for place in places}
    return FittedEvents(_with_others(events, joined, kept), new_prompt)


def _with_others(events: list[Any], joined: list[Any], kept: set[int]) -> list[Any]:
    """Returns the joined events, each behind the events that were in front of its original."""
    left = iter(joined)
    result: list[Any] = []
    waiting: list[Any] = []
    for event in events:
        if not isinstance(event, SENT):
            waiting.append(event)
            continue
        if id(event) in kept:
            result += [*waiting, next(left)]
        waiting = []
    return [*result, *left, *waiting]


def _read(event: Any) -> Iterator[tuple[MessageOrigin, dict[str, Any]]]:
    """Yields an event as fitting reads it: each tool result by itself."""
    if isinstance(event, ToolResultsEvent):
        for result in event.results:
            read = [_read_input(part) for part in result.result.parts]
            is_text = all(part["type"] == "text" for part in read)
            content = "\n".join(part["text"] for part in read) if is_text else read
            yield (
                MessageOrigin(event, result),
                {"role": "tool", "tool_call_id": result.parent_id, "content": content},
            )
    elif isinstance(event, ModelResponse):
        yield MessageOrigin(event), _read_answer(event)
    elif isinstance(event, CompactionSummary):
        yield MessageOrigin(event), {"role": "user", "content": event.summary}
    else:
        is_text = len(event.parts) == 1 and isinstance(event.parts[0], TextInput)
        content = event.parts[0].content if is_text else [_read_input(part) for part in event.parts]
        yield MessageOrigin(event), {"role": "user", "content": content}


def _read_answer(event: ModelResponse) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": event.content}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in event.tool_calls.calls
    ]
    return {**made, "tool_calls": calls} if calls else {**made, "content": event.content or ""}


def _read_input(part: Any) -> dict[str, Any]:
    """Returns an input as a part of a message, in the form that is counted best."""
    if isinstance(part, TextInput):
        return {"type": "text", "text": str(part.content)}
    if isinstance(part, DataInput):
        return {"type": "text", "text": orjson.dumps(part.data, default=str).decode()}
    if isinstance(part, BinaryInput):
        return media_part(str(getattr(part.media_type, "value", part.media_type)), data=part.data)
    if isinstance(part, UrlInput):
        return media_part(part.kind.value, url=part.url)
    if isinstance(part, FileIdInput):
        return media_part(None, url=part.file_id)
    return opaque_part(vars(part))


def _results(event: Any) -> list[Any]:
    return list(event.results) if isinstance(event, ToolResultsEvent) else []


def _with_results(event: Any, results: list[Any]) -> Any:
    return _copy_event(event, results=results)


def _remake(owner: MessageOrigin | None, message: Any) -> MessageOrigin:
    """Returns a copy of the owner with the new content; its inputs that are still there stay as they are."""
    content = message["content"]
    if message["role"] == "system":
        return MessageOrigin(content)
    if owner is None:
        return MessageOrigin(ModelRequest([TextInput(content)]))
    if owner.result is not None:
        old = owner.result.result
        result = ToolResult(content, final=old.final, metadata=old.metadata)
        return MessageOrigin(owner.message, _copy_event(owner.result, result=result))
    event = owner.message
    if isinstance(event, ModelResponse):
        metadata = event.metadata
        return MessageOrigin(
            _copy_event(event, message=ModelMessage(content, metadata=metadata) if content else None)
        )
    if isinstance(event, CompactionSummary):
        return MessageOrigin(_copy_event(event, summary=content))
    read = [_read_input(part) for part in event.parts]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return MessageOrigin(
        _copy_event(
            event, parts=restore_parts(parts, read, event.parts, lambda part: TextInput(part["text"]))
        )
    )


def _copy_event(event: Any, **changes: Any) -> Any:
    """Returns a copy of an event with other fields."""
    made = copy.copy(event)
    for name, value in changes.items():
        setattr(made, name, value)
    return made
