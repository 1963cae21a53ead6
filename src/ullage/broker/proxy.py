"""Finds the proxy for an address in the environment: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.

Addresses of this machine have no proxy, because on the proxy's machine they mean another server.
"""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SPOKEN = frozenset({"http", "https"})
"""The schemes of proxies that Ullage can use."""


class Proxy(NamedTuple):
    """A proxy, and the headers for it."""

    url: str
    """The address without a name and a password."""
    headers: dict[str, str]
    """A header with the name and the password, if the environment has them."""


def is_loopback(url: str) -> bool:
    """Returns True if an address is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host in {"localhost", "::1"} or host.startswith("127.")


def proxy_for(url: str) -> Proxy | None:
    """Returns the proxy for an address; None for a direct connection."""
    from urllib import request  # noqa: PLC0415 - it is heavy

    if is_loopback(url):
        return None
    parts = urlsplit(url)
    named = request.getproxies_environment()
    found = named.get(parts.scheme) or named.get("all")
    host = parts.hostname or ""
    place = host if parts.port is None else f"{host}:{parts.port}"
    if not found or _bypasses(place, named) or _in_networks(host, named.get("no", "")):
        return None
    scheme = found.partition("://")[0] if "://" in found else "http"
    try:
        proxy = urlsplit(found if "://" in found else f"http://{found}")
        usable = scheme in SPOKEN and bool(proxy.hostname) and proxy.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            f"the proxy for {parts.scheme}:// addresses cannot be used ({scheme}://…): "
            "set it to an http:// address, or name the host in NO_PROXY"
        )
    userinfo, _, netloc = proxy.netloc.rpartition("@")
    headers = {"Proxy-Authorization": basic(userinfo)} if userinfo else {}
    return Proxy(urlunsplit((proxy.scheme, netloc, proxy.path, "", "")), headers)


def basic(userinfo: str) -> str:
    """Returns the value of an authorization header for a name and a password in an address."""
    name, _, password = userinfo.partition(":")
    return "Basic " + b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()


def _bypasses(place: str, named: Mapping[str, str]) -> bool:
    """Returns True if NO_PROXY names a host, or a domain that it belongs to."""
    from urllib import request  # noqa: PLC0415 - it is heavy

    bypass: Callable[[str, Mapping[str, str]], object] = request.proxy_bypass_environment  # type: ignore[attr-defined]
    return bool(bypass(place, named))


def _in_networks(host: str, excepted: str) -> bool:
    """Returns True if NO_PROXY has a network, such as 10.0.0.0/8, that the host belongs to."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    for each in excepted.split(","):
        try:
            if "/" in each and number in ipaddress.ip_network(each.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False
