"""The provider for every model behind HTTP: post, check, frame, read; try again while nothing has come."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import orjson

from ullage.broker.events import Finished, Used
from ullage.broker.http import Transport, address
from ullage.broker.refusals import MOST_TEXT, clean, refusal
from ullage.broker.retry import DEFAULT, delay
from ullage.errors import ConfigurationError, InvalidRequest, ProviderError, StreamBroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ullage.broker.dialect import Dialect
    from ullage.broker.endpoint import Endpoint
    from ullage.broker.events import Event
    from ullage.broker.http import Reply
    from ullage.broker.provider import Ask
    from ullage.broker.retry import Retries

MOST_REFUSAL = 64 * 1024
"""Bytes of a refusal that are read."""
GRACE = 2.0
"""Seconds for what may come after the end of the answer, which is its usage at most."""


class RemoteProvider:
    """A model at an endpoint; a transport that is given stays open when the provider is closed."""

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport | None = None,
        retries: Retries = DEFAULT,
        *,
        dialect: Dialect | None = None,
    ) -> None:
        self.model = endpoint.model
        self.endpoint = _plain(endpoint.url)
        self._endpoint = endpoint
        self._given = transport
        self._own: Transport | None = None
        self._retries = retries
        self._dialect = dialect or _dialect(endpoint.api)
        self._rng = random.Random()  # noqa: S311 - spreads retries, hides nothing

    async def stream(self, ask: Ask) -> AsyncGenerator[Event, None]:
        """What the model answers, as it comes; Finished is the last event or an error is raised."""
        body = self._body(ask)
        attempt = 0
        while True:
            attempt += 1
            begun = False
            error: ProviderError | None = None
            try:
                async with aclosing(self._once(body)) as events:
                    async for event in events:
                        begun = begun or not isinstance(event, Used)  # the next try tells its own
                        yield event
            except ProviderError as fault:
                error = self._shown(fault, begun=begun)
            if error is None:
                return
            wait = delay(error, attempt, self._rng, self._retries)
            if wait is None:
                raise error  # outside of the handler: the error that it replaces may show the key
            await asyncio.sleep(wait)

    async def window(self) -> int | None:
        """The context window as the server tells it."""
        from ullage.broker.windows import window_of  # noqa: PLC0415 - only who asks needs it

        return await window_of(self._endpoint, await self._transport())

    async def count(self, ask: Ask) -> int | None:
        """What the server counts for the whole request."""
        from ullage.broker.counting import count_of  # noqa: PLC0415 - the same

        return await count_of(self._endpoint, await self._transport(), ask)

    async def close(self) -> None:
        """Closes the transport, if it is its own."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    async def _transport(self) -> Transport:
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = Transport()
            await self._own.__aenter__()
        return self._own

    def _body(self, ask: Ask) -> bytes:
        try:
            return orjson.dumps(self._dialect.body(self.model, ask))
        except TypeError as error:
            raise InvalidRequest(f"it cannot be written as JSON: {error}", api=self._endpoint.api) from None

    def _shown(self, fault: ProviderError, *, begun: bool) -> ProviderError:
        """The error as it may be seen: without the key, which a dialect's reader does not know.

        An answer is broken where a part of it was handed on; where nothing was, another try may help.
        """
        kind = StreamBroken if begun else ProviderError
        key = self._endpoint.key
        return kind(
            clean(fault.reason, key, 2 * MOST_TEXT),
            status=fault.status,
            code=None if fault.code is None else clean(fault.code, key),
            may_retry=not begun and (fault.may_retry or isinstance(fault, StreamBroken)),
            retry_after=fault.retry_after,
        )

    async def _once(self, body: bytes) -> AsyncGenerator[Event, None]:
        """One try. The end of the answer is held back until nothing more can come."""
        endpoint = self._endpoint
        headers = {
            "content-type": "application/json",
            **self._dialect.headers(endpoint.key),
            **endpoint.headers,
        }
        url = _joined(endpoint.url, self._dialect.path)
        transport = await self._transport()
        async with transport.post(url, headers, body, endpoint.timeouts) as reply:
            if not 200 <= reply.status < 300:
                raise await self._refused(reply)
            finished: Finished | None = None
            try:
                async with aclosing(self._read(reply)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            finished = event
                            reply.between = min(reply.between, GRACE)
                        else:
                            yield event
            except ProviderError:
                if finished is None:
                    raise
        if finished is None:
            raise StreamBroken(f"{address(url)} ended its answer without saying that it was at its end")
        yield finished

    async def _read(self, reply: Reply) -> AsyncGenerator[Event, None]:
        framer, reader = self._dialect.framer(), self._dialect.reader()
        start = b""
        framed = False
        async with aclosing(reply.chunks()) as chunks:
            async for chunk in chunks:
                if not framed:
                    start = (start + chunk)[:MOST_REFUSAL]
                for frame in framer.feed(chunk):
                    framed = True
                    for event in reader.read(frame):
                        yield event
        for frame in framer.end():
            framed = True
            for event in reader.read(frame):
                yield event
        if not framed:
            raise self._unread(start)
        for event in reader.end():
            yield event

    def _unread(self, start: bytes) -> Exception:
        """The error of an answer in which there was no stream."""
        place = address(self._endpoint.url)
        if start.lstrip()[:1] in {b"{", b"["} and b'"error"' in start:
            return refusal(None, start, key=self._endpoint.key)
        shown = clean(start[:200].decode("utf-8", "replace"), self._endpoint.key, 100)
        return ProviderError(
            f"{place} answered with something that is no stream ({shown or 'nothing'}): check the address "
            f"and that it speaks {self._endpoint.api}",
            code="not_a_stream",
        )

    async def _refused(self, reply: Reply) -> Exception:
        key = self._endpoint.key
        if 300 <= reply.status < 400:
            place = address(reply.headers.get("location", ""))
            return ProviderError(
                f"{self.endpoint} redirects to {place}, and no redirect is followed: set the right address",
                status=reply.status,
                code="redirect",
            )
        try:
            body = await reply.read(MOST_REFUSAL)
        except ProviderError:  # the status says enough
            body = b""
        return refusal(reply.status, body, key=key, headers=reply.headers)


def _dialect(api: str) -> Dialect:
    from ullage.broker.dialects import DIALECTS  # noqa: PLC0415 - a dialect of one's own needs no table

    if api not in DIALECTS:
        raise ConfigurationError(f"no provider speaks {api!r}: use one of {', '.join(sorted(DIALECTS))}")
    return DIALECTS[api]


def _joined(url: str, path: str) -> str:
    """The address of a path below another; a query, such as a version, stays at the end."""
    base, mark, query = url.partition("?")
    return base.rstrip("/") + path + mark + query


def _plain(url: str) -> str:
    """The address without a name, a password or a query in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError(f"{address(url)}: give one such as https://api.example.com/v1") from None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
