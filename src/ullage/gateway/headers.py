"""The headers of an exchange: those of the request to the upstream, and those of the answer to the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.gateway.bound_thoughts import with_beta
from ullage.gateway.upstream import make_sent_headers, select_returned_headers

if TYPE_CHECKING:
    from ullage.gateway.connections import UpstreamReply
    from ullage.gateway.gate import Caller
    from ullage.gateway.preparation import Outgoing
    from ullage.gateway.request import Received

STREAM = "text/event-stream; charset=utf-8"
LONGEST = 500
"""Most characters of a header with a text of the request in it."""


def request_headers(outgoing: Outgoing, request: Received, caller: Caller) -> dict[str, str]:
    """Returns the headers of the request to the upstream."""
    headers = make_sent_headers(
        outgoing.upstream,
        request,
        outgoing.api,
        own_key=caller.own_key,
        is_translated=outgoing.is_translated,
    )
    return with_beta(headers) if outgoing.drops_unbound else headers


def answer_headers(reply: UpstreamReply, request: Received, outgoing: Outgoing) -> dict[str, str]:
    """Returns the headers of the answer to the client."""
    returned = select_returned_headers(reply.headers, is_translated=outgoing.is_translated)
    return returned | _own_headers(request, outgoing)


def stream_headers(reply: UpstreamReply, request: Received, outgoing: Outgoing) -> dict[str, str]:
    """Returns the headers of a stream to the client."""
    headers = answer_headers(reply, request, outgoing)
    return headers | {"content-type": STREAM} if outgoing.is_translated else headers


def _own_headers(request: Received, outgoing: Outgoing) -> dict[str, str]:
    """Returns the gateway's own headers of an answer."""
    headers = {"x-ullage-request-id": request.id, "x-ullage-tokens": str(outgoing.count.tokens)}
    if outgoing.limit is not None:
        headers["x-ullage-limit"] = str(outgoing.limit)
    fitted = outgoing.fitted
    if fitted is not None:
        headers["x-ullage-dropped"] = str(fitted.dropped)
        headers["x-ullage-truncated"] = str(fitted.truncated)
        headers["x-ullage-recalled"] = str(len(fitted.recalled))
        if fitted.changed:
            headers["x-ullage-tokens-before"] = str(fitted.tokens_before)
    if outgoing.is_lowered:
        headers["x-ullage-max-output"] = str(outgoing.most_output)
    if outgoing.translation is not None:
        headers["x-ullage-translated"] = outgoing.api
        if outgoing.translation.left_out:
            headers["x-ullage-left-out"] = _plain(", ".join(outgoing.translation.left_out))
    if outgoing.unread:
        headers["x-ullage-unread"] = _plain(outgoing.unread)
    return headers


def _plain(text: str) -> str:
    """Returns a text as a header may hold it: printable ASCII, so that it cannot begin another header."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return shown.encode("ascii", "replace").decode()[:LONGEST]
