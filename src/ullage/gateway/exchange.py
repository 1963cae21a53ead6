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
from ullage.gateway.answer_rounds import AnswerRounds
from ullage.gateway.asked_counts import may_fit
from ullage.gateway.bill import Charge
from ullage.gateway.delivery import deliver_stream, deliver_whole
from ullage.gateway.figures import GONE, Ending
from ullage.gateway.headers import answer_headers, request_headers, stream_headers
from ullage.gateway.limits import read_requested_answers
from ullage.gateway.refusals import Refused, event, kind_of_status, make_refusal
from ullage.gateway.request import Disconnected, read_body
from ullage.gateway.signals import CallEnd
from ullage.gateway.tally import Tally
from ullage.gateway.translated_answer import check_streamed, deliver_translated, translate_error
from ullage.gateway.upstream import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.gateway.activity import Activity
    from ullage.gateway.answer_filter.shared import RecallCall
    from ullage.gateway.asked_counts import AskedCounts
    from ullage.gateway.bill import BookedCall, GatewayBill, Held
    from ullage.gateway.connections import UpstreamConnections, UpstreamReply
    from ullage.gateway.delivery import Delivered
    from ullage.gateway.gate import Caller, Gate
    from ullage.gateway.preparation import CallRoute, Outgoing, Preparation
    from ullage.gateway.recall import GatewayRecall
    from ullage.gateway.request import ClientConnection
    from ullage.gateway.signals import CallSignals, Signals

REFUSALS = frozenset({400, 413, 422})
"""The statuses with which servers refuse a request that is too long."""
DEARER: Mapping[str, str] = {"service_tier": "priority", "speed": "fast", "inference_geo": "us"}
"""Field of a request → the value with which a provider charges more than the usual price of the model."""
MOST_TRIES = 3
"""Most tries for a request that its upstream refuses as too long; each is fitted to what was learned."""


class Sending(NamedTuple):
    """A request that is being sent: its headers, and its reservation."""

    outgoing: Outgoing
    headers: Mapping[str, str]
    held: Held


class Arrived(NamedTuple):
    """An answer that has been read, or relayed as a stream."""

    reply: UpstreamReply
    tally: Tally
    body: bytes | None
    """None for a stream, which the client has already."""
    is_broken: bool = False
    recalls: Sequence[RecallCall] = ()
    """The recall calls in the answer."""
    goes_on: bool = False
    """True if the model is asked again with the results of its recalls."""


