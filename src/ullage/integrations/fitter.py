"""Fitters: fit the whole history that a host hands over on each call, at the price of what is new in it.

A host may run several conversations with one fitter. Each has a window of its own, found by the beginning of
its history. The number of windows is bounded: a window that was forgotten is made again from the history,
with the same result.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import orjson

from ullage import wire
from ullage.fitting import RequestWindow, Window
from ullage.fitting.policy import checked_policy
from ullage.intake import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ullage.fitting import FitPolicy, Fitted, FittedRequest
    from ullage.messages import Message
    from ullage.target import ApiName, ModelLike

MOST = 100
"""Most conversations that a fitter remembers; the one that was used longest ago is forgotten first."""

W = TypeVar("W")
"""The kind of window: for messages, or for whole bodies."""
H = TypeVar("H")
"""The host's own type of a message."""


class _Held(NamedTuple, Generic[W]):
    """A window, and the lock under which one thread at a time uses it."""

    window: W
    lock: threading.Lock


class _Windows(Generic[W]):
    """The windows of the conversations that are remembered."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, _Held[W]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], W]) -> _Held[W]:
        """Returns the window under `key`; makes it if it is not known."""
        with self._lock:
            held = self._known.get(key)
            if held is None:
                held = self._known[key] = _Held(make(), threading.Lock())
                if len(self._known) > MOST:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return held


class HistoryFitter:
    """Fits messages in the format of OpenAI's chat API. Threads may share it."""

    def __init__(
        self,
        *,
        model: ModelLike = None,
        limit: int | None = None,
        reserve: int | None = None,
        policy: FitPolicy | None = None,
        report: Callable[[Fitted[Any]], object] | None = None,
    ) -> None:
        self._model, self._limit, self._reserve = model, limit, reserve
        self._policy, self._report = checked_policy(policy), report
        self._windows: _Windows[Window] = _Windows()
        if model is not None or limit is not None:
            self._make(model)  # a wrong option is an error here, and not at the first call

    def fit(
        self, messages: Sequence[Any], tools: Sequence[Any] | None = None, *, model: str | None = None
    ) -> Fitted[Any]:
        """Returns the messages that fit. Messages that did not change are the given objects.

        `model` is the model that the host calls; the model of the fitter goes before it. Raises
        ContextOverflowError if the mandatory part does not fit.
        """
        asked = model if self._model is None else self._model
        key = (asked, _beginning(messages))
        window, lock = self._windows.get(key, lambda: self._make(asked))
        with lock:
            window.sync(messages, tools or ())
            fitted = window.fitted()
        if self._report is not None:
            self._report(fitted)
        return fitted

    def _make(self, model: ModelLike) -> Window:
        return Window(model=model, limit=self._limit, reserve=self._reserve, policy=self._policy)


class BodyFitter:
    """Fits whole request bodies of one API. Threads may share it."""

    def __init__(
        self,
        api: ApiName,
        *,
        model: ModelLike = None,
        limit: int | None = None,
        reserve: int | None = None,
        policy: FitPolicy | None = None,
        report: Callable[[Fitted[Any]], object] | None = None,
    ) -> None:
        self._api: ApiName = api
        self._history = wire.api_of(api).history
        self._report = report
        self._model, self._limit, self._reserve = model, limit, reserve
        self._policy = policy
        self._windows: _Windows[RequestWindow] = _Windows()
        self._make()  # a wrong option is an error here, and not at the first call

    def fit(self, body: Mapping[str, Any]) -> FittedRequest:
        """Returns a body that fits, in the same format. Parts that did not change are the given objects.

        Raises ContextOverflowError if the mandatory part does not fit.
        """
        given = plain(body)
        items = given.get(self._history)
        key = (given.get("model"), _beginning(items if isinstance(items, list) else [items]))
        window, lock = self._windows.get(key, self._make)
        with lock:
            done = window.fit(given)
        if self._report is not None:
            self._report(done.fitted)
        return done

    def _make(self) -> RequestWindow:
        return RequestWindow(
            self._api, model=self._model, limit=self._limit, reserve=self._reserve, policy=self._policy
        )


def restore(
    fitted: Fitted[Any],
    messages: Sequence[Message],
    owners: Sequence[H],
    remake: Callable[[H | None, Message], H],
) -> list[H]:
    """Returns the host's own messages of a result.

    `owners` has the host's message behind each of the `messages` that were fitted. A message that did not
    change is its owner. For a changed one, `remake` gets its owner and the new message; the owner is None if
    fitting made the message.
    """
    restored: list[H] = []
    for message, source in zip(fitted.messages, fitted.sources, strict=True):
        if source is None:
            restored.append(remake(None, message))
        elif message is messages[source]:
            restored.append(owners[source])
        else:
            restored.append(remake(owners[source], message))
    return restored


def _beginning(messages: Sequence[Any]) -> bytes:
    """Returns a hash of the messages up to and with the first one of the user."""
    hashed = hashlib.blake2b(digest_size=16)
    for message in messages:
        given = plain(message)
        hashed.update(orjson.dumps(given, default=repr))
        if isinstance(given, dict) and given.get("role") == "user":
            break
    return hashed.digest()
