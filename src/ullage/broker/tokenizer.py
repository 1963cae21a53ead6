"""The tokenizer of a model's server: each text is counted once, ahead of time, and remembered.

A conversation counts at once, but the server answers later. So the server counts texts before the
conversation is rendered (`learn`), and `count` looks them up. A text that rendering itself makes, such as a
digest or the shortened output of a tool, has no count yet. Its estimate is our own ceiling, multiplied by the
largest ratio of a server's count to our ceiling in this session, and by a margin.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from ullage.broker.endpoint_counter import SLACK
from ullage.broker.http import address
from ullage.tokens import counter_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from ullage.broker.endpoint import Endpoint
    from ullage.broker.endpoint_counter import EndpointCounter, TextKey
    from ullage.broker.http import Transport
    from ullage.target import Target
    from ullage.tokens.surplus import Surplus

AT_ONCE = 8
"""Most texts that are counted at the same time."""
PATIENCE = 10.0
"""Most seconds of one call of `learn`; texts without a count by then are estimated."""
LONGEST = 256 * 1024
"""Most bytes of a text that is sent to be counted; a longer one is estimated."""
MARGIN = 1.1
"""Factor of safety on the largest ratio so far; a part of a text may have a higher ratio than the whole."""


class ServerTokenizer:
    """Counts texts as the server of a model does; pass it to a `Context` as its tokenizer."""

    def __init__(
        self,
        endpoint: Endpoint,
        target: Target,
        transport: Callable[[], Awaitable[Transport]],
        counter: EndpointCounter,
    ) -> None:
        self.address = address(endpoint.url)
        """The server's address in the form that may be shown."""
        self.name = f"{self.address}/tokenize"
        self._endpoint = endpoint
        self._transport = transport
        self._counter = counter
        self._own = counter_for(target)
        self._known = counter.texts_of(endpoint)

    def __repr__(self) -> str:
        return f"<ServerTokenizer of {self._endpoint.model} at {self.name}: {self.texts} texts counted>"

    @property
    def supported(self) -> bool | None:
        """True if the server counts texts; None before it was asked."""
        return self._counter.tokenize_supported(self._endpoint, kind=None)

    @property
    def texts(self) -> int:
        """The number of texts that the server has counted in this session."""
        return len(self._known.counts)

    @property
    def is_active(self) -> bool:
        """True once the server has counted anything. It stays True if the server fails later."""
        return bool(self._known.counts)

    @property
    def surplus(self) -> Surplus:
        """The tokens that framing and template add to a request, learned from usage."""
        return self._known.surplus

    def knows(self, text: str) -> bool:
        """Returns True if the server has counted this text."""
        return _key(text) in self._known.counts

    def count(self, text: str) -> int:
        """Returns the server's count of a text if it is known, otherwise a safe estimate."""
        if not text:
            return 0
        key = _key(text)
        found = self._known.counts.get(key)
        if found is None:
            self._known.note_estimate(key)
            return self._estimate(text)
        return found

    def room(self, limit: int) -> int:
        """Returns how many tokens by our own count surely fit in `limit` tokens by the server's count."""
        return max(1, int((limit - SLACK) / self._scale))

    async def learn(self, texts: Iterable[str]) -> bool:
        """Lets the server count each new text once, a few at a time; never raises.

        Returns True if an estimate had been returned for one of them before.
        """
        if self.supported is False:
            return False
        waiting = iter([text for text in dict.fromkeys(texts) if _can_be_sent(text) and not self.knows(text)])
        learned: list[TextKey] = []
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(self._learn_each(waiting, learned))
        except TimeoutError:
            pass  # the other texts are estimated
        stale = self._known.estimated.intersection(learned)
        self._known.estimated -= stale
        return bool(stale)

    async def _learn_each(self, waiting: Iterator[str], learned: list[TextKey]) -> None:
        for text in waiting:
            counted = await self._counter.text_count(self._endpoint, text, await self._transport())
            if counted is None:
                return  # the server is not asked again in this session
            key = _key(text)
            self._known.add(key, counted, self._own.text(text).ceiling)
            learned.append(key)

    @property
    def _scale(self) -> float:
        return MARGIN * self._known.ratio if self.is_active else 1.0

    def _estimate(self, text: str) -> int:
        own = self._own.text(text).ceiling
        return math.ceil(own * self._scale) + SLACK if self.is_active else own


def _key(text: str) -> TextKey:
    return hash(text), len(text)


def _can_be_sent(text: str) -> bool:
    if not text or len(text) > LONGEST:
        return False
    try:
        return len(text.encode()) <= LONGEST
    except UnicodeEncodeError:
        return False
