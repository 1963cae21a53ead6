"""Logins: who may see the page.

With gateway keys, a browser logs in with an admin key and gets a random token in a cookie. The tokens are in
memory only. Without any key, the page is open to browsers on the gateway's own machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.cost.keys import check_time
from ullage.errors import KeyRefused
from ullage.gateway.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.gateway.gate import Gate
    from ullage.store.keys import KeyStore

LASTS = 12 * 3600.0
"""Seconds for which a login lasts."""
MOST_LOGINS = 100
"""Most logins at once; the oldest ends first."""
ATTEMPTS, PERIOD = 5, 60.0
"""Most wrong keys from one address, and the seconds in which they count."""
MOST_ADDRESSES = 1_000
CHECKED = 2.0
"""Seconds for which the keys are not read again; a revoked key ends its logins after this time."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser that may see the page."""

    digest: bytes
    """The hash of its token; empty for a browser on this machine while no key exists."""
    key: str
    """The id of its admin key; empty without one."""
    expires: float
    """The time at which the login ends, on the clock of `Logins`."""


NEIGHBOUR = Visitor(b"", "", float("inf"))
"""Any browser on this machine, while no key exists."""


class Attempts:
    """The wrong keys of each address, in bounded memory."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises Refused if too many wrong keys came from an address."""
        wrong = self._wrong.get(address)
        if wrong is not None and len(wrong) == ATTEMPTS:
            wait = wrong[0] + PERIOD - self._clock()
            if wait > 0:
                raise Refused("rate", f"Too many wrong keys: try again in {wait:.0f} s", retry_after=wait)

    def add(self, address: str) -> None:
        """Notes a wrong key."""
        self._wrong.setdefault(address, deque(maxlen=ATTEMPTS)).append(self._clock())
        self._wrong.move_to_end(address)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)


class Logins:
    """The browsers that are logged in; used on one event loop."""

    def __init__(self, gate: Gate, keys: KeyStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._gate = gate
        self._keys = keys
        self._clock = clock
        self._visitors: OrderedDict[bytes, Visitor] = OrderedDict()
        self._attempts = Attempts(clock)
        self._admins: frozenset[str] = frozenset()
        self._read_at = -CHECKED
        self._lock = asyncio.Lock()

    async def enter(self, secret: str, address: str) -> str:
        """Returns the token for a browser that knows an admin key; raises Refused for any other key."""
        self._attempts.check(address)
        try:
            key = await asyncio.to_thread(self._keys.get, secret)
        except KeyRefused as error:
            self._attempts.add(address)
            raise Refused("key", str(error)) from None
        if not key.is_admin:
            self._attempts.add(address)
            raise Refused(
                "forbidden",
                "This key may not see the page. Make one that may: ullage keys create NAME --admin",
            )
        token = secrets.token_urlsafe(32)
        digest = _digest(token)
        self._visitors[digest] = Visitor(digest, key.id, self._clock() + LASTS)
        if len(self._visitors) > MOST_LOGINS:
            self._visitors.popitem(last=False)
        self._read_at = -CHECKED
        return token

    def leave(self, token: str) -> None:
        """Ends the login with this token."""
        self._visitors.pop(_digest(token), None)

    async def find(self, token: str) -> Visitor | None:
        """Returns the visitor with this token; None if the login has ended."""
        visitor = self._visitors.get(_digest(token))
        return visitor if visitor is not None and await self.is_valid(visitor) else None

    async def is_valid(self, visitor: Visitor) -> bool:
        """Returns True as long as a visitor is logged in and its key is valid."""
        if visitor is NEIGHBOUR:
            return not await self._gate.needs_keys()
        if self._clock() >= visitor.expires or visitor.key not in await self._valid_admins():
            self._visitors.pop(visitor.digest, None)
        return visitor.digest in self._visitors

    async def _valid_admins(self) -> frozenset[str]:
        """Returns the ids of the valid admin keys."""
        async with self._lock:
            if self._clock() - self._read_at >= CHECKED:
                self._admins = await asyncio.to_thread(self._read_admins)
                self._read_at = self._clock()
            return self._admins

    def _read_admins(self) -> frozenset[str]:
        found = set()
        for key in self._keys.all():
            try:
                check_time(key)
            except KeyRefused:
                continue
            if key.is_admin:
                found.add(key.id)
        return frozenset(found)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
