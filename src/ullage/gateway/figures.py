"""The figures of a request, a refusal and a conversation, as the page of the gateway shows them.

Only figures and names: the texts of messages are not part of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ullage.fitting.result import EVICT
from ullage.messages import RESULT_ROLES, calls_of, read_call_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from ullage.fitting.series import Done
    from ullage.gateway.bill import BookedCall
    from ullage.gateway.conversations import Identity
    from ullage.messages import Message

MOST_CHANGES = 50
"""Most changes of one request that are listed; the others are counted."""
MOST_SIZES = 60
"""Most requests of a conversation whose sizes are remembered, for its curve."""
MOST_NAME = 200
"""Most characters of a name that a client chose."""
LOOK_BACK = 30
"""Most messages before a tool result among which its call is looked for."""
GONE = 499
"""The status of a request whose client went away before its answer; no answer has it."""


class Ending(NamedTuple):
    """The end of an exchange."""

    status: int
    booked: BookedCall | None = None
    """None if nothing was booked, or if the client went away."""
    is_broken: bool = False
    """True if the upstream broke the stream off."""
    code: str = ""
    """The upstream's own name of its error; empty if it gave none."""


@dataclass(frozen=True, slots=True)
class SeenChange:
    """One message that a request has in a shorter form for the first time, or no longer has."""

    kind: str
    """A kind of `fitting.result.Change`, or `evict:` and the name of a pass."""
    place: int
    role: str
    tool: str
    """The name of the tool whose result it is; empty for other messages."""
    before: int
    """Tokens."""
    after: int


@dataclass(slots=True, kw_only=True)
class SeenRequest:
    """The figures of one request that was sent.

    Nobody changes them. The class is not frozen, because a frozen one takes three times as long to make.
    """

    number: int
    """Its place among all requests and refusals since the start."""
    id: str
    at: float
    """Seconds since the epoch at its end."""
    seconds: float
    api: str
    model: str
    key: str
    """Id of the gateway key; empty without one."""
    conversation: str
    status: int
    code: str
    """The upstream's own name of its error; empty if it gave none."""
    is_broken: bool
    is_streamed: bool
    is_lowered: bool
    unread: str
    tokens: int
    limit: int | None
    blocks: Mapping[str, int]
    """`tokens` divided by what they are used for."""
    before: int
    """Tokens of the request as it came."""
    given: int
    """Messages of the request as it came; 0 if its form is unknown."""
    dropped: int
    truncated: int
    recalled: int
    changes: tuple[SeenChange, ...]
    more_changes: int
    reuse: float | None
    """Share that repeats the beginning of the request before it; None if that is unknown."""
    prompt: int | None
    """Tokens that the upstream charged for."""
    completion: int | None
    cost: Decimal | None
    """In dollars; None if it is unknown or the model is local."""
    is_estimated: bool
    has_texts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRefusal:
    """A request that the gateway refused."""

    number: int
    id: str
    at: float
    path: str
    api: str
    kind: str
    status: int
    message: str
    client: str
    """The address of the client's machine."""


@dataclass(slots=True, kw_only=True)
class SeenConversation:
    """The figures of one conversation, and its newest request."""

    id: str
    session: str
    """The client's own name of its session; empty if it has none."""
    account: str
    """The name of the conversation in the ledger."""
    client: str
    """The name of the client's program, from its `User-Agent`."""
    newest: SeenRequest
    requests: int = 0
    trims: int = 0
    """Requests that removed or shortened something for the first time."""
    cost: Decimal | None = None
    logged: int = 0
    """Entries in the log of changes at its newest request."""
    sizes: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_SIZES))
    """Tokens of its newest requests."""


@dataclass(slots=True)
class ActivityTotals:
    """Sums since the start."""

    requests: int = 0
    refused: int = 0
    trims: int = 0
    """Requests that removed or shortened something for the first time."""
    recalled: int = 0
    given_tokens: int = 0
    """Tokens of all requests as they came."""
    sent_tokens: int = 0
    compared_tokens: int = 0
    """Tokens of the requests whose prefix reuse is known."""
    reused_tokens: float = 0.0

    def add(self, seen: SeenRequest) -> None:
        """Adds a request."""
        self.requests += 1
        self.trims += bool(seen.changes)
        self.recalled += seen.recalled
        self.given_tokens += max(seen.before, seen.tokens)
        self.sent_tokens += seen.tokens
        if seen.reuse is not None:
            self.compared_tokens += seen.tokens
            self.reused_tokens += seen.tokens * seen.reuse


class NewChanges(NamedTuple):
    """The changes of a request that the previous request did not have."""

    listed: tuple[SeenChange, ...] = ()
    more: int = 0
    """The number of changes that are not listed."""


def conversation_id(identity: Identity, model: str) -> str:
    """Returns the name of a conversation on the page: with another model or key it is another one."""
    return f"{identity.name}:{identity.caller}:{model[:MOST_NAME]}"


def list_changes(history: Sequence[Message], done: Sequence[Done]) -> NewChanges:
    """Returns one change for each message: the last kind, from its first size to its last."""
    net: dict[int, Done] = {}
    for kind, place, before, after, handle in done:
        first = net[place][2] if place in net else before
        net[place] = (kind.removeprefix(f"{EVICT}:"), place, first, after, handle)
    listed = tuple(
        SeenChange(kind, place, history[place]["role"], _tool(history, place), before, after)
        for kind, place, before, after, _ in list(net.values())[:MOST_CHANGES]
    )
    return NewChanges(listed, len(net) - len(listed))


def _tool(history: Sequence[Message], place: int) -> str:
    """Returns the name of the tool whose result stands at a place; empty if none is found near it."""
    result = history[place]
    if result["role"] not in RESULT_ROLES:
        return ""
    wanted = read_call_id(result)
    for index in range(place - 1, max(-1, place - 1 - LOOK_BACK), -1):
        for call in calls_of(history[index]):
            if call["id"] == wanted:
                return str(call["function"]["name"])[:MOST_NAME]
    return ""