class Asking(NamedTuple):
    """A client's request, and the rounds of its answer."""

    connection: ClientConnection
    call: CallRoute
    caller: Caller
    raw: bytes
    rounds: AnswerRounds
    signals: CallSignals


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The parts that every exchange uses."""

    preparation: Preparation
    asked_counts: AskedCounts
    connections: UpstreamConnections
    bill: GatewayBill
    gate: Gate
    activity: Activity
    signals: Signals
    recall: GatewayRecall

    async def run(self, connection: ClientConnection, call: CallRoute) -> None:
        """Answers one request.

        Raises Refused, UllageError or Disconnected if no answer has begun; a stream that has begun ends with
        an error event instead.
        """
        with self.signals.call(call.api, connection.request) as signals:
            try:
                await self._run(connection, call, signals)
            finally:
                self.activity.running.end(connection.request)

    async def _run(self, connection: ClientConnection, call: CallRoute, signals: CallSignals) -> None:
        request = connection.request
        caller = await self.gate.admit(request)
        raw = await read_body(request, connection.receive)
        signals.note_received()
        asking = Asking(connection, call, caller, raw, AnswerRounds(call.api), signals)
        while True:
            try:
                sending, arrived = await self._send_round(asking)
            except (Refused, UllageError) as error:
                if not asking.rounds.is_begun:
                    raise
                await _break_off(connection, call, error)
                return
            await self._book(asking, sending, arrived)
            if arrived.recalls:
                await self._answer_recalls(call, sending.outgoing, arrived)
            if not arrived.goes_on:
                break
            asking.rounds.next()
        await _finish(connection, sending.outgoing, asking.rounds, arrived)

    async def _send_round(self, asking: Asking) -> tuple[Sending, Arrived]:
        """Sends the request of one round; again if the upstream finds it too long."""
        connection, call, caller, _, rounds, signals = asking
        for attempt in range(MOST_TRIES):
            outgoing = await self._prepare_request(asking)
            signals.note_prepared()
            headers = request_headers(outgoing, connection.request, caller)
            headers.update(signals.headers)
            held = await self.bill.reserve(_charge(outgoing, caller))
            sending = Sending(outgoing, headers, held)
            self.activity.running.begin(connection.request, outgoing)
            arrived = await self._send_request(connection, call, sending, rounds)
            too_long = _overflow(arrived)
            if too_long is None or attempt == MOST_TRIES - 1 or not call.is_fitted:
                break
            await self.bill.release(held)
            self.preparation.refuse(outgoing, too_long.reported)
            await asyncio.to_thread(self.preparation.save, outgoing.target)
        return sending, arrived

    async def _prepare_request(self, asking: Asking) -> Outgoing:
        """Prepares the request; if it seems too long, the upstream may know that it is not."""
        request, call, caller, raw = asking.connection.request, *asking[1:4]
        try:
            return await self.preparation.prepare(request, call, caller, raw)
        except ContextOverflowError as error:
            if not may_fit(error) or not await self.asked_counts.learn(request, call, caller, raw):
                raise
        return await self.preparation.prepare(request, call, caller, raw)

    async def _book(self, asking: Asking, sending: Sending, arrived: Arrived) -> None:
        """Books one round, measures it, and shows it on the page."""
        outgoing, status = sending.outgoing, arrived.reply.status
        settled = await self._settle_call(outgoing, sending.held, arrived)
        asking.rounds.book(settled)
        asking.signals.measure_call(
            outgoing, settled, CallEnd(status, arrived.tally.begun, arrived.is_broken)
        )
        self.activity.record(asking.connection.request, outgoing, _ending(arrived, settled))

    async def _answer_recalls(self, call: CallRoute, outgoing: Outgoing, arrived: Arrived) -> None:
        """Answers the recall calls of the model."""
        self.signals.metrics.add("ullage_recall_calls_total", call.api, by=len(arrived.recalls))
        await self.recall.answer(
            outgoing.asked, call.api, outgoing.identity, outgoing.fitted, arrived.recalls
        )

    async def _send_request(
        self, connection: ClientConnection, call: CallRoute, sending: Sending, rounds: AnswerRounds
    ) -> Arrived:
        """Sends the request and returns its answer; however it ends, the reservation ends with it."""
        request, receive, send = connection
        outgoing, upstream = sending.outgoing, sending.outgoing.upstream
        tally: Tally | None = None
        try:
            query = "" if outgoing.is_translated else request.query
            url = address_of(upstream, outgoing.path(call), query)
            waits = upstream.endpoint.timeouts
            with relay.ClientWatch(receive):
                async with self.connections.post(url, sending.headers, outgoing.data, waits) as reply:
                    relay.check_status(reply)
                    streamed = reply.headers.get("content-type", "").startswith("text/event-stream")
                    tally = Tally(outgoing.api, streamed=streamed)
                    if not streamed:
                        check_streamed(reply, outgoing)
                        return _make_arrived(
                            reply, tally, await deliver_whole(reply, tally, outgoing, rounds)
                        )
                    if not rounds.is_begun and (outgoing.is_streamed or not outgoing.is_translated):
                        await relay.start(send, reply.status, stream_headers(reply, request, outgoing))
                        rounds.is_begun = True
                    deliver = deliver_translated if outgoing.is_translated else deliver_stream
                    return _make_arrived(
                        reply, tally, await deliver(reply, tally, outgoing, connection, rounds)
                    )
        except BaseException as error:
            await self._abandon(call, sending.held, tally, error)
            if isinstance(error, Disconnected):
                self.activity.record(request, outgoing, Ending(GONE))
            raise

    async def _abandon(self, call: CallRoute, held: Held, tally: Tally | None, error: BaseException) -> None:
        """Ends the reservation of a call without a whole answer: it may be charged if it was sent."""
        if isinstance(error, Disconnected):
            self.signals.metrics.add("ullage_clients_gone_total", call.api)
        if tally is None and isinstance(error, UllageError) and not getattr(error, "sent", False):
            await self.bill.release(held)
            return
        await self.bill.settle(held, tally or Tally(call.api, streamed=False))

    async def _settle_call(self, outgoing: Outgoing, held: Held, arrived: Arrived) -> BookedCall | None:
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
    connection: ClientConnection, outgoing: Outgoing, rounds: AnswerRounds, arrived: Arrived
) -> None:
    """Sends the rest of the answer."""
    request, send = connection.request, connection.send
    if arrived.body is None:
        await relay.end(send)
        return
    status, body = arrived.reply.status, arrived.body
    if rounds.is_begun:  # a later round was refused
        error = refusal(status, body)
        failure = Refused(kind_of_status(status), str(error))
        await relay.piece(send, event(failure, outgoing.client_api, request.id))
        await relay.end(send)
        return
    headers = answer_headers(arrived.reply, request, outgoing)
    if rounds.cost is not None:
        headers["x-ullage-cost"] = f"{rounds.cost:f}"
    if outgoing.translation is not None:
        headers["content-type"] = "application/json"
        if status >= 400:
            key = outgoing.upstream.endpoint.key
            body = translate_error(status, body, outgoing.translation, key, request.id)
    await relay.whole(send, status, headers, body)


async def _break_off(connection: ClientConnection, call: CallRoute, error: Refused | UllageError) -> None:
    """Ends a stream whose later round failed."""
    failure = error if isinstance(error, Refused) else make_refusal(error, call.api)
    await relay.piece(connection.send, event(failure, call.api, connection.request.id))
    await relay.end(connection.send)


def _make_arrived(reply: UpstreamReply, tally: Tally, delivered: Delivered) -> Arrived:
    return Arrived(reply, tally, *delivered)


def _charge(outgoing: Outgoing, caller: Caller) -> Charge:
    upstream = outgoing.upstream
    answers = read_requested_answers(outgoing.asked, outgoing.client_api)
    return Charge(
        session=f"gateway:{outgoing.identity.name}",
        project="",
        model=_make_bill_name(outgoing),
        target=outgoing.target,
        count=outgoing.count,
        most_output=None if outgoing.most_output is None else outgoing.most_output * answers,
        local=upstream.endpoint.local,
        key=caller.key,
    )


def _make_bill_name(outgoing: Outgoing) -> str:
    """Returns the name of the model on the bill; a dearer service has a name, and so prices, of its own."""
    upstream = outgoing.upstream
    name = upstream.billed_as or outgoing.model
    if upstream.endpoint.local or outgoing.is_translated:  # a translation leaves these fields out
        return name
    dearer = [value for field, value in DEARER.items() if outgoing.asked.get(field) == value]
    return f"{name} ({', '.join(dearer)})" if dearer else name


def _ending(arrived: Arrived, settled: BookedCall | None) -> Ending:
    """Returns the end of an exchange, with the code of an upstream's error and without its text."""
    status, body = arrived.reply.status, arrived.body
    code = "" if status < 400 or body is None else getattr(refusal(status, body), "code", None) or ""
    return Ending(status, settled, arrived.is_broken, code)


def _overflow(arrived: Arrived) -> ContextOverflowError | None:
    """Returns the upstream's refusal if it says that the request is too long."""
    if arrived.reply.status not in REFUSALS or arrived.body is None:
        return None
    error = refusal(arrived.reply.status, arrived.body)
    return error if isinstance(error, ContextOverflowError) else None
