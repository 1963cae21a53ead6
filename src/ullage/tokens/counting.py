"""`count` and `count_request`: what a whole request costs, and what fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage import wire
from ullage.errors import InvalidRequest
from ullage.messages import SYSTEM_ROLES, check_message, split_content, text_of
from ullage.tokens.counter import counter_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ullage.messages import Message, Tool
    from ullage.tokens.counter import Cost, Counter

BLOCKS = ("system", "tools", "summary", "memory", "project", "turns")


@dataclass(frozen=True, slots=True)
class Count:
    """What a request costs."""

    tokens: int
    """The best estimate."""
    ceiling: int
    """What budget decisions use: the truth is not above it."""
    exact: bool
    """Whether `tokens` follows the provider's own rule."""
    breakdown: Mapping[str, int]
    """`tokens` by block; the blocks sum to it."""


def count(messages: Sequence[Message], model: str = "gpt-4o", tools: Sequence[Tool] | None = None) -> Count:
    """What a request with these messages and tools costs, without touching the network."""
    for index, message in enumerate(messages):
        check_message(message, index)
    counter = counter_for(model)
    system = system_text(messages)
    bare = counter.request(system=system)
    once = counter.request(tools, system=system) if tools else bare
    return _total(counter, messages, bare, once)


def count_request(body: Mapping[str, Any], api: str, model: str | None = None) -> Count:
    """What a whole request in a provider's own shape costs."""
    request = wire.read(body, api)
    name = model or request.model
    if not name:
        raise InvalidRequest("no model: give one in the body or as model=", api=api, field="model")
    counter = counter_for(name, api)
    if request.raw:
        return _raw(counter, request.messages)
    system = system_text(request.messages)
    bare = counter.request(system=system, thinking=request.thinking)
    once = counter.request(
        request.tools,
        request.response_format,
        system=system,
        tool_choice=request.tool_choice,
        thinking=request.thinking,
    )
    if request.response_format and request.messages and request.messages[-1]["role"] == "assistant":
        # The same request has been charged differently each time, always more.
        once = once._replace(ceiling=once.ceiling + counter.family.margin_continued)
    return _total(counter, request.messages, bare, once)


def _raw(counter: Counter, messages: Sequence[Message]) -> Count:
    """A prompt that is sent as it stands, without any framing."""
    cost = counter.text("".join(text_of(message.get("content")) for message in messages))
    blocks = {**dict.fromkeys(BLOCKS, 0), "turns": cost.tokens}
    return Count(cost.tokens, cost.ceiling + counter.family.margin_once, exact=False, breakdown=blocks)


def system_text(messages: Iterable[Message]) -> str | bool:
    """The text of the first system message; False where there is none."""
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            return text_of(message.get("content"))
    return False


def message_costs(counter: Counter, messages: Iterable[Message]) -> Iterator[Cost]:
    """What each message costs; the results of parallel calls as such."""
    parallel = False
    for message in messages:
        if message["role"] != "tool":
            parallel = len(message.get("tool_calls") or ()) > 1
        yield counter.message(message, parallel=parallel)


def _total(counter: Counter, messages: Sequence[Message], bare: Cost, once: Cost) -> Count:
    blocks = dict.fromkeys(BLOCKS, 0)
    blocks["turns"] = bare.tokens
    blocks["tools"] = once.tokens - bare.tokens
    ceiling = once.ceiling
    exact = counter.exact and once == bare
    for message, cost in zip(messages, message_costs(counter, messages), strict=True):
        ceiling += cost.ceiling
        exact = exact and is_plain(message)
        if message["role"] not in SYSTEM_ROLES:
            blocks["turns"] += cost.tokens
            continue
        summary = _digest_tokens(counter, message, cost.tokens)
        blocks["summary"] += summary
        blocks["system"] += cost.tokens - summary
    return Count(sum(blocks.values()), ceiling, exact, blocks)


def is_plain(message: Message) -> bool:
    """Whether a message is text only: the part of the rules that is known exactly."""
    if message["role"] == "tool" or message.get("tool_calls"):
        return False
    content = message.get("content")
    return isinstance(content, str) or content is None or all(_is_text(part) for part in content)


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (part.get("type") == "text" and isinstance(part.get("text"), str))


def _digest_tokens(counter: Counter, message: Message, tokens: int) -> int:
    """The part of a system message's cost that our own digest block is."""
    own, digest = split_content(message["content"])
    if not digest:
        return 0
    return max(0, tokens - counter.message({**message, "content": own}).tokens)
