"""The provider for models behind HTTP: sends, reads, and tries again while nothing has come."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from ullage.broker.dialect import Progress
from ullage.broker.events import Finished, Reasoning, Retrying, Text, ToolCall, Used
from ullage.broker.http import Transport, address
from ullage.broker.jsontext import dump
from ullage.broker.refusals import MOST_TEXT, clean, refusal
from ullage.broker.retry import DEFAULT, delay
from ullage.errors import (
    ConfigurationError,
    ContextOverflowError,
    InvalidRequest,
    ProviderError,
    StreamBroken,
)
from ullage.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ullage.broker.ask import Ask
    from ullage.broker.dialect import Dialect, Frame, Framer
    from ullage.broker.endpoint import Endpoint, Timeouts
    from ullage.broker.endpoint_counter import EndpointCounter
    from ullage.broker.events import Event
    from ullage.broker.http import Reply
    from ullage.broker.retry import Retries
    from ullage.broker.tokenizer import ServerTokenizer
    from ullage.target import ApiName

MOST_REFUSAL = 64 * 1024
"""Most bytes of a refusal that are read."""
REFUSAL_SECONDS = 5.0
"""Seconds for the body of a refusal; the status alone says most of it."""
GRACE = 2.0
"""Seconds for all that may come after the end of the answer, which is usually its usage."""
MOST_ANSWER = 8 * 1024 * 1024
"""Most characters of an answer: more than 700,000 tokens of one piece each, and no model writes as many."""
PIECE = 8
"""Characters that each piece of an answer counts in addition to its text, because it takes memory too."""


class RemoteProvider:
    """A model at an endpoint; if a transport is given, closing the provider leaves it open."""

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport | None = None,
        retries: Retries = DEFAULT,
        *,
        dialect: Dialect | None = None,
        counter: EndpointCounter | None = None,
    ) -> None:
        self.target = Target(model=endpoint.model, api=endpoint.api, endpoint=_plain(endpoint.url))
        self._endpoint = endpoint
        self._given = transport
        self._own: Transport | None = None
        self._retries = retries
        self._dialect = dialect or _dialect(endpoint.api)
        self._counter = counter  # shared by the session, so that another provider need not ask again
        self._rng = random.Random()  # noqa: S311 - it only spreads retries

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        """Streams the answer of the model; Finished is the last event, or an error is raised.

        All tries together have `timeouts.begin` seconds until the answer begins.
        """
        body = self._body(ask)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._endpoint.timeouts.all_tries
        attempt, sent = 0, False
        while True:
            attempt += 1
            begun = False
            error: ProviderError | None = None
            try:
                async with aclosing(self._once(body, self._waits(end - loop.time()))) as events:
                    async for event in events:
                        begun = begun or not isinstance(event, Used)  # the next try has its own usage
                        yield event
            except ProviderError as fault:
                sent = sent or fault.sent
                error = self._clean_error(fault, begun=begun, sent=sent)
            if error is None:
                return
            wait = delay(error, attempt, self._rng, self._retries)
            late = not begun and loop.time() + (wait or 0.0) >= end
            if wait is None or late:
                # Outside the handler, because the error that it replaces may show the key.
                raise self._overdue(error, attempt) if late and error.code == "timeout" else error
            if ask.tell_retries:
                yield Retrying(attempt, wait, error.reason)
            await asyncio.sleep(wait)

    async def window(self) -> int | None:
        """Returns the context window that the server states; None if it states none."""
        from ullage.broker.window_routes import window_of  # noqa: PLC0415 - only who asks needs it

        return await window_of(self._endpoint, await self._transport())

    async def count(self, ask: Ask) -> int | None:
        """Returns the server's count of the whole request; None if it cannot count."""
        return await self._counts().count_of(self._endpoint, await self._transport(), ask)

    def tokenizer(self) -> ServerTokenizer:
        """Returns the tokenizer of the server, which counts texts if the server does."""
        from ullage.broker.tokenizer import ServerTokenizer  # noqa: PLC0415 - only who asks needs it

        return ServerTokenizer(self._endpoint, self.target, self._transport, self._counts())

    async def close(self) -> None:
        """Closes the transport, unless it was given."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    def _counts(self) -> EndpointCounter:
        from ullage.broker.endpoint_counter import EndpointCounter  # noqa: PLC0415 - the same

        if self._counter is None:
            self._counter = EndpointCounter(use_endpoint=True)
        return self._counter

    async def _transport(self) -> Transport:
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = Transport()
            await self._own.__aenter__()
        return self._own

    def _body(self, ask: Ask) -> bytes:
        try:
            return dump(self._dialect.body(self._endpoint.model, ask))
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"it cannot be written as JSON: {error}", api=self._endpoint.api) from None

    def _waits(self, left: float) -> Timeouts:
        """Returns the time limits of one try, within the `left` seconds that all tries still have."""
        waits, left = self._endpoint.timeouts, max(left, 0.001)
        return replace(waits, connect=min(waits.connect, left), first=min(waits.first, left))

    def _overdue(self, error: ProviderError, attempts: int) -> ProviderError:
        """Returns the last error of a turn that did not begin in time."""
        tries = "1 try" if attempts == 1 else f"{attempts} tries"
        return ProviderError(
            f"no answer began within {self._endpoint.timeouts.all_tries:g} s ({tries}). The last one: "
            f"{error.reason}. Wait longer (timeouts.begin), or ask again later",
            status=error.status,
            code=error.code,
            may_retry=True,
            retry_after=error.retry_after,
            sent=error.sent,
        )

    def _clean_error(self, fault: ProviderError, *, begun: bool, sent: bool) -> ProviderError:
        """Returns the error as it may be shown: without the key, which a dialect's reader does not know.

        If a part of the answer was handed on, the answer is broken; if not, another try may help.
        """
        kind = StreamBroken if begun else ProviderError
        key = self._endpoint.key
        return kind(
            clean(fault.reason, key, 2 * MOST_TEXT),
            status=fault.status,
            code=None if fault.code is None else clean(fault.code, key),
            may_retry=not begun and (fault.may_retry or isinstance(fault, StreamBroken)),
            retry_after=fault.retry_after,
            sent=sent,
        )

    async def _once(self, body: bytes, timeouts: Timeouts) -> AsyncGenerator[Event, None]:
        """Makes one try. The last event is held back until nothing more can come."""
        endpoint = self._endpoint
        headers = {
            "content-type": "application/json",
            **self._dialect.headers(endpoint.key),
            **endpoint.headers,
        }
        url = _join_path(endpoint.url, self._dialect.path)
        transport = await self._transport()
        finished: Finished | None = None
        async with transport.post(url, headers, body, timeouts) as reply:
            if not 200 <= reply.status < 300:
                raise await self._read_refusal(reply)
            async with aclosing(self._read(reply)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        finished = event
                    else:
                        yield event
        if finished is None:
            raise StreamBroken(f"{address(url)} closed its answer before the end: ask again")
        yield finished

    async def _read(self, reply: Reply) -> AsyncGenerator[Event, None]:
        """Yields the events of an answer. After the model has ended the answer, a failure changes nothing."""
        reader = self._dialect.reader()
        loop = asyncio.get_running_loop()
        size, has_part = 0, False
        try:
            try:
                async with aclosing(self._frames(reply, self._dialect.framer())) as frames:
                    async for frame in frames:
                        for event in reader.read(frame):
                            piece = _size(event)
                            if piece:
                                reply.renew()
                            size += piece
                            if size > MOST_ANSWER:
                                raise self._too_large()
                            if isinstance(event, Progress):
                                has_part = has_part or event.size > 0
                            else:
                                handed = loop.time()
                                yield event
                                reply.prolong(loop.time() - handed)
                        if reader.whole:
                            reply.end_within(GRACE)
            except (ProviderError, ContextOverflowError):
                if not reader.whole:
                    raise
            for event in reader.end():
                yield event
        except ProviderError as error:
            # Pieces of a call are not handed on before it is whole, but they are charged.
            error.sent = error.sent or has_part
            raise

    async def _frames(self, reply: Reply, framer: Framer) -> AsyncGenerator[Frame, None]:
        """Yields the frames of an answer; raises ProviderError if there are none."""
        start = bytearray()
        framed = False
        async with aclosing(reply.chunks(renewing=False)) as chunks:
            async for chunk in chunks:
                if not framed and len(start) < MOST_REFUSAL:
                    start += chunk[:MOST_REFUSAL]
                for frame in framer.feed(chunk):
                    framed = True
                    yield frame
        for frame in framer.end():
            framed = True
            yield frame
        if not framed:
            raise self._unread(bytes(start))

    def _too_large(self) -> ProviderError:
        return ProviderError(
            f"the answer of {address(self._endpoint.url)} has more than {MOST_ANSWER:,} characters, which no "
            "model writes. The text so far is kept. Check the server, or set a smaller max_output",
            code="answer_too_large",
        )

    def _unread(self, start: bytes) -> Exception:
        """Returns the error for an answer that has no stream."""
        place = address(self._endpoint.url)
        if start.lstrip()[:1] in {b"{", b"["} and b'"error"' in start:
            return refusal(None, start, key=self._endpoint.key)
        shown = clean(start.decode("utf-8", "replace"), self._endpoint.key, 100)
        return ProviderError(
            f"{place} answered, but not with a stream ({shown or 'nothing'}): check the address "
            f"and that it speaks {self._endpoint.api}",
            code="not_a_stream",
        )

    async def _read_refusal(self, reply: Reply) -> Exception:
        key = self._endpoint.key
        if 300 <= reply.status < 400:
            place = address(reply.headers.get("location", ""))
            return ProviderError(
                f"{self.target.endpoint} redirects to {place}, but Ullage follows no redirects: "
                "set the right address",
                status=reply.status,
                code="redirect",
            )
        body = await reply.read_start(MOST_REFUSAL, REFUSAL_SECONDS)
        return refusal(reply.status, body, key=key, headers=reply.headers)


def _size(event: Event | Progress) -> int:
    """Returns the size that an event adds to the answer; 0 if it is not a part of it."""
    if isinstance(event, Text | Reasoning):
        return len(event.text) + PIECE
    if isinstance(event, Progress):
        return event.size + PIECE
    return PIECE if isinstance(event, ToolCall) else 0  # its arguments were counted piece by piece


def _dialect(api: ApiName) -> Dialect:
    from ullage.broker.dialects import DIALECTS  # noqa: PLC0415 - a caller's own dialect needs no table

    if api not in DIALECTS:
        raise ConfigurationError(f"unknown API {api!r}: use one of {', '.join(sorted(DIALECTS))}")
    return DIALECTS[api]


def _join_path(url: str, path: str) -> str:
    """Returns the address of a path below another one; a query, such as a version, stays at the end."""
    base, mark, query = url.partition("?")
    return base.rstrip("/") + path + mark + query


def _plain(url: str) -> str:
    """Returns the address without name, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError(
            f"{address(url)} is not a valid address: use one such as https://api.example.com/v1"
        ) from None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
