"""Relays an answer to the client: the same bytes, as they come.

An event of a stream that is not complete yet is held back until it is. The client could not read it anyway,
and if the upstream breaks off, an error event can follow in its place.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ullage.errors import ProviderError
from ullage.gateway.refusals import Refused, event, make_refusal
from ullage.gateway.request import Disconnected
from ullage.gateway.served_request import ServedRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ullage.gateway.connections import UpstreamReply
    from ullage.gateway.request import Receive, Send
    from ullage.gateway.tally import Tally
    from ullage.target import ApiName

MOST_HELD = 1024 * 1024
"""Most bytes of an unfinished event that are held back."""
UNWATCHED = 0.05
"""Seconds after which a foreign ASGI server is asked if the client has gone away."""
HIGHEST = 599
"""Highest status of an answer. Some servers send others, which the server of the gateway cannot send."""
BAD_GATEWAY = 502
MOST_WHOLE = 64 * 1024 * 1024
"""Most bytes of an answer that is not a stream."""


class ClientWatch:
    """Cancels the task in a block if the client goes away, and raises Disconnected then.

    Our own server tells that at once. Any other server must be asked, by a task that waits. It reports the
    end of the answer as a disconnection too, so the end must be sent after the block. Most short answers are
    complete before such a task would begin, so they need none.
    """

    __slots__ = ("_has_left", "_receive", "_start", "_task", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_left = False
        self._start: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        if isinstance(self._receive, ServedRequest):
            self._receive.tell_lost(self._cancel)
        else:
            loop = asyncio.get_running_loop()
            self._start = loop.call_later(UNWATCHED, self._begin, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._receive, ServedRequest):
            self._receive.tell_lost(None)
        if self._start is not None:
            self._start.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if (
            self._has_left
            and isinstance(error, asyncio.CancelledError)
            and self._task is not None
            and self._task.uncancel() == 0
        ):
            raise Disconnected from None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watcher = loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _cancel(self) -> None:
        self._has_left = True
        if self._task is not None:
            self._task.cancel()


async def start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Sends the beginning of an answer; a status that HTTP does not have becomes 502."""
    status = status if status <= HIGHEST else BAD_GATEWAY
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})


async def whole(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Sends an answer of one piece."""
    await start(send, status, {**headers, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


async def piece(send: Send, body: bytes) -> None:
    """Sends a piece of a stream; nothing if it is empty."""
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def end(send: Send) -> None:
    """Sends the end of a stream."""
    await send({"type": "http.response.body", "body": b""})


async def stream(
    reply: UpstreamReply, send: Send, tally: Tally, api: ApiName, request_id: str
) -> Refused | None:
    """Relays a stream; if it breaks off, sends an error event and returns the error."""
    held = b""
    failure: Refused | None = None
    try:
        async for chunk in reply.chunks():
            tally.add(chunk)
            ready, held = _complete_events(held + chunk if held else chunk)
            if ready:
                await send({"type": "http.response.body", "body": ready, "more_body": True})
    except ProviderError as error:
        failure = make_refusal(error, api)
    else:
        if not tally.is_complete():
            failure = Refused("upstream", "The upstream ended its answer before it was complete. Ask again.")
        elif held:
            await send({"type": "http.response.body", "body": held, "more_body": True})
    if failure is not None:
        last = event(failure, api, request_id)
        await send({"type": "http.response.body", "body": last, "more_body": True})
    return failure


def _complete_events(data: bytes) -> tuple[bytes, bytes]:
    """Returns the bytes up to the end of the last complete event, and the rest."""
    if data.endswith((b"\n\n", b"\r\n\r\n")) or len(data) > MOST_HELD:
        return data, b""
    end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\r\n\r\n") + 4)
    return (b"", data) if end < 4 and not data.startswith(b"\n\n") else (data[:end], data[end:])


async def read_whole(reply: UpstreamReply, tally: Tally) -> bytes:
    """Returns an answer that is not a stream; raises ProviderError if it breaks off or is too large."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in reply.chunks():
        pieces.append(chunk)
        size += len(chunk)
        tally.add(chunk)
        if size > MOST_WHOLE:
            raise ProviderError(
                f"the upstream's answer has more than {MOST_WHOLE:,} bytes", code="answer_too_large"
            )
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def check_status(reply: UpstreamReply) -> None:
    """Raises ProviderError if the upstream redirects: a client that followed it would leave the gateway."""
    if 300 <= reply.status < 400:
        place = reply.headers.get("location", "")[:200]
        raise ProviderError(
            f"the upstream redirects to {place or 'another address'} (status {reply.status}): configure that "
            "address instead",
            code="redirect",
        )


def check_whole(reply: UpstreamReply, body: bytes) -> None:
    """Raises ProviderError if a success is no JSON object, such as the page of a proxy."""
    if reply.status < 400 and not (body[:64].lstrip()[:1] == b"{" and body[-64:].rstrip()[-1:] == b"}"):
        kind = reply.headers.get("content-type", "")[:100] or "no content"
        raise ProviderError(
            f"the upstream answered with status {reply.status} and {kind}, but not with a JSON object: check "
            "its address",
            code="not_json",
            sent=True,
        )
