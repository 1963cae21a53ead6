"""The routes that only count: asked of the upstream, or counted here if it has no such route."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.cost.keys import check_model
from ullage.gateway.refusals import GatewayAnswer, Refused
from ullage.gateway.request import parse_object, write_json
from ullage.gateway.upstream import address_of, make_sent_headers, select_returned_headers
from ullage.gateway.upstreams import read_model_name
from ullage.target import Target
from ullage.tokens import count, count_request, counter_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.http import Transport
    from ullage.gateway.gate import Caller
    from ullage.gateway.request import Received
    from ullage.gateway.upstreams import Upstreams
    from ullage.target import ApiName

ABSENT = frozenset({404, 405, 501})
"""The statuses of a server that has no such route."""
JSON = {"content-type": "application/json"}


class CountPath(NamedTuple):
    """A route that counts a request of an API."""

    api: ApiName
    """The API whose requests it counts, and whose key and errors it has."""
    counted_as: ApiName
    path: str
    fixed: Mapping[str, str]
    """The members of its answer beside the count."""


COUNT_PATHS: Mapping[str, CountPath] = {
    "/messages/count_tokens": CountPath(
        "anthropic.messages", "anthropic.count_tokens", "/messages/count_tokens", {}
    ),
    "/responses/input_tokens": CountPath(
        "openai.responses",
        "openai.responses.input_tokens",
        "/responses/input_tokens",
        {"object": "response.input_tokens"},
    ),
}


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Counts requests and texts."""

    upstreams: Upstreams
    transport: Transport

    async def count(self, route: CountPath, request: Received, caller: Caller, raw: bytes) -> GatewayAnswer:
        """Returns the upstream's own count of a request, or ours if it has no such route."""
        body = await parse_object(raw)
        model = read_model_name(body)
        if caller.key is not None:
            check_model(caller.key, model)
        upstream = self.upstreams.find(model)
        name = upstream.endpoint.model if upstream.renamed else model
        if self.upstreams.api_of(upstream, model, route.api) == route.api:
            data = write_json({**body, "model": name}) if upstream.renamed else raw
            headers = make_sent_headers(upstream, request, route.api, own_key=caller.own_key)
            url = address_of(upstream, route.path, request.query)
            async with self.transport.post(url, headers, data, upstream.endpoint.timeouts) as reply:
                theirs = await reply.read()
                if (reply.status >= 400 and reply.status not in ABSENT) or _is_count(reply.status, theirs):
                    return GatewayAnswer(reply.status, select_returned_headers(reply.headers), theirs)
        counted = await asyncio.to_thread(count_request, body, route.counted_as, name)
        told = {"x-ullage-counted-by": "ullage"}
        return GatewayAnswer(200, JSON | told, orjson.dumps({**route.fixed, "input_tokens": counted.tokens}))

    async def tokenize(self, body: Mapping[str, Any]) -> GatewayAnswer:
        """Returns our own count of a text (`prompt` or `content`) or of `messages` with `tools`."""
        name = None if body.get("model") is None else read_model_name(body)
        target = Target(model=name, api="openai.chat")
        text = body.get("prompt", body.get("content"))
        if isinstance(text, str):
            cost = await asyncio.to_thread(counter_for(target).text, text)
            told: dict[str, Any] = {"count": cost.tokens, "ceiling": cost.ceiling}
        elif isinstance(body.get("messages"), list):
            counted = await asyncio.to_thread(count, body["messages"], target, body.get("tools"))
            told = {"count": counted.tokens, "ceiling": counted.ceiling, "exact": counted.exact}
        else:
            raise Refused("invalid", "give a text as 'prompt', or 'messages' with optional 'tools'")
        if name is not None:
            told["max_model_len"] = await self._window(name)
        return GatewayAnswer(200, JSON, orjson.dumps(told))

    async def _window(self, model: str) -> int | None:
        try:
            upstream = self.upstreams.find(model)
        except Refused:  # a count needs no upstream
            return None
        room = await self.upstreams.room_of(upstream, model)
        return None if room is None else room.window


def _is_count(status: int, body: bytes) -> bool:
    """Returns True for a success with a JSON object; a proxy may answer with a page or lead elsewhere."""
    if status != 200:
        return False
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False
