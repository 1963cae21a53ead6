"""Conversations: which requests belong together, and the window of each conversation.

A client sends its whole history each time. The window of a conversation remembers the messages that it has
read, so that a request costs no more than its new messages. The memory is bounded: a window that was
forgotten is made again from the history, with the same result.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.errors import ContextOverflowError
from ullage.fitting.body import RequestWindow
from ullage.gateway.cache_marks import write_unmarked
from ullage.gateway.fit_policy import POLICY
from ullage.gateway.prefix import PrefixReuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from ullage.fitting import FitPolicy
    from ullage.fitting.body import FittedRequest
    from ullage.gateway.request import Received
    from ullage.target import ApiName, Target
    from ullage.tokens.calibration import Factor

    NewestFactor: TypeAlias = Callable[[Target], Factor]
    """Returns what was learned so far about a target's own counts."""

MOST = 1_000
"""Most conversations that are remembered; the one that was used longest ago is forgotten first."""
MOST_BYTES = 256 * 1024 * 1024
"""Most bytes of the longest requests of all remembered conversations. Their windows need about three times as
much memory."""
A_MESSAGE = 350
"""Bytes that each message counts in addition: its objects need about a kilobyte, however short it is."""
OFF_LOOP = 64 * 1024
"""Most new bytes of a request that are fitted on the event loop; more are fitted in a thread."""
CLOSE = 0.02
"""A new factor that changes the limit by a smaller share is not worth reading the history again."""

SESSION_HEADERS = (
    "x-claude-code-session-id",
    "x-opencode-session",
    "x-session-id",
    "session-id",
    "session_id",
    "x-session-affinity",
)
"""Headers in which clients name their session; the first that is there counts."""
_SESSION_NAMES = frozenset(SESSION_HEADERS)
MESSAGES: Mapping[ApiName, str] = {
    "openai.chat": "messages",
    "openai.responses": "input",
    "anthropic.messages": "messages",
}
BEGINNING: Mapping[ApiName, tuple[str, ...]] = {
    "openai.chat": ("tools",),
    "openai.responses": ("instructions", "tools"),
    "anthropic.messages": ("system", "tools"),
}
"""The fields that belong to the beginning of a conversation, beside its first messages."""


class Identity(NamedTuple):
    """The name of a conversation with one model, at one limit."""

    caller: str
    target: Target
    limit: int
    name: str
    """The hash of the session's name and of the first user message; without a session, of the whole
    beginning. A session may have several conversations at once: its title, its sub-agents."""
    rules: str = ""
    """The name of the policy that its requests are fitted with."""


def identify(
    request: Received,
    body: Mapping[str, Any],
    api: ApiName,
    *,
    caller: str,
    target: Target,
    limit: int,
    rules: str = "",
) -> Identity:
    """Returns the identity of a request's conversation."""
    session = session_of(request, body)
    parts: list[Any] = [session, _first_messages(body.get(MESSAGES[api]))]
    if not session:
        parts += [body.get(name) for name in BEGINNING[api]]
    name = hashlib.blake2b(write_unmarked(parts), digest_size=16).hexdigest()
    return Identity(caller, target, limit, name, rules)


def weight_of(body: Mapping[str, Any], api: ApiName, size: int) -> int:
    """Returns what a body of `size` bytes counts among the remembered conversations."""
    messages = body.get(MESSAGES[api])
    return size + A_MESSAGE * len(messages) if isinstance(messages, list) else size


def session_of(request: Received, body: Mapping[str, Any]) -> str:
    """Returns the client's own name of its session; empty if it has none."""
    if not _SESSION_NAMES.isdisjoint(request.headers):
        for name in SESSION_HEADERS:
            if value := request.headers.get(name):
                return value
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    key = user or body.get("prompt_cache_key")
    return key if isinstance(key, str) else ""


