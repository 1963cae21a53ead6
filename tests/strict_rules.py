"""The rules by which a strict server refuses requests, one function an API, and its count of their tokens.

Each function reads a body. It raises `Refused` with a reason for a body that the real API would not accept,
and else returns a `Reading`.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import splintr

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHAT_ROLES = {"system", "developer", "user", "assistant", "tool"}
MESSAGE_TOKENS = 4
"""Tokens that the server counts for the frame of a message or an item."""
CALL_TOKENS = 8
"""The same for a call."""


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault
    """A request that the real API does not accept."""


@dataclass
class Reading:
    """What the server sees in a valid body."""

    tokens: int = 0
    newest: list[str] = field(default_factory=list)
    """The ids of the calls whose results stand at the end."""
    texts: list[str] = field(default_factory=list)
    """All texts that the model can read."""

    def add(self, *texts: str, frame: int = 0) -> None:
        self.texts += texts
        self.tokens += frame + sum(map(count_text, texts))


@functools.cache
def _vocabulary() -> Any:
    return splintr.Tokenizer.from_pretrained("o200k_base")


@functools.lru_cache(maxsize=10_000)
def count_text(text: str) -> int:
    """The tokens of a text in o200k."""
    return len(_vocabulary().encode(text))


def need(condition: object, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def texts_of(content: Any) -> Iterator[str]:
    """All texts in the content of a message, whatever its parts are called."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from texts_of(part)
    elif isinstance(content, dict):
        for name in ("text", "refusal", "thinking", "content"):
            yield from texts_of(content.get(name))


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _check_names(names: list[Any]) -> None:
    need(all(isinstance(name, str) and name for name in names), "a tool without a name")
    need(len(names) == len(set(names)), "two tools have one name")


# Chat completions ------------------------------------------------------------------------------------


def read_chat(body: Mapping[str, Any]) -> Reading:
    """A body of OpenAI's chat completions."""
    need(body.get("model"), "no model")
    messages, tools = body.get("messages"), body.get("tools")
    need(isinstance(messages, list) and messages, "messages: empty, or no list")
    need(tools is None or tools, "tools: an empty list")
    _check_names([tool["function"]["name"] for tool in tools or ()])
    reading = Reading(tokens=3)
    for tool in tools or ():
        reading.add(compact(tool["function"]))
    waiting: list[str] = []
    for place, message in enumerate(messages or ()):
        at, role = f"messages[{place}]", message.get("role")
        need(role in CHAT_ROLES, f"{at}: unknown role {role!r}")
        if role == "tool":
            answered = message.get("tool_call_id")
            need(answered in waiting, f"{at}: a result without its call ({answered!r})")
            waiting.remove(answered)
            reading.newest.append(answered)
        else:
            need(not waiting, f"{at}: calls without results: {waiting}")
            reading.newest = []
        waiting += _read_calls(message, at, reading)
        _check_chat_content(message, at)
        reading.add(*texts_of(message.get("content")), frame=MESSAGE_TOKENS)
    need(not waiting, f"calls without results at the end: {waiting}")
    return reading


def _read_calls(message: Mapping[str, Any], at: str, reading: Reading) -> list[str]:
    calls = message.get("tool_calls")
    need(calls is None or calls, f"{at}.tool_calls: an empty list")
    need(not calls or message["role"] == "assistant", f"{at}: calls of a {message['role']}")
    ids = []
    for call in calls or ():
        need(call.get("type") == "function" and 0 < len(call.get("id") or "") <= 40, f"{at}: a bad call")
        need(isinstance(call["function"].get("arguments"), str), f"{at}: arguments that are no text")
        reading.add(call["function"]["name"], call["function"]["arguments"], frame=CALL_TOKENS)
        ids.append(call["id"])
    need(len(ids) == len(set(ids)), f"{at}: two calls have one id")
    return ids


def _check_chat_content(message: Mapping[str, Any], at: str) -> None:
    content = message.get("content")
    if content is None:
        need(message.get("tool_calls"), f"{at}: no content")
    elif isinstance(content, list):
        need(content, f"{at}.content: an empty list")
        need(all(isinstance(part, dict) and part.get("type") for part in content), f"{at}: a bad part")
    else:
        need(isinstance(content, str), f"{at}.content: neither a text nor parts")


# Responses -------------------------------------------------------------------------------------------


