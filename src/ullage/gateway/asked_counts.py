"""Asks an upstream for its own count of a request that seems too long, before the request is refused.

Before anything is learned about an upstream, only the ceiling of the model's family is known. It is too high
for a server that counts fewer tokens, so a request with many tools might be refused for nothing. Servers of
two APIs have a route that counts. Their answer is learned like the usage of a call; then the request is
fitted again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from ullage.errors import InvalidConversation, InvalidRequest, ProviderError
from ullage.gateway.preparation import target_of
from ullage.gateway.request import parse_object, write_json
from ullage.gateway.upstream import address_of, make_sent_headers
from ullage.tokens import Cost, count_request
from ullage.tokens.calibration import LOWEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.http import Transport
    from ullage.errors import ContextOverflowError
    from ullage.gateway.gate import Caller
    from ullage.gateway.preparation import CallRoute
    from ullage.gateway.request import Received
    from ullage.gateway.upstream_counts import UpstreamCounts
    from ullage.gateway.upstreams import Upstreams
    from ullage.target import ApiName

FIELDS: Mapping[ApiName, frozenset[str]] = {
    "anthropic.messages": frozenset(
        {
            *("model", "messages", "system", "tools", "tool_choice", "thinking", "mcp_servers"),
            *("context_management", "output_config", "output_format", "cache_control"),
        }
    ),
    "openai.responses": frozenset(
        {
            *("model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "conversation"),
            *("previous_response_id", "parallel_tool_calls", "truncation"),
        }
    ),
}
"""The fields that the route of an API that counts accepts; it refuses all others."""
PATHS: Mapping[ApiName, str] = {
    "anthropic.messages": "/messages/count_tokens",
    "openai.responses": "/responses/input_tokens",
}


def may_fit(error: ContextOverflowError) -> bool:
    """Returns False if no plausible count of the upstream would make the request fit."""
    return error.tokens * LOWEST <= error.limit


@dataclass(frozen=True, slots=True)
class AskedCounts:
    """Asks upstreams, and learns their answers."""

    upstreams: Upstreams
    transport: Transport
    counts: UpstreamCounts

    async def learn(self, request: Received, call: CallRoute, caller: Caller, raw: bytes) -> bool:
        """Learns the upstream's count of a request; returns False if there is nothing to learn.

        A failure of that route is no failure of the request: it is then judged by what is known already.
        """
        body = await parse_object(raw)
        model = str(body["model"])
        upstream = self.upstreams.find(model)
        api = self.upstreams.api_of(upstream, model, call.api)
        target = target_of(upstream, model, api)
        if api != call.api or api not in PATHS or self.counts.is_learned(target):
            return False
        asked = {name: value for name, value in body.items() if name in FIELDS[api]}
        asked["model"] = target.model
        try:
            ours = await asyncio.to_thread(count_request, body, api, target.model)
            headers = make_sent_headers(upstream, request, api, own_key=caller.own_key)
            url = address_of(upstream, PATHS[api], request.query)
            data = write_json(asked)
            async with self.transport.post(url, headers, data, upstream.endpoint.timeouts) as reply:
                theirs = _count_in(await reply.read()) if reply.status == 200 else None
        except (ProviderError, InvalidRequest, InvalidConversation):
            return False
        if theirs is None:
            return False
        self.counts.observe(target, Cost(ours.tokens, ours.ceiling), theirs)
        await asyncio.to_thread(self.counts.save, target)
        return True


def _count_in(data: bytes) -> int | None:
    """Returns the count in an answer; None if it has none."""
    try:
        told: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    count = told.get("input_tokens") if isinstance(told, dict) else None
    return count if count.__class__ is int and count > 0 else None
