"""Fitters: fit the whole history that a host hands over on each call, at the price of what is new in it.

A host may run several conversations with one fitter. Each has a window of its own, found by the beginning of
its history. The number of windows is bounded: a window that was forgotten is made again from the history,
with the same result.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypedDict, TypeVar, Unpack

import orjson

from ullage import wire
from ullage.errors import ConfigurationError, InvalidConversation
from ullage.fitting import RequestWindow, Window
from ullage.fitting.budget import limit_for
from ullage.fitting.policy import check_fit_policy
from ullage.intake import NotPlain, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from ullage.fitting import FitPolicy, Fitted, FittedRequest
    from ullage.messages import Message
    from ullage.target import ApiName, ModelLike

MOST = 100
"""Most conversations that a fitter remembers; the one that was used longest ago is forgotten first."""

W = TypeVar("W")
"""The kind of window: for messages, or for whole bodies."""
H = TypeVar("H")
"""The host's own type of a message."""
T = TypeVar("T")
"""The result of a function."""


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


class FitterOptions(TypedDict, total=False):
    """The options that all integrations share."""

    model: ModelLike
    """The model whose rules count; without it, the model that the host calls, if the glue can see it."""
    limit: int | None
    """The most input tokens of a request; without it, the window of the model less its reserve."""
    reserve: int | None
    """Tokens of the limit that are kept free for the answer."""
    policy: FitPolicy | None
    """The rules of a trim."""
    report: Callable[[Fitted[Any]], object] | None
    """A function that is called with the result of each fit."""


class _Fitter(Generic[W]):
    """The options of a fitter, and its windows."""

    def __init__(self, **options: Unpack[FitterOptions]) -> None:
        if unknown := options.keys() - FitterOptions.__annotations__.keys():
            known = ", ".join(FitterOptions.__annotations__)
            raise ConfigurationError(f"unknown option {', '.join(sorted(unknown))}; the options are {known}")
        self._model = options.get("model")
        self._limit, self._reserve = options.get("limit"), options.get("reserve")
        self._policy = check_fit_policy(options.get("policy"))
        self._report = options.get("report")
        self._windows: _Windows[W] = _Windows()
        self._options = options
        if self._model is not None or self._limit is not None:
            limit_for(self._model, self._limit, self._reserve)  # a wrong one is an error here

    def __reduce__(self) -> tuple[Callable[[], Self], tuple[()]]:
        """Copies have the same options, and make windows of their own. Some hosts copy their agents."""
        return partial(type(self), *self._arguments(), **self._options), ()

    def _arguments(self) -> tuple[Any, ...]:
        """Returns the arguments that a fitter has beside the options."""
        return ()

    def _tell(self, fitted: Fitted[Any]) -> None:
        if self._report is not None:
            self._report(fitted)


class HistoryFitter(_Fitter[Window]):
    """Fits messages in the format of OpenAI's chat API. Threads may share it."""

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
        self._tell(fitted)
        return fitted

    def _make(self, model: ModelLike) -> Window:
        return Window(model=model, limit=self._limit, reserve=self._reserve, policy=self._policy)


class BodyFitter(_Fitter[RequestWindow]):
    """Fits whole request bodies of one API. Threads may share it."""

    def __init__(self, api: ApiName, **options: Unpack[FitterOptions]) -> None:
        super().__init__(**options)
        self._api: ApiName = api
        self._history = wire.api_of(api).history

    def _arguments(self) -> tuple[Any, ...]:
        return (self._api,)

    def fit(self, body: Mapping[str, Any]) -> FittedRequest:
        """Returns a body that fits, in the same format. Parts that did not change are the given objects.

        Raises ContextOverflowError if the mandatory part does not fit.
        """
        given = wire.plain_body(body, self._api)
        items = given.get(self._history)
        key = (given.get("model"), _beginning(items if isinstance(items, list) else [items]))
        window, lock = self._windows.get(key, self._make)
        with lock:
            done = window.fit(given)
        self._tell(done.fitted)
        return done if given is body else replace(done, body=self._with_originals(done.body, given, body))

    def _with_originals(
        self, fitted: Mapping[str, Any], given: Mapping[str, Any], body: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Returns a fitted body with the host's own objects, for all parts that were only read."""
        if fitted is given:
            return body
        made = {name: body[name] if value is given.get(name) else value for name, value in fitted.items()}
        name = self._history
        if isinstance(given[name], list) and made[name] is fitted[name]:
            own = {id(read): item for read, item in zip(given[name], body[name], strict=True)}
            made[name] = [own.get(id(item), item) for item in fitted[name]]
        return made

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


class MessageOrigin(NamedTuple):
    """The origin of a message: a message of the host, and one of its tool results if it has several."""

    message: Any
    result: Any = None


def join_results(
    origins: Iterable[MessageOrigin],
    results_of: Callable[[Any], Sequence[Any]],
    with_results: Callable[[Any, list[Any]], Any],
) -> list[Any]:
    """Returns the host's messages of a result, for a host that keeps several tool results in one message.

    `results_of` returns the tool results of a message, and `with_results` a copy of it with others. A message
    whose results are all there, unchanged, is the given object.
    """
    joined: list[Any] = []
    for _, group in groupby(origins, key=lambda origin: id(origin.message)):
        members = list(group)
        message = members[0].message
        results = [member.result for member in members if member.result is not None]
        is_same = [id(each) for each in results] == [id(each) for each in results_of(message)]
        joined.append(message if is_same or not results else with_results(message, results))
    return joined


def restore_parts(
    parts: Sequence[Any], read: Sequence[Any], own: Sequence[Any], make: Callable[[Any], Any]
) -> list[Any]:
    """Returns the host's own parts of a message that has new content.

    `read` has what each of the host's `own` parts was read as. `make` makes a part that fitting has added.
    """
    return [own[read.index(part)] if part in read else make(part) for part in parts]


def _beginning(messages: Sequence[Any]) -> bytes:
    """Returns a hash of the messages up to and with the first one of the user."""
    hashed = hashlib.blake2b(digest_size=16)
    for index, message in enumerate(messages):
        try:
            given = plain(message)
        except NotPlain as error:
            raise InvalidConversation(str(error), index=index) from None
        hashed.update(orjson.dumps(given, default=repr))
        if isinstance(given, dict) and given.get("role") == "user":
            break
    return hashed.digest()


# Event loops ------------------------------------------------------------------------------------------


_is_aside: ContextVar[bool] = ContextVar("_is_aside", default=False)
"""True in the thread that fits, and in all that runs on its behalf."""


@cache
def _thread(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked process has no threads of its parent
    """Returns the thread that fits for the event loops of a process. It starts with the first call."""
    return ThreadPoolExecutor(1, "ullage-fit")


async def run_aside(function: Callable[..., T], *args: object) -> T:
    """Returns the result of a function that fits, and lets the event loop run on meanwhile.

    All calls share one thread. Fitting is Python code, so more threads would not be faster, and the loop
    would have to wait for each of them before its own turn. A call from inside, such as that of a pass that
    asks a model, runs at once: it cannot wait for its own thread.
    """
    if _is_aside.get():
        return function(*args)
    context = copy_context()
    context.run(_is_aside.set, True)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_thread(os.getpid()), context.run, lambda: function(*args))
