"""The gate: decides who may use the gateway.

If gateway keys exist, every request needs one. As long as none exists, programs on this machine may use the
gateway, and their own keys go to the upstream. A page in a browser may not: it is refused by its `Origin`, or
by the name that it calls this machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ullage.gateway.refusals import Refused

if TYPE_CHECKING:
    from ullage.cost.keys import GatewayKey
    from ullage.gateway.request import Received
    from ullage.store.keys import KeyStore


CACHED = 1.0
"""Seconds for which a key is not looked up again; a revocation takes effect after twice this time at most."""
MOST_CACHED = 10_000
PROXIED = frozenset({"x-forwarded-for", "forwarded", "x-real-ip"})
"""Headers in which a proxy names its client."""


class Caller(NamedTuple):
    """The sender of a request."""

    name: str
    """The id of the gateway key; empty for a program on this machine without one."""
    own_key: bool
    """True if the credentials in the request are the caller's own for the upstream."""
    key: GatewayKey | None = None


LOCAL = Caller("", own_key=True)


class Gate:
    """Looks up the keys of requests, in a thread, because the store may be on another machine."""

    def __init__(self, keys: KeyStore | None) -> None:
        """Takes the keys; None lets in every program on this machine."""
        self._keys = keys
        self._found: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._exist = False
        self._looked = -CACHED
        self._asking = asyncio.Lock()

    async def admit(self, request: Received) -> Caller:
        """Returns the caller; raises Refused or KeyRefused if it may not use the gateway."""
        if not await self.needs_keys():
            return _admit_local(request)
        secret = secret_of(request)
        digest = hashlib.sha256(secret.encode("utf-8", "replace")).digest()
        at, caller = self._found.get(digest, (-CACHED, LOCAL))
        if caller is LOCAL or time.monotonic() - at >= CACHED:
            caller = await self._find_caller(secret)
            self._found[digest] = time.monotonic(), caller
            self._found.move_to_end(digest)
            if len(self._found) > MOST_CACHED:
                self._found.popitem(last=False)
        return caller

    async def needs_keys(self) -> bool:
        """Returns True if a key was ever made; asks the store at most once a second until then.

        Requests that come while the store is asked wait for its answer.
        """
        if self._keys is None or self._exist or time.monotonic() - self._looked < CACHED:
            return self._exist
        async with self._asking:
            if time.monotonic() - self._looked >= CACHED:
                self._exist = await asyncio.to_thread(self._keys.exist)
                self._looked = time.monotonic()
        return self._exist

    async def _find_caller(self, secret: str) -> Caller:
        if self._keys is None or not secret:
            raise Refused("key", "This gateway needs one of its own keys: ask its owner for one")
        key = await asyncio.to_thread(self._keys.get, secret)
        return Caller(key.id, own_key=False, key=key)


def secret_of(request: Received) -> str:
    """Returns the key in a request, which each API sends in another header; empty if it has none."""
    bearer = request.header("authorization")
    if bearer[:7].lower() == "bearer ":
        return bearer[7:].strip()
    return request.header("x-api-key") or request.header("api-key")


def _admit_local(request: Received) -> Caller:
    """Returns the caller; refuses everybody who is not on this machine, and pages in a browser."""
    check_place(request)
    if request.header("origin") or not is_direct(request):
        raise Refused("forbidden", "A page in a browser may not use this gateway: use a program")
    return LOCAL


def check_place(request: Received) -> None:
    """Refuses a client that is not on this machine, or that calls this machine by another name.

    A proxy on this machine is no client: it may pass on requests of others.
    """
    if not _is_local(request.client):
        raise Refused(
            "key",
            "This gateway has no keys, so only programs on its own machine may use it. Its owner can make "
            "keys with `ullage keys create`",
        )
    if not _is_local(_host(request.header("host"))):
        raise Refused("forbidden", "The request names another host: use http://127.0.0.1 as the address")
    if not PROXIED.isdisjoint(request.headers) and any(map(request.header, PROXIED)):
        raise Refused(
            "forbidden",
            "The gateway is behind a proxy and no key exists. Make one: ullage keys create NAME --admin",
        )


def is_direct(request: Received) -> bool:
    """Returns False if a browser says that a page of another site sends the request."""
    return request.header("sec-fetch-site") in {"", "none", "same-origin"}


@lru_cache(maxsize=1024)
def _is_local(host: str) -> bool:
    """Returns True for an address of this machine; False for a name such as 127.0.0.1.example.com."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@lru_cache(maxsize=1024)
def _host(header: str) -> str:
    """Returns the host in a Host header, without its port; empty if it is invalid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
