"""The list of models: those of the configuration, or those that the only upstream lists.

Each card has the window and the longest answer, under the names that clients of each API read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.cost.keys import check_model
from ullage.errors import ProviderError
from ullage.gateway.refusals import Refused
from ullage.gateway.upstream import make_sent_headers
from ullage.gateway.upstreams import ANY
from ullage.models import model_info

if TYPE_CHECKING:
    from ullage.broker.http import Transport
    from ullage.gateway.gate import Caller
    from ullage.gateway.request import Received
    from ullage.gateway.upstreams import Upstreams

SECONDS = 10.0
"""Seconds for the upstream's list."""


async def list_models(
    request: Received, caller: Caller, upstreams: Upstreams, transport: Transport
) -> dict[str, Any]:
    """Returns the list in a form that OpenAI's and Anthropic's clients both read."""
    if ANY in upstreams.table:
        cards = await _list_models(request, caller, upstreams, transport)
    else:
        cards = [{"id": name} for name in sorted(upstreams.table)]
    allowed = [card for card in cards if caller.key is None or caller.key.allows(card["id"])]
    data = [await _card(card, upstreams) for card in allowed]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    return {"object": "list", "data": data, "has_more": False, **ends}


async def find_model(
    name: str, request: Received, caller: Caller, upstreams: Upstreams, transport: Transport
) -> dict[str, Any]:
    """Returns the card of one model; refuses an unknown name."""
    found = await list_models(request, caller, upstreams, transport)
    for card in found["data"]:
        if card["id"] == name:
            return dict(card)
    if caller.key is not None:
        check_model(caller.key, name)
    if ANY in upstreams.table:  # the upstream takes any name
        return await _card({"id": name}, upstreams)
    raise Refused("model", f"The model {name[:100]!r} does not exist here: GET /v1/models lists all")


async def _list_models(
    request: Received, caller: Caller, upstreams: Upstreams, transport: Transport
) -> list[dict[str, Any]]:
    """Returns the cards of the upstream's own list; none if it has no list."""
    upstream = upstreams.table[ANY]
    headers = make_sent_headers(upstream, request, upstream.endpoint.api, own_key=caller.own_key)
    try:
        status, answer = await transport.json("GET", f"{upstream.base}/models", headers, timeout=SECONDS)
    except ProviderError:
        return []
    entries = answer.get("data") if status == 200 and isinstance(answer, dict) else None
    return [each for each in entries or () if isinstance(each, dict) and isinstance(each.get("id"), str)]


async def _card(card: dict[str, Any], upstreams: Upstreams) -> dict[str, Any]:
    name = card["id"]
    upstream = upstreams.table.get(name) or upstreams.table[ANY]
    room = await upstreams.room_of(upstream, name)
    info = model_info(upstream.endpoint.model if upstream.renamed else name)
    made: dict[str, Any] = {"object": "model", "type": "model", "created": 0, "owned_by": "ullage"}
    made |= {"display_name": name, "created_at": "1970-01-01T00:00:00Z", **card}
    if room is not None:
        window = {"context_window": room.window, "context_length": room.window, "max_model_len": room.window}
        made |= window | {"max_input_tokens": room.max_input or room.window}
    if info is not None and info.max_output is not None:
        most = info.max_output if room is None else min(info.max_output, room.window)
        made |= {"max_output_tokens": most, "max_tokens": most}
    return made
