"""Delivers an upstream's answer to the client: as it came, or without the calls of the recall tool."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.broker.dialects.shared import mapping
from ullage.broker.frames import SseFramer
from ullage.errors import ContextOverflowError, ProviderError
from ullage.gateway import relay
from ullage.gateway.answer_filter import FILTERS
from ullage.gateway.answer_writer.chat import DONE
from ullage.gateway.answer_writer.collected import encode_event
from ullage.gateway.refusals import Refused, event, make_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ullage.gateway.answer_filter.shared import RecallCall
    from ullage.gateway.answer_rounds import AnswerRounds
    from ullage.gateway.connections import UpstreamReply
    from ullage.gateway.preparation import Outgoing
    from ullage.gateway.request import ClientConnection
    from ullage.gateway.tally import Tally
    from ullage.target import ApiName

CUT = "The upstream ended its answer before it was complete. Ask again."


class Delivered(NamedTuple):
    """An answer that was delivered, or is about to be."""

    body: bytes | None
    """None for a stream, which the client has already."""
    is_broken: bool = False
    recalls: Sequence[RecallCall] = ()
    """The recall calls in the answer."""
    goes_on: bool = False
    """True if the model waits for the results of its recalls, and for nothing else."""


async def deliver_whole(
    reply: UpstreamReply, tally: Tally, outgoing: Outgoing, rounds: AnswerRounds
) -> Delivered:
    """Returns an answer that is no stream; without recall calls if the tool was offered."""
    body = await relay.read_whole(reply, tally)
    relay.check_whole(reply, body)
    if not outgoing.offers_recall or outgoing.is_translated or reply.status >= 400:
        return Delivered(body)
    with _in_its_form():
        answer, calls, has_others = FILTERS[outgoing.api].split(_object(body))
        if not calls and rounds.number == 1:
            return Delivered(body)
        answer["usage"] = rounds.add_usage(answer.get("usage"))
    goes_on = bool(calls) and not has_others and not rounds.is_last
    return Delivered(orjson.dumps(answer), recalls=calls, goes_on=goes_on)


async def deliver_stream(
    reply: UpstreamReply,
    tally: Tally,
    outgoing: Outgoing,
    connection: ClientConnection,
    rounds: AnswerRounds,
) -> Delivered:
    """Relays a stream; filters it if the recall tool was offered. The stream has begun already."""
    if not outgoing.offers_recall:
        broken = await relay.stream(reply, connection.send, tally, outgoing.api, connection.request.id)
        return Delivered(None, is_broken=broken is not None)
    framer, chosen, api = SseFramer(), rounds.filter, outgoing.api
    failure: Refused | None = None
    has_failed = False
    try:
        async for chunk in reply.chunks():
            tally.add(chunk)
            values = [value for frame in framer.feed(chunk) if (value := _object(frame.data))]
            has_failed = has_failed or any(map(_is_error, values))
            with _in_its_form():
                made = _encode_events((made for each in values for made in chosen.feed(each)), api)
            await relay.piece(connection.send, made)
    except (ProviderError, ContextOverflowError) as error:
        failure = make_refusal(error, api)
    else:
        if not tally.is_complete():
            failure = Refused("upstream", CUT)
    if failure is not None:
        await relay.piece(connection.send, event(failure, api, connection.request.id))
        return Delivered(None, is_broken=True)
    if has_failed:  # the client has the upstream's own error
        return Delivered(None, is_broken=True)
    calls = chosen.calls
    goes_on = bool(calls) and not chosen.has_other_calls and not rounds.is_last
    if not goes_on:
        await send_events(connection, api, chosen.finish())
        if api == "openai.chat":
            await relay.piece(connection.send, DONE)
    return Delivered(None, recalls=calls, goes_on=goes_on)


async def send_events(connection: ClientConnection, api: ApiName, made: Iterator[Mapping[str, Any]]) -> None:
    """Sends events to the client as one piece."""
    await relay.piece(connection.send, _encode_events(made, api))


def _encode_events(made: Iterator[Mapping[str, Any]], api: ApiName) -> bytes:
    return b"".join(encode_event(each, named=api != "openai.chat") for each in made)


@contextmanager
def _in_its_form() -> Iterator[None]:
    """Raises ProviderError if an answer has not the form of its API, so that it cannot be filtered."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ProviderError(
            "the upstream's answer does not have the form of its API: check its address",
            code="form",
            sent=True,
        ) from error


def _is_error(value: Mapping[str, Any]) -> bool:
    return bool(value.get("error")) or value.get("type") in {"error", "response.failed"}


def _object(data: bytes | str) -> dict[str, Any]:
    """Returns a JSON object; an empty one for anything else, such as the mark of the end."""
    try:
        return mapping(orjson.loads(data))
    except orjson.JSONDecodeError:
        return {}
