"""Opens connections and turns their failures into typed errors: the transport's part that needs aiohttp.

Import this module only to send a request: aiohttp takes about 0.2 s of processor time to load.
"""

from __future__ import annotations

import errno
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from ullage.broker.resolver import DaemonResolver
from ullage.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from contextvars import ContextVar

    from ullage.broker.connections import Connections


class TransportClosed(aiohttp.ClientError):
    """The transport was closed while an answer was read."""


class Connector(aiohttp.TCPConnector):
    """The pool of connections, which notes those of each request so that they can be closed at once."""

    def __init__(self, opened: ContextVar[Connections], roots: bytes) -> None:
        super().__init__(limit=0, resolver=DaemonResolver(), ssl=_trust(roots) if roots else True)
        self._opened = opened

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        """Returns a connection for a request, from the pool or a new one."""
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            self._opened.get().transports.append(connection.transport)
        return connection

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:
        """Opens a connection: the pool has none for this request."""
        self._opened.get().is_new = True
        return await super()._create_connection(req, traces, timeout)


def is_stale(error: BaseException, opened: Connections) -> bool:
    """Returns True if the server had closed a connection of the pool before it could see the request.

    Servers close connections that were idle for some seconds. If a request is on its way just then, the
    connection ends before a byte of an answer.
    """
    if opened.is_new or not isinstance(error, ConnectionError | aiohttp.ClientConnectionError):
        return False
    return isinstance(getattr(error, "message", ""), str)  # otherwise a part of an answer


def _trust(roots: bytes) -> ssl.SSLContext:
    """Returns a context that trusts the usual certificates, and these."""
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cadata=roots.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise ConfigurationError("the additional certificates cannot be read: give them as PEM") from None
    return context


class _Trouble(NamedTuple):
    """A kind of connection failure, and the text and code of its error."""

    kinds: tuple[type[BaseException], ...]
    code: str
    text: str
    may_retry: bool = True


UNTRUSTED = "the certificate of {place} is not trusted here ({cause})"
NO_TLS = "no TLS with {place} ({cause}): is it http:// instead of https://?"
TROUBLES = (
    _Trouble((aiohttp.ClientConnectorCertificateError, ssl.CertificateError), "tls", UNTRUSTED, False),
    _Trouble((aiohttp.ClientSSLError, ssl.SSLError), "tls", NO_TLS, False),
    _Trouble(
        (aiohttp.ConnectionTimeoutError,),
        "timeout",
        "no connection to {place} in time: wait longer (timeouts.connect) or try again",
    ),
    _Trouble(
        (aiohttp.ClientConnectorDNSError,),
        "unknown_host",
        "no such host: {place}. Check the address and the network",
    ),
    _Trouble(
        (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError),
        "connection",
        "the proxy cannot reach {place} ({cause}): check HTTP_PROXY, HTTPS_PROXY and NO_PROXY",
    ),
    _Trouble((ConnectionRefusedError,), "refused", "nothing answers at {place}: is the server running?"),
    _Trouble((aiohttp.ClientConnectorError,), "connection", "no connection to {place} ({cause})"),
    _Trouble((aiohttp.InvalidURL,), "address", "{place} is not a valid address: check it", False),
    _Trouble(
        (aiohttp.ClientResponseError,),
        "connection",
        "{place} does not speak HTTP ({cause}): check the address and the port",
    ),
    _Trouble((BaseException,), "connection", "{place} closed the connection before it answered ({cause})"),
)
"""The failures, by the types of errors; the first row that matches decides."""
CUT = _Trouble((BaseException,), "cut", "{place} closed the connection in the middle of its answer ({cause})")


def describe(error: BaseException, place: str, *, body: bool = False) -> ProviderError:
    """Returns the error to raise for a failure of aiohttp, whose own texts show the whole address."""
    cause = getattr(error, "os_error", error)
    if getattr(cause, "errno", None) == errno.ECONNREFUSED and not _is_proxy(error):
        error = ConnectionRefusedError()
    trouble = CUT if body else next(row for row in TROUBLES if isinstance(error, row.kinds))
    return ProviderError(
        trouble.text.format(place=place, cause=_cause(cause)), code=trouble.code, may_retry=trouble.may_retry
    )


def _is_proxy(error: BaseException) -> bool:
    return isinstance(error, aiohttp.ClientProxyConnectionError)


def _cause(error: BaseException) -> str:
    """Returns a few words about an error, without any text that could hold an address or a header."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).replace("_", " ").lower()
    if isinstance(error, aiohttp.ClientResponseError) and error.status:
        return f"status {error.status}"
    words = getattr(error, "strerror", None)
    return words if isinstance(words, str) and "://" not in words else type(error).__name__
