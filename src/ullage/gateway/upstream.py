"""An upstream: the server of a model, and the request that goes there.

A request is sent with the client's own protocol headers. Its address comes from the configuration alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ullage.broker.dialects import DIALECTS
from ullage.broker.endpoint import Key, Timeouts
from ullage.broker.registry import PROVIDERS, host_of
from ullage.errors import ConfigurationError
from ullage.gateway.gate import secret_of
from ullage.gateway.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.endpoint import Endpoint
    from ullage.gateway.request import Received
    from ullage.target import ApiName

PATIENT = Timeouts(connect=10.0, first=600.0, between=300.0)
"""The times to wait for a server without configured times. They are those of the SDKs, which end a call
sooner if their users want that."""

CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
NOT_SENT = HOP_BY_HOP | {
    "host",
    "content-length",
    "content-encoding",  # the body is sent decompressed
    "accept-encoding",  # the usage is read from the answer
    "expect",
    "cookie",
    "origin",
    "referer",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
}
"""Headers of a request that concern only the way to the gateway."""
NOT_RETURNED = HOP_BY_HOP | {"content-length", "content-encoding", "set-cookie", "alt-svc"}
"""Headers of an answer that concern only the way from the upstream."""
PROTOCOL = ("anthropic-", "openai-", "x-stainless-")
"""The beginnings of the names of headers that belong to the client's API; another API gets none of them."""
RETURNED_TRANSLATED = frozenset({"retry-after", "retry-after-ms", "x-should-retry", "x-request-id"})
"""Headers of an answer that mean the same in all APIs."""
SHORT_NAMES: Mapping[str, ApiName] = {
    "chat": "openai.chat",
    "responses": "openai.responses",
    "messages": "anthropic.messages",
}
"""The names of the three APIs on the command line."""
GATEWAY_APIS = frozenset(SHORT_NAMES.values())
"""The APIs that the gateway serves."""
OURS = "x-ullage-"
"""The beginning of the names of the gateway's own headers."""
_NONE: frozenset[str] = frozenset()
_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A model at a server."""

    endpoint: Endpoint
    """Its address, key, timeouts and configured window; `model` is the name that the server knows."""
    renamed: bool = False
    """True if the body gets the endpoint's name of the model; otherwise the client's name stays."""
    billed_as: str | None = None
    """The name on the bill; None for the name in the request."""
    api: ApiName | None = None
    """The only API that is used, as configured; None if the server may have all three."""
    binds_thinking: bool = False
    """True for Anthropic's own server, which binds signed thinking to the text before it."""

    @property
    def base(self) -> str:
        """The address that the paths of all three APIs are appended to."""
        url = self.endpoint.url
        return f"{url}/v1" if self.endpoint.api == "ollama.chat" else url

    def speaks(self, api: ApiName) -> bool:
        """Returns False if the host is a known provider that does not have this API."""
        apis = _apis_at(self.endpoint.url)
        return not apis or api in apis

    def api_for(self, api: ApiName) -> ApiName | None:
        """Returns the API that a request of a client's API is sent in; None if there is none."""
        if self.api in GATEWAY_APIS:
            return self.api
        if self.speaks(api):
            return api
        return self.endpoint.api if self.endpoint.api in GATEWAY_APIS else None


def api_named(name: str | None, upstream: str | None) -> ApiName | None:
    """Returns the API that the option `--upstream-api` names; it belongs to `--upstream`."""
    if name is None:
        return None
    if upstream is None:
        raise ConfigurationError(
            "--upstream-api belongs to --upstream: a configured model has the setting 'api' instead"
        )
    return SHORT_NAMES[name]


def is_anthropic(url: str) -> bool:
    """Returns True for the address of Anthropic's own server."""
    return host_of(url) == host_of(PROVIDERS["anthropic"].url)


@lru_cache(maxsize=256)
def _apis_at(url: str) -> frozenset[ApiName]:
    """Returns the APIs of a known provider's host; empty for any other host."""
    host = host_of(url)
    return frozenset(
        row.api
        for row in PROVIDERS.values()
        if row.routes is not None and host in (host_of(row.url), *row.hosts)
    )


def make_sent_headers(
    upstream: Upstream, request: Received, api: ApiName, *, own_key: bool, is_translated: bool = False
) -> dict[str, str]:
    """Returns the headers of the request to the upstream.

    The upstream's configured key replaces the client's. `own_key` is True if the client's credentials are its
    own for the upstream; a key of the gateway is never sent on. A translated request has the headers of its
    new API.
    """
    connection = _read_connection(request.header("connection"))
    key = upstream.endpoint.key
    left_out = CREDENTIALS if not own_key or key is not None else _NONE
    sent = {
        name: value
        for name, value in request.headers.items()
        if name not in NOT_SENT
        and not name.startswith(OURS)
        and name not in connection
        and name not in left_out
    }
    if not _VALUE.fullmatch("".join(sent.values())):
        name = next(name for name, value in sent.items() if not _VALUE.fullmatch(value))
        raise Refused("invalid", f"the header {name!r} has characters that are invalid in a header")
    if is_translated:
        secret = secret_of(request) if own_key and key is None else ""
        sent = {
            name: value
            for name, value in sent.items()
            if name not in CREDENTIALS and not name.startswith(PROTOCOL)
        }
        sent |= DIALECTS[api].headers(Key(secret) if secret else key)
    elif key is not None:
        made = DIALECTS[api].headers(key)
        sent |= {name: value for name, value in made.items() if name in CREDENTIALS}
    sent["content-type"] = "application/json"
    sent.update(upstream.endpoint.headers)
    return sent


def select_returned_headers(headers: Mapping[str, str], *, is_translated: bool = False) -> dict[str, str]:
    """Returns the headers of an upstream's answer that go on to the client."""
    if is_translated:
        return {name: value for name, value in headers.items() if name in RETURNED_TRANSLATED}
    connection = _read_connection(headers.get("connection", ""))
    return {
        name: value
        for name, value in headers.items()
        if name not in NOT_RETURNED and name not in connection and not name.startswith(OURS)
    }


def _read_connection(connection: str) -> frozenset[str]:
    """Returns the headers that a Connection header names; they belong to the connection too."""
    return frozenset(each.strip().lower() for each in connection.split(",")) if connection else _NONE


def address_of(upstream: Upstream, path: str, query: str) -> str:
    """Returns the address of a path at the upstream, with the client's query."""
    return f"{upstream.base}{path}?{query}" if query else upstream.base + path
