"""Writes answers of OpenAI's chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.broker.events import Reasoning, Text
from ullage.gateway.answer_writer.collected import encode_event
from ullage.gateway.tool_names import CalledTool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.gateway.answer_writer.collected import AnswerHead, AnswerPart, CollectedAnswer
    from ullage.usage import Usage

REASONS: Mapping[str, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "refused": "content_filter",
    "other": "stop",
}
"""Reason of an event → the finish reason of this API."""
DONE = b"data: [DONE]\n\n"


class ChatStream:
    """Writes the chunks of one answer."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._calls = 0

    def begin(self) -> Iterator[bytes]:
        """Yields the chunk with the role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def add(self, part: AnswerPart) -> Iterator[bytes]:
        """Yields the chunk of a part."""
        if isinstance(part, Text):
            yield self._chunk({"content": part.text})
        elif isinstance(part, Reasoning):
            yield self._chunk({"reasoning_content": part.text})
        else:
            yield self._chunk({"tool_calls": [{"index": self._calls, **_call(part)}]})
            self._calls += 1

    def end(self, answer: CollectedAnswer) -> Iterator[bytes]:
        """Yields the chunk with the reason, and the one with the usage if the client asked for it."""
        yield self._chunk({}, REASONS[answer.reason])
        options = self._head.asked.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") is True:
            yield encode_event(
                {**_frame(self._head, "chat.completion.chunk"), "choices": [], "usage": _usage(answer.used)},
                named=False,
            )
        yield DONE

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return encode_event({**_frame(self._head, "chat.completion.chunk"), "choices": [choice]}, named=False)


def whole(head: AnswerHead, answer: CollectedAnswer) -> dict[str, Any]:
    """Returns an answer as one object."""
    texts = [part.text for part in answer.parts if isinstance(part, Text)]
    thoughts = [part.text for part in answer.parts if isinstance(part, Reasoning)]
    calls = [_call(part) for part in answer.parts if isinstance(part, CalledTool)]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    message["refusal"] = None
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None}
    choice["finish_reason"] = REASONS[answer.reason]
    return {**_frame(head, "chat.completion"), "choices": [choice], "usage": _usage(answer.used)}


def _frame(head: AnswerHead, kind: str) -> dict[str, Any]:
    return {"id": head.make_id("chatcmpl"), "object": kind, "created": head.created, "model": head.model}


def _call(called: CalledTool) -> dict[str, Any]:
    if called.is_custom:
        return {
            "id": called.id,
            "type": "custom",
            "custom": {"name": called.name, "input": called.arguments},
        }
    function = {"name": called.name, "arguments": called.arguments}
    return {"id": called.id, "type": "function", "function": function}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
