"""Writes answers of Anthropic's messages.

The reasoning of a model is shown as thinking only if the client asked for thinking, because programs that
did not ask expect the text in the first block. It has no signature, so it is left out of later requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ullage.broker.events import Reasoning, Text
from ullage.gateway.answer_writer.collected import encode_event
from ullage.gateway.tool_names import CalledTool
from ullage.wire.anthropic_reader import thinks
from ullage.wire.calls import arguments_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.gateway.answer_writer.collected import AnswerHead, AnswerPart, CollectedAnswer
    from ullage.usage import Usage

REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "refused": "refusal",
    "other": "end_turn",
}
"""Reason of an event → the stop reason of this API."""


class MessagesStream:
    """Writes the events of one answer."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._shows_thinking = thinks(head.asked.get("thinking"))
        self._index = 0
        self._open: type[AnswerPart] | None = None

    def begin(self) -> Iterator[bytes]:
        """Yields the beginning of the message, with our own count of its input."""
        usage = _usage_fields(self._head.prompt, 0, 0, 0)
        yield encode_event({"type": "message_start", "message": _message(self._head, [], None, usage)})

    def add(self, part: AnswerPart) -> Iterator[bytes]:
        """Yields the events of a part; a block ends when another kind of part begins."""
        if isinstance(part, Reasoning) and not self._shows_thinking:
            return
        if type(part) is not self._open or isinstance(part, CalledTool):
            yield from self._close()
            self._open = type(part)
            yield self._event("content_block_start", content_block=_open_block(part))
        yield self._event("content_block_delta", delta=_delta(part))

    def end(self, answer: CollectedAnswer) -> Iterator[bytes]:
        """Yields the end of the last block and of the message."""
        yield from self._close()
        delta = {"stop_reason": REASONS[answer.reason], "stop_sequence": None}
        yield encode_event({"type": "message_delta", "delta": delta, "usage": _usage(answer.used)})
        yield encode_event({"type": "message_stop"})

    def _close(self) -> Iterator[bytes]:
        if self._open is not None:
            yield self._event("content_block_stop")
            self._open = None
            self._index += 1

    def _event(self, kind: str, **more: Any) -> bytes:
        return encode_event({"type": kind, "index": self._index, **more})


def whole(head: AnswerHead, answer: CollectedAnswer) -> dict[str, Any]:
    """Returns an answer as one object."""
    shows_thinking = thinks(head.asked.get("thinking"))
    blocks = [_block(part) for part in answer.parts if shows_thinking or not isinstance(part, Reasoning)]
    return _message(head, blocks, REASONS[answer.reason], _usage(answer.used))


def _message(head: AnswerHead, blocks: list[Any], reason: str | None, usage: Any) -> dict[str, Any]:
    return {
        "id": head.make_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _block(part: AnswerPart) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Reasoning):
        return {"type": "thinking", "thinking": part.text, "signature": ""}
    given = arguments_object(part.arguments)
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}


def _open_block(part: AnswerPart) -> dict[str, Any]:
    """Returns the beginning of a block, without its content."""
    empty = {"text": "", "thinking": "", "input": {}}
    return {name: empty.get(name, value) for name, value in _block(part).items()} | {
        "type": _block(part)["type"]
    }


def _delta(part: AnswerPart) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text_delta", "text": part.text}
    if isinstance(part, Reasoning):
        return {"type": "thinking_delta", "thinking": part.text}
    # A small model may write arguments that are no JSON object; the SDKs could not read them.
    written = orjson.dumps(arguments_object(part.arguments)).decode()
    return {"type": "input_json_delta", "partial_json": written}


def _usage(usage: Usage) -> dict[str, Any]:
    return _usage_fields(usage.prompt, usage.completion, usage.cached_read, usage.cache_write)


def _usage_fields(prompt: int, completion: int, read: int, written: int) -> dict[str, Any]:
    """Returns a usage object; in this API the input has no cached tokens."""
    return {
        "input_tokens": max(0, prompt - read - written),
        "output_tokens": completion,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
