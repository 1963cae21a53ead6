"""`count` and `count_request`: the tokens of a whole request, in total and by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage import wire
from ullage.intake import read_messages, read_tools
from ullage.messages import (
    RESULT_ROLES,
    SYSTEM_ROLES,
    calls_of,
    is_plain,
    split_content,
    text_of,
    without_recalled,
)
from ullage.target import Target
from ullage.tokens.counter import counter_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ullage.messages import Message
    from ullage.target import ApiName, ModelLike
    from ullage.tokens.counter import Cost, Counter
    from ullage.wire import Request

BLOCKS = ("system", "tools", "summary", "memory", "project", "recalled", "turns")


@dataclass(frozen=True, slots=True)
class Count:
    """The tokens of a request."""

    tokens: int
    """Best estimate, in tokens."""
    ceiling: int
    """Upper bound in tokens, for budget decisions. The provider's count is not above it."""
    exact: bool
    """True if `tokens` follows the provider's own rule."""
    breakdown: Mapping[str, int]
    """`tokens` divided into blocks. The blocks sum to `tokens`."""

    @property
    def ceilings(self) -> Mapping[str, int]:
        """`ceiling` divided into blocks in the proportions of `breakdown`. The blocks sum to `ceiling`."""
        return share_out(self.breakdown, self.ceiling)


def share_out(breakdown: Mapping[str, int], tokens: int) -> dict[str, int]:
    """Returns the blocks in the same proportions, scaled so that they sum to `tokens`."""
    total = sum(breakdown.values())
    if not total:
        return {**breakdown, "turns": tokens}
    blocks, before, after = {}, 0, 0
    for name, share in breakdown.items():
        before += share
        blocks[name] = before * tokens // total - after
        after += blocks[name]
    return blocks


def count(messages: Iterable[Any], model: ModelLike = None, tools: Iterable[Any] | None = None) -> Count:
    """Counts a request with these messages and tools. It never uses the network.

    A message is a dict, any other Mapping, or an SDK object with `model_dump`. Without a model, the count is
    an estimate for any model, and its ceiling holds for all models.
    """
    counter = counter_for(model)
    read, defined = read_messages(messages), read_tools(tools)
    system = system_text(read)
    bare = counter.request(system=system)
    once = counter.request(defined, system=system) if defined else bare
    return _total(counter, read, bare, once)


def count_request(body: Mapping[str, Any], api: ApiName, model: str | None = None) -> Count:
    """Counts a whole request in a provider's own format.

    If neither the body nor the caller names a model, the count is an estimate for any model of that API.
    """
    request = wire.read(body, api)
    return count_read(counter_for(Target(model=model or request.model or None, api=api)), request)


def count_read(counter: Counter, request: Request) -> Count:
    """Counts a request that `wire.read` has returned."""
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
        # The same request was charged differently each time, always more than the estimate.
        once = once._replace(ceiling=once.ceiling + counter.family.margin_continued)
    return _total(counter, request.messages, bare, once)


def _raw(counter: Counter, messages: Sequence[Message]) -> Count:
    """Counts a prompt that is sent unchanged, without framing."""
    cost = counter.text("".join(text_of(message.get("content")) for message in messages))
    blocks = {**dict.fromkeys(BLOCKS, 0), "turns": cost.tokens}
    return Count(
        cost.tokens,
        cost.ceiling + counter.family.margin_once + counter.family.maybe,
        exact=False,
        breakdown=blocks,
    )


def system_text(messages: Iterable[Message]) -> str | bool:
    """Returns the text of the first system message, or False if there is no system message."""
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            return text_of(message.get("content"))
    return False


def message_costs(counter: Counter, messages: Iterable[Message]) -> Iterator[Cost]:
    """Yields the cost of each message. Results of parallel calls are counted as such."""
    parallel = False
    for message in messages:
        if message["role"] not in RESULT_ROLES:
            parallel = len(calls_of(message)) > 1
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
            recalled = _count_recalled(counter, message, cost.tokens)
            blocks["recalled"] += recalled
            blocks["turns"] += cost.tokens - recalled
            continue
        summary = _digest_tokens(counter, message, cost.tokens)
        blocks["summary"] += summary
        blocks["system"] += cost.tokens - summary
    return Count(sum(blocks.values()), ceiling, exact, blocks)


def _digest_tokens(counter: Counter, message: Message, tokens: int) -> int:
    """Returns the tokens of our digest block in a system message of `tokens` tokens."""
    own, digest = split_content(message["content"])
    if not digest:
        return 0
    return max(0, tokens - counter.message({**message, "content": own}).tokens)


def _count_recalled(counter: Counter, message: Message, tokens: int) -> int:
    """Returns the tokens of our recalled block in a user message of `tokens` tokens."""
    content = message.get("content")
    if message["role"] != "user" or (own := without_recalled(content)) is content:
        return 0
    return max(0, tokens - counter.message({**message, "content": own}).tokens)
