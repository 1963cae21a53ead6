"""The requests under way: sent to a model, and not answered to the end yet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ullage.gateway.figures import MOST_NAME, conversation_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.gateway.preparation import Outgoing
    from ullage.gateway.request import Received

MOST_SHOWN = 30
"""Most requests under way that the page shows; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRequest:
    """The figures of a request under way."""

    id: str
    at: float
    """Seconds since the epoch at its beginning."""
    model: str
    key: str
    """Id of the gateway key; empty without one."""
    client: str
    """The name of the client's program, from its `User-Agent`."""
    conversation: str
    tokens: int
    limit: int | None
    blocks: Mapping[str, int]
    """`tokens` divided by what they are used for."""
    before: int
    """Tokens of the request as it came."""


class RunningView(NamedTuple):
    """The requests under way at a moment."""

    number: int
    """Number of all requests under way."""
    shown: list[RunningRequest]
    """The newest, the oldest of them first."""


class RunningRequests:
    """The requests under way; their figures are computed only if somebody looks."""

    def __init__(self, tell: Callable[[], None]) -> None:
        """Starts empty; `tell` is called after each change."""
        self._tell = tell
        self._known: dict[str, tuple[Received, Outgoing]] = {}
        self.changes = 0
        """The number of changes so far."""

    def begin(self, request: Received, outgoing: Outgoing) -> None:
        """Adds a request that is sent now; a later round of the same request replaces it."""
        self._known[request.id] = request, outgoing
        self.changes += 1
        self._tell()

    def end(self, request: Received) -> None:
        """Removes a request, however it ended; nothing happens if it was never sent."""
        if self._known.pop(request.id, None) is not None:
            self.changes += 1
            self._tell()

    def view(self) -> RunningView:
        """Returns the requests under way."""
        newest = [*islice(reversed(self._known.values()), MOST_SHOWN)]
        return RunningView(len(self._known), [_figures(*each) for each in reversed(newest)])


def _figures(request: Received, outgoing: Outgoing) -> RunningRequest:
    fitted = outgoing.fitted
    return RunningRequest(
        id=request.id,
        at=time.time() - (time.monotonic() - request.begun),
        model=outgoing.model[:MOST_NAME],
        key=outgoing.identity.caller,
        client=request.header("user-agent")[:MOST_NAME],
        conversation=conversation_id(outgoing.identity, outgoing.model),
        tokens=outgoing.count.tokens,
        limit=outgoing.limit,
        blocks=outgoing.count.breakdown,
        before=outgoing.count.tokens if fitted is None else fitted.tokens_before,
    )
