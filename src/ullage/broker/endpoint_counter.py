"""Counts texts and whole requests with the server that runs the model.

The first use asks the server, for two seconds at most. The result, by address and model, is remembered as
long as the counter lives, which is one session. A failure is not an error: a text is then counted here, and
the count of a whole request is None.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.broker.count_routes import TEXT_ROUTES, TIMEOUT, exchange, request_routes, root, text_routes
from ullage.errors import ConfigurationError, InvalidRequest
from ullage.tokens import counter_for
from ullage.tokens.surplus import Surplus
from ullage.tokens.vocabularies import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.broker.ask import Ask
    from ullage.broker.count_routes import CountRoute
    from ullage.broker.endpoint import Endpoint
    from ullage.broker.http import Transport

ESTIMATE = "estimate"
FALLBACKS = (ESTIMATE, *RULES)
"""Counters for a text that the server does not count: Ullage's own for the model, or a plain rule."""

MOST = 100_000_000
"""Most tokens of a request; a larger number is not a count, because no window is as large."""
GONE = frozenset({0, 401, 403, 408, 429, 502, 503, 504, 529})
"""Statuses after which no other route is tried: no server answers, or none that would count for us now."""

MISMATCHES = frozenset({400, 404, 405, 415, 422, 501})
"""Statuses of a server that lacks the path, or that expects another body."""
MISSING = frozenset({404, 405, 501})
"""The statuses among `MISMATCHES` that mean that the path is missing."""

CHARS_A_TOKEN_AT_WORST = RULES["chars/3.5"]


class CountKey(NamedTuple):
    """The key under which the route of a server is remembered."""

    address: str
    model: str
    what: str
    """"request" or "text"; or the kind of server, if only its route for texts is tried."""


class Question(NamedTuple):
    """A text or a request to count, and the routes to try."""

    key: CountKey
    routes: Sequence[CountRoute]
    what: Any
    """A text or an Ask."""
    most: int
    """Most tokens; a larger number is not a count."""
    only_mismatches: bool = False
    """True if another route is tried only after a status of `MISMATCHES`."""


class EndpointCounter:
    """Asks servers for counts, and remembers which servers can count; disabled unless `use_endpoint`."""

    def __init__(self, *, use_endpoint: bool = False, fallback: str = ESTIMATE) -> None:
        if fallback not in FALLBACKS:
            raise ConfigurationError(f"unknown fallback {fallback!r}: use one of {', '.join(FALLBACKS)}")
        self.use_endpoint = use_endpoint
        self.fallback = fallback
        self._found: dict[CountKey, CountRoute | None] = {}
        self._texts: dict[CountKey, TextCounts] = {}
        self._probing: dict[tuple[CountKey, asyncio.AbstractEventLoop], asyncio.Lock] = {}

    async def token_count(
        self, endpoint: Endpoint, text: str, transport: Transport, *, kind: str = "llama.cpp"
    ) -> int:
        """Returns the tokens of `text` by the endpoint's `/tokenize`, or by the fallback; never raises.

        `kind` names the kind of server, if it is not llama.cpp: a key of `count_routes.TEXT_ROUTES`.
        """
        if not text:
            return 0
        counted = await self.text_count(endpoint, text, transport, kind=kind)
        return self._estimate_text(endpoint.model, text) if counted is None else counted

    async def text_count(
        self, endpoint: Endpoint, text: str, transport: Transport, *, kind: str | None = None
    ) -> int | None:
        """Returns the tokens of `text` as the endpoint counts them; None if it does not. Never raises.

        Without a `kind`, the first count finds the kind of server.
        """
        size = _bytes_of(text)
        if not size:
            return None
        routes = text_routes(endpoint) if kind is None else tuple(filter(None, [TEXT_ROUTES.get(kind)]))
        # Even a vocabulary of single bytes, which splits characters, has fewer tokens.
        question = Question(
            _count_key(endpoint, kind or "text"), routes, text, 4 * size + 16, only_mismatches=True
        )
        return await self._count_at_endpoint(endpoint, transport, question)

    def tokenize_supported(self, endpoint: Endpoint, *, kind: str | None = "llama.cpp") -> bool | None:
        """Returns True if the endpoint counts texts; None if it was not asked yet."""
        key = _count_key(endpoint, kind or "text")
        return self._found[key] is not None if key in self._found else None

    def texts_of(self, endpoint: Endpoint) -> TextCounts:
        """Returns the counts that this endpoint has made in this session."""
        return self._texts.setdefault(_count_key(endpoint, "text"), TextCounts())

    async def count_of(self, endpoint: Endpoint, transport: Transport, ask: Ask) -> int | None:
        """Returns the tokens of the whole request as its server counts them, or None. Never raises."""
        if not ask.messages:
            return None
        question = Question(_count_key(endpoint, "request"), request_routes(endpoint), ask, MOST)
        return await self._count_at_endpoint(endpoint, transport, question)

    async def _count_at_endpoint(
        self, endpoint: Endpoint, transport: Transport, question: Question
    ) -> int | None:
        key = question.key
        if not self.use_endpoint or not key.address or not question.routes:
            return None
        if key not in self._found:
            # While the first caller asks, others wait for its answer and then use the route that it found.
            pending = (key, asyncio.get_running_loop())
            async with self._probing.setdefault(pending, asyncio.Lock()):
                if key not in self._found:
                    counted = await self._probe_routes(endpoint, transport, question)
                    if key in self._found:  # no one needs the lock any more
                        self._probing.pop(pending, None)
                    return counted
        route = self._found[key]
        if route is None:
            return None
        return await self._probe_routes(endpoint, transport, question._replace(routes=(route,)))

    async def _probe_routes(self, endpoint: Endpoint, transport: Transport, question: Question) -> int | None:
        """Returns the count of the first route that has one, and remembers this route or that none exists."""
        asked, missing = False, set[str]()
        try:
            async with asyncio.timeout(TIMEOUT):
                for route in question.routes:
                    if route.steps[0].path in missing:
                        continue
                    try:
                        status, tokens = await _follow_route(route, endpoint, transport, question.what)
                    except InvalidRequest:  # the server was not asked, so this says nothing about it
                        continue
                    asked = True
                    if _is_count(tokens, question.most):
                        # An answer from before a failure of the server does not make the server usable again.
                        self._found.setdefault(question.key, route)
                        return int(tokens)
                    if status in GONE or (question.only_mismatches and status not in MISMATCHES):
                        break
                    if status in MISSING:
                        missing.add(route.steps[0].path)
        except TimeoutError:
            asked = True
        if asked:
            self._found[question.key] = None
        return None

    def _estimate_text(self, model: str, text: str) -> int:
        if self.fallback != ESTIMATE:
            return RULES[self.fallback].count(text)
        try:
            return counter_for(model).text(text).tokens
        except Exception:  # noqa: BLE001 - a tokenizer that a caller registered may raise anything
            return CHARS_A_TOKEN_AT_WORST.count(text)


