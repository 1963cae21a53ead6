"""One exchange: key → read → count and fit → reserve → send → settle.

What is not changed goes upstream as the bytes that came, and the answer comes back as the bytes that came.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ullage.broker.refusals import refusal
from ullage.errors import ContextOverflowError, UllageError
from ullage.gateway import relay
from ullage.gateway.bill import Charge
from ullage.gateway.request import Disconnected, read_body
from ullage.gateway.signals import CallEnd
from ullage.gateway.tally import Tally
from ullage.gateway.upstream import address_of, returned_headers, sent_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.http import Reply, Transport
    from ullage.gateway.bill import BookedCall, GatewayBill, Held
    from ullage.gateway.gate import Caller, Gate
    from ullage.gateway.preparation import CallRoute, Outgoing, Preparation
    from ullage.gateway.request import ClientConnection, Received
    from ullage.gateway.signals import CallSignals, Signals

REFUSALS = frozenset({400, 413, 422})
"""The statuses with which servers refuse a request that is too long."""
MOST_TRIES = 3
"""Most tries for a request that its upstream refuses as too long; each is fitted to what was learned."""


class Sending(NamedTuple):
    """A request that is being sent: its headers, and its reservation."""

    outgoing: Outgoing
    headers: Mapping[str, str]
    held: Held


class Arrived(NamedTuple):
    """An answer that has been read, or relayed as a stream."""

    reply: Reply
    tally: Tally
    body: bytes | None
    """None for a stream, which the client has already."""
    is_broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The parts that every exchange uses."""

    preparation: Preparation
    transport: Transport
    bill: GatewayBill
    gate: Gate
    signals: Signals

    async def run(self, connection: ClientConnection, call: CallRoute) -> None:
        """Answers one request.

        Raises Refused, UllageError or Disconnected if no answer has begun; a stream that has begun ends with
        an error event instead.
        """
        with self.signals.call(call.api, connection.request) as signals:
            await self._run(connection, call, signals)

    async def _run(self, connection: ClientConnection, call: CallRoute, signals: CallSignals) -> None:
        request = connection.request
        caller = await self.gate.admit(request)
        raw = await read_body(request, connection.receive)
        signals.received()
        for attempt in range(MOST_TRIES):
            outgoing = await self.preparation.prepare(request, call, caller, raw)
            signals.prepared()
            headers = sent_headers(outgoing.upstream, request, call.api, own_key=caller.own_key)
            headers |= signals.headers
            held = await self.bill.reserve(_charge(outgoing, caller))
            arrived = await self._answered(connection, call, Sending(outgoing, headers, held))
            too_long = _overflow(arrived)
            if too_long is None or attempt == MOST_TRIES - 1 or not call.is_fitted:
                break
            await self.bill.release(held)
            self.preparation.refuse(outgoing, too_long.reported)
            await asyncio.to_thread(self.preparation.save, outgoing.target)
        settled = await self._settled(outgoing, held, arrived)
        signals.finished(
            outgoing, settled, CallEnd(arrived.reply.status, arrived.tally.begun, arrived.is_broken)
        )
        await _finish(connection, outgoing, settled, arrived)

    async def _answered(self, connection: ClientConnection, call: CallRoute, sending: Sending) -> Arrived:
        """Sends the request and returns its answer; however it ends, the reservation ends with it."""
        request, receive, send = connection
        outgoing = sending.outgoing
        upstream = outgoing.upstream
        tally: Tally | None = None
        try:
            url = address_of(upstream, call.path, request.query)
            async with (
                relay.stopped_with_client(receive),
                self.transport.post(url, sending.headers, outgoing.data, upstream.endpoint.timeouts) as reply,
            ):
                streamed = reply.headers.get("content-type", "").startswith("text/event-stream")
                tally = Tally(call.api, streamed=streamed)
                if not streamed:
                    return Arrived(reply, tally, await relay.read_whole(reply, tally))
                told = returned_headers(reply.headers) | own_headers(request, outgoing)
                await relay.start(send, reply.status, told)
                failure = await relay.stream(reply, send, tally, call.api, request.id)
                return Arrived(reply, tally, None, is_broken=failure is not None)
        except BaseException as error:
            await self._abandon(call, sending.held, tally, error)
            raise

    async def _abandon(self, call: CallRoute, held: Held, tally: Tally | None, error: BaseException) -> None:
        """Ends the reservation of a call without a whole answer: it may be charged if it was sent."""
        if isinstance(error, Disconnected):
            self.signals.metrics.add("ullage_clients_gone_total", call.api)
        if tally is None and isinstance(error, UllageError) and not getattr(error, "sent", False):
            await self.bill.release(held)
            return
        await self.bill.settle(held, tally or Tally(call.api, streamed=False))

    async def _settled(self, outgoing: Outgoing, held: Held, arrived: Arrived) -> BookedCall | None:
        """Books what the answer used; nothing if the upstream refused the request."""
        if arrived.reply.status >= 400:
            await self.bill.release(held)
            return None
        settled = await self.bill.settle(held, arrived.tally)
        known = "prompt" not in settled.estimated
        if known and self.preparation.observe(outgoing, settled.usage.prompt):
            await asyncio.to_thread(self.preparation.save, outgoing.target)
        return settled


async def _finish(
    connection: ClientConnection, outgoing: Outgoing, settled: BookedCall | None, arrived: Arrived
) -> None:
    """Sends the rest of the answer."""
    if arrived.body is None:
        await relay.end(connection.send)
        return
    headers = returned_headers(arrived.reply.headers) | own_headers(connection.request, outgoing)
    if settled is not None and settled.cost is not None:
        headers["x-ullage-cost"] = f"{settled.cost:f}"
    await relay.whole(connection.send, arrived.reply.status, headers, arrived.body)


def own_headers(request: Received, outgoing: Outgoing) -> dict[str, str]:
    """Returns the gateway's own headers of an answer."""
    told = {"x-ullage-request-id": request.id, "x-ullage-tokens": str(outgoing.count.tokens)}
    if outgoing.limit is not None:
        told["x-ullage-limit"] = str(outgoing.limit)
    fitted = outgoing.fitted
    if fitted is not None:
        told["x-ullage-dropped"] = str(fitted.dropped)
        told["x-ullage-truncated"] = str(fitted.truncated)
        told["x-ullage-recalled"] = str(len(fitted.recalled))
        if fitted.changed:
            told["x-ullage-tokens-before"] = str(fitted.tokens_before)
    if outgoing.is_lowered:
        told["x-ullage-max-output"] = str(outgoing.most_output)
    if outgoing.unread:
        told["x-ullage-unread"] = _plain(outgoing.unread)
    return told


def _plain(text: str) -> str:
    """Returns a text as a header may hold it."""
    return text.encode("ascii", "replace").decode().replace("\n", " ")[:500]


def _charge(outgoing: Outgoing, caller: Caller) -> Charge:
    upstream = outgoing.upstream
    return Charge(
        session=f"gateway:{outgoing.identity.name}",
        project="",
        model=upstream.billed_as or outgoing.model,
        target=outgoing.target,
        count=outgoing.count,
        most_output=outgoing.most_output,
        local=upstream.endpoint.local,
        key=caller.key,
    )


def _overflow(arrived: Arrived) -> ContextOverflowError | None:
    """Returns the upstream's refusal if it says that the request is too long."""
    if arrived.reply.status not in REFUSALS or arrived.body is None:
        return None
    error = refusal(arrived.reply.status, arrived.body)
    return error if isinstance(error, ContextOverflowError) else None
