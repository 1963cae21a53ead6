"""Counts by the server that runs the model: of a text, and of a whole request in the server's own way.

A server is asked on first use, for two seconds at most; whether it can count is remembered for as long
as the counter lives, by address and model, and is kept nowhere else. What goes wrong is no error: a text
is then counted here, and a whole request's count is None.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ullage.broker.ways import TEXTS, TIMEOUT, exchange, request_ways, root
from ullage.errors import ConfigurationError, InvalidRequest
from ullage.tokens import counter_for
from ullage.tokens.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.broker.endpoint import Endpoint
    from ullage.broker.http import Transport
    from ullage.broker.provider import Ask
    from ullage.broker.ways import Way

ESTIMATE = "estimate"
FALLBACKS = (ESTIMATE, *RULES)
"""What counts a text that the server does not: Ullage's own counter for the model, or a plain rule."""

MOST = 100_000_000
"""A count of a request above this is no count: no window is as large."""
GONE = frozenset({0, 401, 403, 408, 429, 502, 503, 504, 529})
"""Statuses after which no other way is tried: nobody is there, or nobody who would count for us now."""

CHARS_A_TOKEN_AT_WORST = RULES["chars/3.5"]


class Place(NamedTuple):
    """What an answer is remembered by."""

    address: str
    model: str
    what: str
    """`request`, or the kind of server whose way of counting texts was tried."""


class EndpointCounter:
    """Asks servers for counts, and remembers which of them can tell; off unless `use_endpoint`."""

    def __init__(self, *, use_endpoint: bool = False, fallback: str = ESTIMATE) -> None:
        if fallback not in FALLBACKS:
            raise ConfigurationError(f"unknown fallback {fallback!r}; one of {', '.join(FALLBACKS)}")
        self.use_endpoint = use_endpoint
        self.fallback = fallback
        self._found: dict[Place, Way | None] = {}
        self._probing: dict[tuple[Place, asyncio.AbstractEventLoop], asyncio.Lock] = {}

    async def token_count(
        self, endpoint: Endpoint, text: str, transport: Transport, *, kind: str = "llama.cpp"
    ) -> int:
        """The tokens of `text` by the endpoint's `/tokenize`, else by the fallback; never raises.

        `kind` names the server where it is not llama.cpp: a key of `ways.TEXTS`.
        """
        if not text:
            return 0
        way = TEXTS.get(kind)
        size = _bytes_of(text)
        if way is not None and size is not None:
            # Even a vocabulary of single bytes that takes characters apart stays below this.
            counted = await self._counted(
                _place(endpoint, kind), (way,), endpoint, transport, text, 4 * size + 16
            )
            if counted is not None:
                return counted
        return self._estimated(endpoint.model, text)

    def tokenize_supported(self, endpoint: Endpoint, *, kind: str = "llama.cpp") -> bool | None:
        """Whether the endpoint counts texts: None as long as it was not asked, or if it will not be."""
        place = _place(endpoint, kind)
        return self._found[place] is not None if place in self._found else None

    async def count_of(self, endpoint: Endpoint, transport: Transport, ask: Ask) -> int | None:
        """The tokens of the whole request as its server counts them; None where it does not. Never raises."""
        if not ask.messages:
            return None
        place = _place(endpoint, "request")
        return await self._counted(place, request_ways(endpoint), endpoint, transport, ask, MOST)

    async def _counted(  # noqa: PLR0917 - private, and each is passed on as it is
        self,
        place: Place,
        ways: Sequence[Way],
        endpoint: Endpoint,
        transport: Transport,
        what: Any,
        most: int,
    ) -> int | None:
        if not self.use_endpoint or not place.address or not ways:
            return None
        if place not in self._found:
            # Whoever comes while the first one asks waits for its answer, then asks the way it found.
            key = (place, asyncio.get_running_loop())
            async with self._probing.setdefault(key, asyncio.Lock()):
                if place not in self._found:
                    counted = await self._probed(place, ways, endpoint, transport, what, most)
                    if place in self._found:  # nobody will come for the lock again
                        self._probing.pop(key, None)
                    return counted
        way = self._found[place]
        return None if way is None else await self._probed(place, (way,), endpoint, transport, what, most)

    async def _probed(  # noqa: PLR0917 - as above
        self,
        place: Place,
        ways: Sequence[Way],
        endpoint: Endpoint,
        transport: Transport,
        what: Any,
        most: int,
    ) -> int | None:
        """The count by the first way that leads to one; that way is remembered, or that there is none."""
        asked = False
        try:
            async with asyncio.timeout(TIMEOUT):
                for way in ways:
                    try:
                        status, tokens = await _followed(way, endpoint, transport, what)
                    except InvalidRequest:  # says nothing of the server: it was not asked
                        continue
                    asked = True
                    if _is_count(tokens, most):
                        # An answer under way when the server failed at another does not make it good again.
                        self._found.setdefault(place, way)
                        return int(tokens)
                    if status in GONE:
                        break
        except TimeoutError:
            asked = True
        if asked:
            self._found[place] = None
        return None

    def _estimated(self, model: str, text: str) -> int:
        if self.fallback != ESTIMATE:
            return RULES[self.fallback].count(text)
        try:
            return counter_for(model).text(text).tokens
        except Exception:  # noqa: BLE001 - a tokenizer that a caller registered may raise anything
            return CHARS_A_TOKEN_AT_WORST.count(text)


_sessions: WeakKeyDictionary[Transport, EndpointCounter] = WeakKeyDictionary()


async def count_of(endpoint: Endpoint, transport: Transport, ask: Ask) -> int | None:
    """What a counter's `count_of` gives; what it finds out is remembered as long as the transport lives.

    To call it is to want it: nothing has to be switched on.
    """
    counter = _sessions.setdefault(transport, EndpointCounter(use_endpoint=True))
    return await counter.count_of(endpoint, transport, ask)


async def _followed(way: Way, endpoint: Endpoint, transport: Transport, what: Any) -> tuple[int, Any]:
    """The last status on this way, and what stands where the count should be; InvalidRequest if unsayable."""
    status = 0
    for step in way.steps:
        try:
            body = step.body(endpoint, what)
        except (LookupError, AttributeError, TypeError, ValueError) as fault:
            raise InvalidRequest("cannot be said in this way", api=way.name) from fault
        status, answer = await exchange(endpoint, transport, step.path, body, key=way.key)
        what = step.read(answer) if status == 200 else None
        if what is None:
            return status, None
    return status, what


def _is_count(value: Any, most: int) -> bool:
    """Whether it is a count of something that is not empty: True is none, nor is 12.0."""
    return value.__class__ is int and 0 < value <= most


def _place(endpoint: Endpoint, what: str) -> Place:
    return Place(root(endpoint.url), endpoint.model, what)


def _bytes_of(text: str) -> int | None:
    """How long the text is in UTF-8; None where it cannot be written so, and so cannot be sent."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None
