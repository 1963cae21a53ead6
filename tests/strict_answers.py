"""The answers of the strict server: a step of the loop in the format of each API, at once or as a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tests.player import Script, sent_json

if TYPE_CHECKING:
    from collections.abc import Iterable


class PageCall(NamedTuple):
    """The model asks for a page."""

    id: str
    page: int

    @property
    def arguments(self) -> dict[str, int]:
        return {"page": self.page}

    @property
    def json(self) -> str:
        return orjson.dumps(self.arguments).decode()


@dataclass(frozen=True)
class Answer:
    """One answer of the model."""

    number: int
    model: str
    text: str
    calls: list[PageCall] = field(default_factory=list)
    thought: str | None = None
    """A thought that is sent back as it is: a reasoning item, or a thinking block."""
    tokens: int = 0
    """Input tokens of the request."""


TOOL = "read_page"


def refusal(api: str, reason: str, code: str | None = None) -> Script:
    """An error with status 400, as the API gives it."""
    error = {"type": "invalid_request_error", "message": reason}
    if api == "messages":
        return sent_json({"type": "error", "error": error}, status=400)
    return sent_json({"error": {**error, "param": None, "code": code}}, status=400)


def as_stream(events: Iterable[tuple[str, dict[str, Any]]], *, typed: bool) -> Script:
    """Server-sent events. Those of responses and messages have their type in the data and in front of it."""
    lines = []
    for kind, data in events:
        head = b"event: %b\n" % kind.encode() if typed else b""
        lines.append(head + b"data: %b\n\n" % orjson.dumps({"type": kind, **data} if typed else data))
    return Script(body=b"".join(lines) + (b"" if typed else b"data: [DONE]\n\n"))


# Chat completions ------------------------------------------------------------------------------------


def chat_answer(answer: Answer, *, stream: bool) -> Script:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": TOOL, "arguments": call.json}}
        for call in answer.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if calls:
        message["tool_calls"] = calls
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": answer.tokens, "completion_tokens": 20, "total_tokens": answer.tokens + 20}
    head = {"id": f"chatcmpl-{answer.number}", "created": 1_760_000_000, "model": answer.model}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return sent_json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": answer.text}]
    for place, call in enumerate(calls):
        opened = {**call, "index": place, "function": {"name": TOOL, "arguments": ""}}
        rest = {"index": place, "function": {"arguments": answer.calls[place].json}}
        deltas += [{"tool_calls": [opened]}, {"tool_calls": [rest]}]
    chunk = {**head, "object": "chat.completion.chunk"}
    ends = [None] * len(deltas) + [reason]
    events = [
        ("", {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})
        for delta, end in zip([*deltas, {}], ends, strict=True)
    ]
    return as_stream([*events, ("", {**chunk, "choices": [], "usage": usage})], typed=False)


# Responses -------------------------------------------------------------------------------------------


def response_items(answer: Answer) -> list[dict[str, Any]]:
    """The output items of an answer."""
    items: list[dict[str, Any]] = []
    if answer.thought is not None:
        sealed = {"summary": [], "encrypted_content": f"sealed-{answer.thought}"}
        items.append({"type": "reasoning", "id": f"rs_{answer.number}", **sealed})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        said = {"role": "assistant", "status": "completed", "content": [part]}
        items.append({"type": "message", "id": f"msg_{answer.number}", **said})
    for place, call in enumerate(answer.calls):
        made = {"call_id": call.id, "name": TOOL, "arguments": call.json, "status": "completed"}
        items.append({"type": "function_call", "id": f"fc_{answer.number}_{place}", **made})
    return items


def responses_answer(answer: Answer, *, stream: bool) -> Script:
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {
        "input_tokens": answer.tokens,
        "output_tokens": 20,
        "total_tokens": answer.tokens + 20,
        **details,
    }
    whole: dict[str, Any] = {
        "id": f"resp_{answer.number}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "completed",
        "model": answer.model,
        "output": response_items(answer),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
    }
    return as_stream(_response_events(whole), typed=True) if stream else sent_json(whole)


def _response_events(whole: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    opening = {**whole, "status": "in_progress", "output": [], "usage": None}
    events += [("response.created", {"response": opening})]
    for place, item in enumerate(whole["output"]):
        at = {"output_index": place, "item_id": item["id"]}
        hollow = {"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"], {})
        events.append(("response.output_item.added", {"output_index": place, "item": {**item, **hollow}}))
        if item["type"] == "message":
            part = item["content"][0]
            inside = {**at, "content_index": 0}
            events += [
                ("response.content_part.added", {**inside, "part": {**part, "text": ""}}),
                ("response.output_text.delta", {**inside, "delta": part["text"], "logprobs": []}),
                ("response.output_text.done", {**inside, "text": part["text"], "logprobs": []}),
                ("response.content_part.done", {**inside, "part": part}),
            ]
        elif item["type"] == "function_call":
            made = {"arguments": item["arguments"], "name": item["name"]}
            events += [
                ("response.function_call_arguments.delta", {**at, "delta": item["arguments"]}),
                ("response.function_call_arguments.done", {**at, **made}),
            ]
        events.append(("response.output_item.done", {"output_index": place, "item": item}))
    events.append(("response.completed", {"response": whole}))
    return [(kind, {**data, "sequence_number": number}) for number, (kind, data) in enumerate(events)]


# Messages --------------------------------------------------------------------------------------------


def messages_answer(answer: Answer, *, stream: bool) -> Script:
    blocks: list[dict[str, Any]] = []
    if answer.thought is not None:
        signature = {"signature": f"signed-{answer.thought}"}
        blocks.append({"type": "thinking", "thinking": answer.thought, **signature})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": TOOL, "input": call.arguments} for call in answer.calls
    ]
    stop = {"stop_reason": "tool_use" if answer.calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": answer.tokens, "output_tokens": 20}
    head = {"id": f"msg_{answer.number}", "type": "message", "role": "assistant", "model": answer.model}
    if not stream:
        return sent_json({**head, "content": blocks, **stop, "usage": usage})
    opening = {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": opening})]
    for place, block in enumerate(blocks):
        hollow, deltas = _block_deltas(block)
        events.append(("content_block_start", {"index": place, "content_block": {**block, **hollow}}))
        events += [("content_block_delta", {"index": place, "delta": delta}) for delta in deltas]
        events.append(("content_block_stop", {"index": place}))
    events += [("message_delta", {"delta": stop, "usage": usage}), ("message_stop", {})]
    return as_stream(events, typed=True)


def _block_deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The fields of a block that its start leaves empty, and the deltas that fill them."""
    if block["type"] == "text":
        return {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        told = {"type": "thinking_delta", "thinking": block["thinking"]}
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"thinking": "", "signature": ""}, [told, signed]
    return {"input": {}}, [
        {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
    ]