def _first_messages(messages: Any) -> Any:
    """Returns the messages up to and with the first one of the user."""
    if not isinstance(messages, list):
        return messages
    for place, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return messages[: place + 1]
    return messages[:1]


class Conversation:
    """The window of one conversation, which one request at a time may use.

    Between two trims the window keeps its factor, so that each request begins with the bytes of the one
    before. A trim changes nearly all of them anyway, so it is made with the newest factor.
    """

    def __init__(
        self, api: ApiName, identity: Identity, newest: NewestFactor, policy: FitPolicy = POLICY
    ) -> None:
        self._make_window = partial(
            RequestWindow, api, model=identity.target, limit=identity.limit, policy=policy
        )
        self._window = self._make_window(factor=newest(identity.target))
        self._target = identity.target
        self._newest = newest
        self._limit = identity.limit
        self._lock = asyncio.Lock()
        self._prefix = PrefixReuse()
        self.reused: float | None = None
        """Share of the last request that the one before began with, by our count; None for the first one."""
        self._size = 0
        self.heaviest = 0
        """The largest `weight_of` of its requests; the memory of all conversations is bounded by them."""
        self.was_cut = False
        """True once a request of this conversation was changed, and ever after."""

    def read_again(self) -> None:
        """Reads the whole history at the next request, with the newest factor."""
        self._window = self._make_window(factor=self._newest(self._target))
        self._size = 0

    @property
    def factor(self) -> Factor:
        """The factor of the window's counts."""
        return self._window.factor

    async def fit(self, body: dict[str, Any], size: int) -> FittedRequest:
        """Makes a body of `size` bytes fit; a long one in a thread, so that the event loop runs on."""
        if size - self._size <= OFF_LOOP and not self._lock.locked():
            return self._note_request(self._fit(body), size)
        async with self._lock:
            is_long = size - self._size > OFF_LOOP
            return self._note_request(
                await asyncio.to_thread(self._fit, body) if is_long else self._fit(body), size
            )

    def _note_request(self, fitted: FittedRequest, size: int) -> FittedRequest:
        self._size = max(self._size, size)
        self.was_cut = self.was_cut or fitted.changed
        self.reused = self._prefix.share(fitted.fitted)
        return fitted

    def _fit(self, body: dict[str, Any]) -> FittedRequest:
        try:
            fitted = self._window.fit(body)
        except ContextOverflowError:
            if (newest := self._newest(self._target)) == self.factor:
                raise
        else:
            if not fitted.fitted.record.pending or not self._differs(newest := self._newest(self._target)):
                return fitted
        self._window.factor = newest
        return self._window.fit(body)

    def _differs(self, newest: Factor) -> bool:
        """Returns True if this factor leaves clearly more or less room."""
        room = self.factor.limit(self._limit)
        return abs(newest.limit(self._limit) - room) > CLOSE * room


class Conversations:
    """The conversations that are remembered."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._known: OrderedDict[Identity, Conversation] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(
        self,
        api: ApiName,
        identity: Identity,
        newest: NewestFactor,
        policy: FitPolicy = POLICY,
        *,
        weight: int = 0,
    ) -> Conversation:
        """Returns the conversation of a request of this `weight_of`; a new one has this policy."""
        found = self._known.get(identity)
        if found is None:
            found = self._known[identity] = Conversation(api, identity, newest, policy)
        else:
            self._known.move_to_end(identity)
        if weight > found.heaviest:
            self._bytes += weight - found.heaviest
            found.heaviest = weight
        while len(self._known) > self._most or (self._bytes > self._most_bytes and len(self._known) > 1):
            self.forget(next(iter(self._known)))
        return found

    def read_again(self, identity: Identity) -> None:
        """Reads a conversation again at its next request: its counts have proved too low."""
        if (found := self._known.get(identity)) is not None:
            found.read_again()

    def forget(self, identity: Identity) -> None:
        """Forgets a conversation: others need the room."""
        found = self._known.pop(identity, None)
        if found is not None:
            self._bytes -= found.heaviest
