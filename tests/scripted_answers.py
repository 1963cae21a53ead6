"""Streams of the three APIs, written by hand: a thought, a text, a call of a tool, and the usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT, CACHED, COMPLETION, THOUGHT = 40, 8, 9, 3
ARGUMENTS = '{"path":"a.txt"}'


def events(*values: Mapping[str, Any], named: bool = True) -> bytes:
    return b"".join(
        (b"event: %b\n" % value["type"].encode() if named else b"") + b"data: %b\n\n" % orjson.dumps(value)
        for value in values
    )


def chat_stream(text: str = "Ahoy there", *, call: bool = False, reason: str | None = None) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant"}, {"reasoning_content": "Hm."}]
    deltas += [{"content": word} for word in (text[:4], text[4:]) if word]
    if call:
        function = {"name": "read", "arguments": ARGUMENTS[:5]}
        deltas.append(
            {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
        )
        deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[5:]}}]})
    chunks: list[dict[str, Any]] = [{"id": "c", "choices": [{"index": 0, "delta": each}]} for each in deltas]
    ended = reason or ("tool_calls" if call else "stop")
    chunks.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": ended}]})
    usage = {
        "prompt_tokens": PROMPT,
        "completion_tokens": COMPLETION,
        "prompt_tokens_details": {"cached_tokens": CACHED},
        "completion_tokens_details": {"reasoning_tokens": THOUGHT},
    }
    chunks.append({"id": "c", "choices": [], "usage": usage})
    return events(*chunks, named=False) + b"data: [DONE]\n\n"


def messages_stream(text: str = "Ahoy there", *, call: bool = False, reason: str | None = None) -> bytes:
    usage = {"input_tokens": PROMPT - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": 1}
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm."}),
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": text}),
    ]
    if call:
        begun = {"type": "tool_use", "id": "call_1", "name": "read", "input": {}}
        blocks.append((begun, {"type": "input_json_delta", "partial_json": ARGUMENTS}))
    made: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "usage": usage}}]
    for index, (block, delta) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made.append({"type": "content_block_delta", "index": index, "delta": delta})
        made.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": reason or ("tool_use" if call else "end_turn"), "stop_sequence": None}
    details = {"output_tokens": COMPLETION, "output_tokens_details": {"thinking_tokens": THOUGHT}}
    made.append({"type": "message_delta", "delta": ended, "usage": details})
    return events(*made, {"type": "message_stop"})


def responses_stream(text: str = "Ahoy there", *, call: bool = False, reason: str | None = None) -> bytes:
    made: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm."},
        {"type": "response.output_text.delta", "output_index": 1, "delta": text},
    ]
    if call:
        item = {"type": "function_call", "id": "f", "call_id": "call_1", "name": "read"}
        done = {**item, "arguments": ARGUMENTS}
        made.append({"type": "response.output_item.done", "output_index": 2, "item": done})
    usage = {
        "input_tokens": PROMPT,
        "input_tokens_details": {"cached_tokens": CACHED},
        "output_tokens": COMPLETION,
        "output_tokens_details": {"reasoning_tokens": THOUGHT},
    }
    kind = "response.completed" if reason is None else "response.incomplete"
    details = None if reason is None else {"reason": reason}
    response = {"id": "r", "output": [], "usage": usage, "incomplete_details": details}
    return events(*made, {"type": kind, "response": response})


STREAMS = {"chat": chat_stream, "responses": responses_stream, "messages": messages_stream}
LENGTH = {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"}
"""The word of each API for an answer that reached its limit."""
REFUSED = {"chat": "content_filter", "responses": "content_filter", "messages": "refusal"}
"""The word of each API for an answer that was refused."""
