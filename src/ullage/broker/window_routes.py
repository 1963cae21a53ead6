"""Finds a model's context window: the configured one, or the one that its server states; None if unknown.

A server may state several numbers: the window of the training, the window it was started with, the window of
a slot. The smallest one decides, because larger requests are refused.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ullage.broker.count_routes import TIMEOUT, CountAnswer, exchange, root
from ullage.broker.registry import routes_of
from ullage.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.broker.endpoint import Endpoint
    from ullage.broker.http import Transport

MOST = 1_000_000_000
"""Most tokens of a window; a larger number is not a window."""
MOST_MODELS = 1_000
"""Most models whose windows are remembered."""


class WindowRoute(NamedTuple):
    """One place where a server may state its window."""

    method: str
    path: str
    """The path from the server's root; `{model}` stands for the model's name."""
    read: Callable[[Any, str], Iterator[Any]]
    """Yields the numbers in an answer that may be the model's window, and None for missing ones."""
    key: str = "bearer"


def _read_props(answer: Any, _: str) -> Iterator[Any]:
    yield _get(answer, "default_generation_settings", "n_ctx")  # the window of one slot


FIELDS = (
    ("max_model_len",),  # vLLM, SGLang
    ("meta", "n_ctx"),  # llama.cpp
    ("meta", "n_ctx_train"),
    ("context_length",),  # OpenRouter, Together
    ("top_provider", "context_length"),
    ("max_context_length",),  # LM Studio, Mistral
    ("loaded_context_length",),
    ("context_window",),  # Groq
    ("max_input_tokens",),  # Anthropic
    ("inputTokenLimit",),  # Gemini
)
"""The fields of a list of models that may have the window."""


def _read_entry(answer: Any, _: str) -> Iterator[Any]:
    for path in FIELDS:
        yield _get(answer, *path)


def _read_list(answer: Any, model: str) -> Iterator[Any]:
    """Yields the numbers of the model's entry, or of the only entry, which stands for any name."""
    entries = _get(answer, "data")
    entries = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    mine = [each for each in entries if model == each.get("id") or model in _strings(each.get("aliases"))]
    for entry in mine or (entries if len(entries) == 1 else []):
        yield from _read_entry(entry, model)


_NUM_CTX = re.compile(r"^[ \t]*num_ctx[ \t]+(\d{1,10})[ \t\r]*$", re.MULTILINE)


def _read_model_info(answer: Any, _: str) -> Iterator[Any]:
    """Yields the window of the training, and the one that the model's file sets, which Ollama uses."""
    info = _get(answer, "model_info")
    for name, value in info.items() if isinstance(info, dict) else ():
        if isinstance(name, str) and name.endswith(".context_length"):
            yield value
    parameters = _get(answer, "parameters")
    if isinstance(parameters, str):
        yield from map(int, _NUM_CTX.findall(parameters))


WINDOW_ROUTES: Mapping[str, WindowRoute] = {
    "llama.cpp": WindowRoute("GET", "/props", _read_props),
    "models": WindowRoute("GET", "/v1/models", _read_list),
    "ollama": WindowRoute("POST", "/api/show", _read_model_info),
    "lm studio": WindowRoute("GET", "/api/v0/models", _read_list),
    "anthropic": WindowRoute("GET", "/v1/models/{model}", _read_entry, key="anthropic"),
    "gemini": WindowRoute("GET", "/v1beta/models/{model}", _read_entry, key="google"),
}


class Windows:
    """Windows by address and model, each asked for once; asked for again if no answer came."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], int | None] = {}
        self._asking: dict[tuple[str, str, asyncio.AbstractEventLoop], asyncio.Lock] = {}

    async def window_of(self, endpoint: Endpoint, transport: Transport) -> int | None:
        """Returns the configured window, or the one that the server states, or None. Never raises."""
        if endpoint.window is not None:
            return endpoint.window
        place = (root(endpoint.url), endpoint.model)
        if place not in self._found:
            key = (*place, asyncio.get_running_loop())
            async with self._asking.setdefault(key, asyncio.Lock()):
                if place in self._found:
                    return self._found[place]
                try:
                    window, answered = await _ask_window(endpoint, transport)
                finally:
                    self._asking.pop(key, None)
                if answered:
                    if len(self._found) >= MOST_MODELS:
                        self._found.clear()
                    self._found[place] = window
                return window
        return self._found[place]


_sessions: WeakKeyDictionary[Transport, Windows] = WeakKeyDictionary()


async def window_of(endpoint: Endpoint, transport: Transport) -> int | None:
    """Returns the result of `Windows.window_of`, which is remembered as long as the transport lives."""
    return await _sessions.setdefault(transport, Windows()).window_of(endpoint, transport)


async def _ask_window(endpoint: Endpoint, transport: Transport) -> tuple[int | None, bool]:
    """Returns the first stated window, and True if the server answered at all."""
    if not root(endpoint.url):
        return None, True
    try:
        async with asyncio.timeout(TIMEOUT):
            for name in routes_of(endpoint).window:
                route = WINDOW_ROUTES[name]
                status, answer = await _answer(route, endpoint, transport)
                if status == 0:
                    return None, False
                stated = [] if status != 200 else [*filter(_is_window, route.read(answer, endpoint.model))]
                if stated:
                    return min(stated), True
    except TimeoutError:
        return None, False
    return None, True


async def _answer(route: WindowRoute, endpoint: Endpoint, transport: Transport) -> CountAnswer:
    body = {"model": endpoint.model} if route.method == "POST" else None
    try:
        return await exchange(endpoint, transport, route.path, body, method=route.method, key=route.key)
    except InvalidRequest:
        return CountAnswer(0)


def _get(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _is_window(value: Any) -> bool:
    return value.__class__ is int and 0 < value <= MOST
