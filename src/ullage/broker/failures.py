"""The errors of a request whose server is late or cannot be reached, or whose connection breaks off.

They name the server by scheme, host and port, and say what to do.
"""

from __future__ import annotations

from functools import cache

from ullage.errors import ProviderError


def stalled(place: str, seconds: float, *, first: bool, sent: bool = False) -> ProviderError:
    """Returns the error for a timeout; `sent` is True if the request may be charged."""
    seconds = round(seconds, 2)  # the last try has only the time that the others left
    if first:
        text = (
            f"{place} did not begin to answer within {seconds:g} s: wait longer (timeouts.first) or ask again"
        )
    else:
        text = (
            f"{place} stopped in the middle of its answer: nothing came for {seconds:g} s. Wait longer "
            "(timeouts.between) or ask again"
        )
    return ProviderError(text, code="timeout", may_retry=True, sent=sent)


def transport_closed(place: str) -> ProviderError:
    """Returns the error of a call whose transport was closed."""
    return ProviderError(f"the transport was closed while {place} was answering", code="closed")


@cache
def client_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that aiohttp and the network raise."""
    from aiohttp import ClientError  # noqa: PLC0415 - only who sends needs the client

    return (ClientError, OSError)


def describe_error(error: BaseException, place: str, *, body: bool = False) -> ProviderError:
    """Returns the typed error for one of `client_errors`; `body` is True if the answer had begun."""
    from ullage.broker.connector import TransportClosed, describe  # noqa: PLC0415 - the same

    if isinstance(error, TransportClosed):
        return transport_closed(place)
    return describe(error, place, body=body)