def read_responses(body: Mapping[str, Any], sealed: Mapping[str, str]) -> Reading:
    """A body of OpenAI's responses. `sealed` has each item that came with a reasoning item, and its id."""
    need(body.get("model"), "no model")
    need(not body.get("previous_response_id"), "the previous response was not stored")
    items, tools = body.get("input"), body.get("tools") or []
    need(items, "input: empty")
    _check_names([tool["name"] for tool in tools if tool["type"] == "function"])
    reading = Reading(tokens=3)
    reading.add(body.get("instructions") or "", *map(compact, tools))
    calls: dict[str, bool] = {}
    before: str | None = None
    for place, item in enumerate([{"role": "user", "content": items}] if isinstance(items, str) else items):
        at, kind = f"input[{place}]", item.get("type", "message")
        owner = sealed.get(item.get("id") or "")
        need(owner is None or owner == before, f"{at}: {kind} without its reasoning item {owner}")
        need(before is None or owner == before, f"{at}: reasoning item {before} without what followed it")
        before = item["id"] if kind == "reasoning" else None
        _read_item(item, kind, at, reading, calls)
    need(before is None, f"reasoning item {before} without what followed it")
    need(all(calls.values()), f"calls without outputs: {[each for each in calls if not calls[each]]}")
    return reading


def _read_item(item: Mapping[str, Any], kind: str, at: str, reading: Reading, calls: dict[str, bool]) -> None:
    if kind == "function_call_output":
        need(calls.get(item["call_id"]) is False, f"{at}: an output without its call ({item['call_id']!r})")
        calls[item["call_id"]] = True
        reading.newest.append(item["call_id"])
        reading.add(*texts_of(item.get("output")), frame=MESSAGE_TOKENS)
        return
    reading.newest = []
    if kind == "function_call":
        need(item["call_id"] not in calls, f"{at}: two calls have one id")
        calls[item["call_id"]] = False
        reading.add(item["name"], item["arguments"], frame=CALL_TOKENS)
    elif kind == "reasoning":
        need(item.get("encrypted_content"), f"{at}: reasoning that was not stored")
        reading.add(frame=MESSAGE_TOKENS)
    else:
        need(kind == "message", f"{at}: unknown type {kind!r}")
        need(item.get("role") in CHAT_ROLES - {"tool"}, f"{at}: unknown role {item.get('role')!r}")
        need(item.get("content"), f"{at}: no content")
        reading.add(*texts_of(item["content"]), frame=MESSAGE_TOKENS)


# Messages --------------------------------------------------------------------------------------------


def read_messages(body: Mapping[str, Any], signatures: set[str]) -> Reading:
    """A body of Anthropic's messages. `signatures` are those that the server gave to thinking blocks."""
    need(body.get("model"), "no model")
    need(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: missing")
    messages, tools = body.get("messages"), body.get("tools") or []
    need(isinstance(messages, list) and messages, "messages: empty, or no list")
    need(body.get("system", "x"), "system: empty")
    _check_names([tool["name"] for tool in tools])
    reading = Reading(tokens=3)
    reading.add(*texts_of(body.get("system")), *map(compact, tools))
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages or ()):
        at, role, content = f"messages.{place}", message.get("role"), message.get("content")
        need(role in {"user", "assistant"}, f"{at}: unknown role {role!r}")
        need(place or role == "user", "messages: the first is not of the user")
        need(content, f"{at}: no content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        need(sorted(results) == sorted(waiting), f"{at}: results {results} for the calls {waiting}")
        head = [block["type"] for block in blocks[: len(results)]]
        need(set(head) <= {"tool_result"}, f"{at}: results that do not come first")
        reading.newest = results
        reading.tokens += MESSAGE_TOKENS
        waiting = []
        for block in blocks:
            waiting += _read_block(block, role, at, reading, signatures)
        need(not seen & set(waiting) and len(waiting) == len(set(waiting)), f"{at}: two calls have one id")
        seen |= set(waiting)
    need(not waiting, f"calls without results at the end: {waiting}")
    return reading


def _read_block(
    block: Mapping[str, Any], role: str, at: str, reading: Reading, signatures: set[str]
) -> list[str]:
    """Reads one block; returns the id of the call that it makes."""
    kind = block["type"]
    if kind == "text":
        need(block.get("text", "").strip(), f"{at}: an empty text block")
    elif kind == "tool_use":
        need(role == "assistant" and isinstance(block.get("input"), dict), f"{at}: a bad tool_use block")
        reading.add(block["name"], compact(block["input"]), frame=CALL_TOKENS)
        return [block["id"]]
    elif kind == "thinking":
        need(block.get("signature") in signatures, f"{at}: a thinking block with another signature")
    elif kind == "tool_result":
        need(role == "user", f"{at}: a tool_result block of the assistant")
        parts = block.get("content")
        empty = isinstance(parts, list) and any(not text for text in texts_of(parts))
        need(not empty, f"{at}: an empty text block in a result")
    reading.add(*texts_of(block))
    return []
