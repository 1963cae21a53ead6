"""The answer of an upstream in the API of the client: read into events, and written again as they come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import orjson

from ullage.broker.dialects import DIALECTS
from ullage.broker.refusals import refusal
from ullage.errors import ContextOverflowError, ProviderError
from ullage.gateway import relay
from ullage.gateway.answer_writer import WRITERS
from ullage.gateway.answer_writer.collected import AnswerHead, CollectedAnswer
from ullage.gateway.delivery import Delivered
from ullage.gateway.refusals import Refused, answer, event, kind_of_status, make_refusal
from ullage.tokens import counter_for
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.broker.endpoint import Key
    from ullage.gateway.answer_rounds import AnswerRounds
    from ullage.gateway.answer_writer.collected import AnswerPart
    from ullage.gateway.connections import UpstreamReply
    from ullage.gateway.preparation import Outgoing
    from ullage.gateway.request import ClientConnection, Send
    from ullage.gateway.tally import Tally
    from ullage.gateway.translation import Translation


class ForeignAnswer:
    """Reads the bytes of an upstream's stream."""

    def __init__(self, translation: Translation, outgoing: Outgoing, answer: CollectedAnswer) -> None:
        dialect = DIALECTS[translation.target]
        self._framer, self._reader = dialect.framer(), dialect.reader()
        self._outgoing = outgoing
        self.source = translation.source
        """The client's API."""
        self.answer = answer

    def feed(self, chunk: bytes) -> Iterator[AnswerPart]:
        """Yields the parts that are complete now; raises the upstream's error if it sent one."""
        for frame in self._framer.feed(chunk):
            for each in self._reader.read(frame):
                yield from self.answer.add(each)

    def end(self) -> Iterator[AnswerPart]:
        """Yields the last parts; raises ProviderError if the answer is not complete.

        If the upstream reported no usage, our own count stands in its place.
        """
        for each in self._reader.end():
            yield from self.answer.add(each)
        if self.answer.usage is None:
            written = counter_for(self._outgoing.target).text(self.answer.text())
            self.answer.usage = Usage(prompt=self._outgoing.count.tokens, completion=written.tokens)


async def deliver_translated(
    reply: UpstreamReply,
    tally: Tally,
    outgoing: Outgoing,
    connection: ClientConnection,
    rounds: AnswerRounds,
) -> Delivered:
    """Translates the stream of an upstream: sends it on as a stream, or returns it as one object.

    Raises ProviderError or ContextOverflowError if an answer that is no stream fails; a stream ends with an
    error event instead.
    """
    translation = outgoing.translation
    assert translation is not None  # noqa: S101 - the caller has looked
    if rounds.collected is None:
        rounds.collected = CollectedAnswer(translation.names, hides_recall=outgoing.offers_recall)
    else:
        rounds.collected.next_round()
    answer = rounds.collected
    read = ForeignAnswer(translation, outgoing, answer)
    head = _head(translation, outgoing, connection.request.id)
    if outgoing.is_streamed:
        return await _stream_answer(reply, tally, read, rounds, (head, connection.send))
    async for chunk in reply.chunks():
        tally.add(chunk)
        _check_size(tally)
        for _ in read.feed(chunk):
            pass
    for _ in read.end():
        pass
    body = orjson.dumps(WRITERS[translation.source].whole(head, answer))
    return Delivered(body, recalls=answer.recalls, goes_on=_goes_on(answer, rounds))


def check_streamed(reply: UpstreamReply, outgoing: Outgoing) -> None:
    """Raises ProviderError if a translated answer came in one piece, although a stream was asked for."""
    if outgoing.is_translated and reply.status < 400:
        raise ProviderError(
            "the model's server sent its answer in one piece although a stream was asked for: check that its "
            "address and API are right",
            code="not_a_stream",
        )


def _goes_on(answer: CollectedAnswer, rounds: AnswerRounds) -> bool:
    return bool(answer.recalls) and not answer.has_other_calls and not rounds.is_last


async def _stream_answer(
    reply: UpstreamReply,
    tally: Tally,
    read: ForeignAnswer,
    rounds: AnswerRounds,
    to: tuple[AnswerHead, Send],
) -> Delivered:
    head, send = to
    if rounds.writer is None:
        rounds.writer = WRITERS[read.source].stream(head)
        await _send(send, rounds.writer.begin())
    stream = rounds.writer
    try:
        async for chunk in reply.chunks():
            tally.add(chunk)
            await _send(send, (data for part in read.feed(chunk) for data in stream.add(part)))
        await _send(send, (data for part in read.end() for data in stream.add(part)))
    except (ProviderError, ContextOverflowError) as error:
        await relay.piece(send, event(make_refusal(error, read.source), read.source, head.id))
        return Delivered(None, is_broken=True)
    goes_on = _goes_on(read.answer, rounds)
    if not goes_on:
        await _send(send, stream.end(read.answer))
    return Delivered(None, recalls=read.answer.recalls, goes_on=goes_on)


async def _send(send: Send, pieces: Iterator[bytes]) -> None:
    """Sends all that is ready as one piece; nothing if there is none."""
    ready: list[bytes] = []
    try:
        ready.extend(pieces)
    finally:  # what came before an error is sent before it
        await relay.piece(send, b"".join(ready))


def _check_size(tally: Tally) -> None:
    if tally.size > relay.MOST_WHOLE:
        raise ProviderError(
            f"the upstream's answer has more than {relay.MOST_WHOLE:,} bytes", code="answer_too_large"
        )


def _head(translation: Translation, outgoing: Outgoing, request_id: str) -> AnswerHead:
    return AnswerHead(
        id=request_id,
        model=outgoing.model,
        created=int(time.time()),
        asked=translation.asked,
        prompt=outgoing.count.tokens,
        names=translation.names,
    )


def translate_error(
    status: int, body: bytes, translation: Translation, key: Key | None, request_id: str
) -> bytes:
    """Returns the error of an upstream in the form of the client's API; `key` is what it must not show."""
    error = refusal(status, body, key=key)
    kind = "overflow" if isinstance(error, ContextOverflowError) else kind_of_status(status)
    message = str(error)
    if isinstance(error, ContextOverflowError):
        message = make_refusal(error, translation.source).message
    return answer(Refused(kind, message), translation.source, request_id).body
