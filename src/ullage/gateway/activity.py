"""The activity of the gateway: recent requests, refusals and conversations, as figures, in bounded memory.

The page of the gateway shows it. To record a request takes some microseconds, however many there were: the
figures are copied, everything is bounded, and nothing is written. Bodies are not kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ullage.gateway.conversations import session_of
from ullage.gateway.figures import (
    MOST_NAME,
    ActivityTotals,
    NewChanges,
    SeenConversation,
    SeenRefusal,
    SeenRequest,
    conversation_id,
    list_changes,
)
from ullage.gateway.kept_texts import KeptTexts
from ullage.gateway.refusals import KINDS
from ullage.gateway.running_requests import RunningRequests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.fitting.result import FitRecord
    from ullage.gateway.figures import Ending
    from ullage.gateway.preparation import Outgoing
    from ullage.gateway.refusals import Refused
    from ullage.gateway.request import Received
    from ullage.target import ApiName

MOST_SEEN = 500
"""Most requests that are remembered, and as many refusals."""
MOST_CONVERSATIONS = 200
MOST_MESSAGE = 500
"""Most characters of an error message."""
SECRETS = ("authorization", "x-api-key", "api-key")
"""Headers with the key of a client."""


_NO_CHANGES = NewChanges()


class News(NamedTuple):
    """The requests, refusals and conversations after a number."""

    number: int
    totals: ActivityTotals
    requests: list[SeenRequest]
    refusals: list[SeenRefusal]
    conversations: list[SeenConversation]


class Activity:
    """The recent activity; used on one event loop."""

    def __init__(self, *, keep_bodies: bool = False) -> None:
        """Starts empty; `keep_bodies` keeps the texts of changed messages too."""
        self.texts = KeptTexts() if keep_bodies else None
        self.started = time.time()
        # Numbers grow across restarts, so that a page never takes old numbers for new ones.
        self.newest = self._forgotten = int(self.started * 1000)
        self._requests: deque[SeenRequest] = deque()
        self._refusals: deque[SeenRefusal] = deque()
        self._conversations: OrderedDict[str, SeenConversation] = OrderedDict()
        self._totals = ActivityTotals()
        self._watchers: set[asyncio.Event] = set()
        self.running = RunningRequests(self._tell)
        self.is_closed = False

    # For the exchange

    def record(self, request: Received, outgoing: Outgoing, ending: Ending) -> None:
        """Records a request that was sent."""
        self.newest += 1
        identity = outgoing.identity
        conversation = conversation_id(identity, outgoing.model)
        fitted = None if outgoing.fitted is None else outgoing.fitted.fitted
        new = _NO_CHANGES if fitted is None else self._new_changes(conversation, fitted.record)
        seen = self._make_seen_request(request, outgoing, ending, conversation, new)
        self._append(self._requests, seen)
        self._totals.add(seen)
        known = self._update(request, f"gateway:{identity.name}", seen)
        if fitted is not None:
            known.logged = len(fitted.record.log)
            if self.texts is not None:
                secrets = [request.header(name).rpartition(" ")[2] for name in SECRETS]
                self.texts.add(seen.number, fitted, [each.place for each in seen.changes], secrets)
        self._tell()

    def refuse(self, request: Received, api: ApiName | None, error: Refused) -> None:
        """Records a request that the gateway refused."""
        self.newest += 1
        seen = SeenRefusal(
            number=self.newest,
            id=request.id,
            at=time.time(),
            path=request.path[:MOST_NAME],
            api=api or "",
            kind=error.kind,
            status=KINDS[error.kind].status,
            message=error.message[:MOST_MESSAGE],
            client=request.client,
        )
        self._append(self._refusals, seen)
        self._totals.refused += 1
        self._tell()

    def _new_changes(self, conversation: str, record: FitRecord) -> NewChanges:
        """Returns the changes that the previous request of this conversation did not have."""
        known = self._conversations.get(conversation)
        # If the counts proved too low, the history is read again and trimmed at other places than before.
        start = 0 if known is None else min(known.logged, record.final)
        if len(record.log) <= start:
            return _NO_CHANGES
        return list_changes(record.history, record.since(start))

    def _make_seen_request(
        self, request: Received, outgoing: Outgoing, ending: Ending, conversation: str, new: NewChanges
    ) -> SeenRequest:
        count, booked = outgoing.count, ending.booked
        fitted = None if outgoing.fitted is None else outgoing.fitted.fitted
        return SeenRequest(
            number=self.newest,
            id=request.id,
            at=time.time(),
            seconds=time.monotonic() - request.begun,
            api=outgoing.target.api or "",
            model=outgoing.model[:MOST_NAME],
            key=outgoing.identity.caller,
            conversation=conversation,
            status=ending.status,
            code=ending.code,
            is_broken=ending.is_broken,
            is_streamed=outgoing.is_streamed,
            is_lowered=outgoing.is_lowered,
            unread=outgoing.unread[:MOST_MESSAGE],
            tokens=count.tokens,
            limit=outgoing.limit,
            blocks=count.breakdown,
            before=count.tokens if fitted is None else fitted.tokens_before,
            given=0 if fitted is None else len(fitted.record.history),
            dropped=0 if fitted is None else fitted.dropped,
            truncated=0 if fitted is None else fitted.truncated,
            recalled=0 if fitted is None else len(fitted.recalled),
            changes=new.listed,
            more_changes=new.more,
            reuse=outgoing.reused,
            prompt=None if booked is None else booked.usage.prompt,
            completion=None if booked is None else booked.usage.completion,
            cost=None if booked is None else booked.cost,
            is_estimated=booked is not None and bool(booked.estimated),
            has_texts=self.texts is not None and bool(new.listed),
        )

    def _update(self, request: Received, account: str, seen: SeenRequest) -> SeenConversation:
        """Returns the conversation of a request, with the figures of the request."""
        known = self._conversations.get(seen.conversation)
        if known is None:
            known = self._conversations[seen.conversation] = SeenConversation(
                id=seen.conversation,
                session=session_of(request, {})[:MOST_NAME],
                account=account,
                client=request.header("user-agent")[:MOST_NAME],
                newest=seen,
            )
            if len(self._conversations) > MOST_CONVERSATIONS:
                self._conversations.popitem(last=False)
        else:
            self._conversations.move_to_end(seen.conversation)
        known.newest = seen
        known.requests += 1
        known.trims += bool(seen.changes)
        known.sizes.append(seen.tokens)
        if seen.cost is not None:
            known.cost = seen.cost if known.cost is None else known.cost + seen.cost
        return known

    def _append(self, kept: deque[Any], seen: SeenRequest | SeenRefusal) -> None:
        kept.append(seen)
        if len(kept) > MOST_SEEN:
            self._forgotten = max(self._forgotten, kept.popleft().number)

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    # For the page

    @contextmanager
    def watched(self) -> Iterator[asyncio.Event]:
        """Yields an event that is set when something is recorded, and at the end."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    @property
    def watchers(self) -> int:
        """The number of pages that watch."""
        return len(self._watchers)

    def accounts(self, most: int) -> list[str]:
        """Returns the names in the ledger of the newest conversations, the newest first."""
        newest = islice(reversed(self._conversations.values()), most)
        return list(dict.fromkeys(each.account for each in newest))

    def everything(self) -> News:
        """Returns all that is remembered, the oldest first."""
        conversations = [*self._conversations.values()]
        return News(self.newest, self._totals, [*self._requests], [*self._refusals], conversations)

    def news(self, after: int) -> News | None:
        """Returns all after a number, the oldest first; None if some of it is forgotten."""
        if not self._forgotten <= after <= self.newest:
            return None
        changed = []
        for each in reversed(self._conversations.values()):
            if each.newest.number <= after:
                break
            changed.append(each)
        requests, refusals = _after(self._requests, after), _after(self._refusals, after)
        return News(self.newest, self._totals, requests, refusals, changed[::-1])

    def close(self) -> None:
        """Ends all watching, so that the server need not wait for open pages."""
        self.is_closed = True
        self._tell()


Numbered = TypeVar("Numbered", SeenRequest, SeenRefusal)


def _after(kept: deque[Numbered], number: int) -> list[Numbered]:
    """Returns the items after a number; it looks only at these."""
    found = []
    for each in reversed(kept):
        if each.number <= number:
            break
        found.append(each)
    return found[::-1]