async def _follow_route(
    route: CountRoute, endpoint: Endpoint, transport: Transport, what: Any
) -> tuple[int, Any]:
    """Returns the last status, and the value at the position of the count.

    Raises InvalidRequest if the route cannot express the request.
    """
    status = 0
    for step in route.steps:
        try:
            body = step.body(endpoint, what)
        except (LookupError, AttributeError, TypeError, ValueError) as fault:
            raise InvalidRequest("this route cannot express it", api=route.name) from fault
        status, answer = await exchange(endpoint, transport, step.path, body, key=route.key)
        what = step.read(answer) if status == 200 else None
        if what is None:
            return status, None
    return status, what


def _is_count(value: Any, most: int) -> bool:
    """Returns True if the value is a positive count; True and 12.0 are not counts."""
    return value.__class__ is int and 0 < value <= most


def _count_key(endpoint: Endpoint, what: str) -> CountKey:
    return CountKey(root(endpoint.url), endpoint.model, what)


def _bytes_of(text: str) -> int | None:
    """Returns the length of the text in UTF-8; None if it cannot be encoded, and so cannot be sent."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


SLACK = 2
"""Tokens that a server may count in addition for any text, even a short one."""
MEMORY = 200_000
"""Most texts whose counts are remembered."""

TextKey = tuple[int, int]
"""The hash and the length of a text."""


@dataclass(slots=True)
class TextCounts:
    """The counts of one server for one model in this session."""

    counts: dict[TextKey, int] = field(default_factory=dict)
    estimated: set[TextKey] = field(default_factory=set)
    """The texts for which an estimate was returned."""
    ratio: float = 1.0
    """The largest ratio of a count to our own ceiling; at least 1."""
    surplus: Surplus = field(default_factory=Surplus)
    """The tokens that framing and template add to a request, learned from usage."""

    def add(self, key: TextKey, count: int, ceiling: int) -> None:
        """Remembers a count."""
        if len(self.counts) >= MEMORY:
            for oldest in list(self.counts)[: MEMORY // 2]:
                self.counts.pop(oldest, None)  # another thread may have removed it
        self.counts[key] = count
        if ceiling > 0:
            self.ratio = max(self.ratio, (count - SLACK) / ceiling)

    def note_estimate(self, key: TextKey) -> None:
        """Remembers that an estimate was returned for a text."""
        if len(self.estimated) >= MEMORY:
            self.estimated.clear()
        self.estimated.add(key)
