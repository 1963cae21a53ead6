"""The context window as the server tells it: what is configured comes first, and None means that nobody said.

A server may tell several figures: what the model was trained for, what it was started with, what a slot
has. The smallest counts, as that is where a request is refused.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ullage.broker.ways import TIMEOUT, Answer, exchange, host, root
from ullage.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.broker.endpoint import Endpoint
    from ullage.broker.http import Transport

MOST = 1_000_000_000
"""A window above this is none."""


class Source(NamedTuple):
    """One place where a server may tell its window."""

    method: str
    path: str
    """From the server's root; `{model}` stands for the model's name."""
    read: Callable[[Any, str], Iterator[Any]]
    """What the answer tells for a model: figures that may be windows, and None for each that is not there."""
    key: str = "bearer"


def _props(answer: Any, _: str) -> Iterator[Any]:
    yield _get(answer, "default_generation_settings", "n_ctx")  # of one slot


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
"""Where the entries of lists of models have the window."""


def _entry(answer: Any, _: str) -> Iterator[Any]:
    for path in FIELDS:
        yield _get(answer, *path)


def _listed(answer: Any, model: str) -> Iterator[Any]:
    """The figures of the model's entry, or of the only one: a server of one model takes any name for it."""
    entries = _get(answer, "data")
    entries = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    mine = [each for each in entries if model == each.get("id") or model in _strings(each.get("aliases"))]
    for entry in mine or (entries if len(entries) == 1 else []):
        yield from _entry(entry, model)


_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d{1,10})\s*$", re.MULTILINE)


def _shown(answer: Any, _: str) -> Iterator[Any]:
    """What the model was trained for, and what its file sets; the latter is what Ollama runs it with."""
    info = _get(answer, "model_info")
    for name, value in info.items() if isinstance(info, dict) else ():
        if isinstance(name, str) and name.endswith(".context_length"):
            yield value
    parameters = _get(answer, "parameters")
    if isinstance(parameters, str):
        yield from map(int, _NUM_CTX.findall(parameters))


SOURCES: Mapping[str, Source] = {
    "props": Source("GET", "/props", _props),
    "models": Source("GET", "/v1/models", _listed),
    "show": Source("POST", "/api/show", _shown),
    "lm studio": Source("GET", "/api/v0/models", _listed),
    "anthropic": Source("GET", "/v1/models/{model}", _entry, key="anthropic"),
    "gemini": Source("GET", "/v1beta/models/{model}", _entry, key="google"),
}

HOSTS: Mapping[str, tuple[str, ...]] = {
    "api.openai.com": (),  # lists its models without their windows
    "api.anthropic.com": ("anthropic",),
    "generativelanguage.googleapis.com": ("gemini",),
    **dict.fromkeys(("openrouter.ai", "api.groq.com", "api.mistral.ai", "api.together.xyz"), ("models",)),
}
"""Hosts that are known, and where they tell it."""

APIS: Mapping[str, tuple[str, ...]] = {
    "openai.chat": ("props", "models", "show", "lm studio"),
    "openai.responses": ("props", "models", "show", "lm studio"),
    "anthropic.messages": ("props", "anthropic", "models", "show"),
    "ollama.chat": ("show",),
}
"""Where a host that is not known is asked, in order."""


class Windows:
    """Windows by address and model, each asked for once; an answer that did not come is asked for again."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], int | None] = {}
        self._asking: dict[tuple[str, str, asyncio.AbstractEventLoop], asyncio.Lock] = {}

    async def window_of(self, endpoint: Endpoint, transport: Transport) -> int | None:
        """The window that is configured, else the one that the server tells, else None. Never raises."""
        if endpoint.window is not None:
            return endpoint.window
        place = (root(endpoint.url), endpoint.model)
        if place not in self._found:
            key = (*place, asyncio.get_running_loop())
            async with self._asking.setdefault(key, asyncio.Lock()):
                if place not in self._found:
                    window, answered = await _asked(endpoint, transport)
                    if not answered:
                        return None
                    self._found[place] = window
                    self._asking.pop(key, None)
        return self._found[place]


_sessions: WeakKeyDictionary[Transport, Windows] = WeakKeyDictionary()


async def window_of(endpoint: Endpoint, transport: Transport) -> int | None:
    """What `Windows.window_of` gives, remembered as long as the transport lives."""
    return await _sessions.setdefault(transport, Windows()).window_of(endpoint, transport)


async def _asked(endpoint: Endpoint, transport: Transport) -> tuple[int | None, bool]:
    """The first window that is told, and whether the server answered at all."""
    if not root(endpoint.url):
        return None, True
    names = HOSTS.get(host(endpoint.url))
    if names is None:
        names = APIS.get(endpoint.api, ())
    try:
        async with asyncio.timeout(TIMEOUT):
            for name in names:
                source = SOURCES[name]
                status, answer = await _answer(source, endpoint, transport)
                if status == 0:
                    return None, False
                told = [] if status != 200 else [*filter(_is_window, source.read(answer, endpoint.model))]
                if told:
                    return min(told), True
    except TimeoutError:
        return None, False
    return None, True


async def _answer(source: Source, endpoint: Endpoint, transport: Transport) -> Answer:
    body = {"model": endpoint.model} if source.method == "POST" else None
    try:
        return await exchange(endpoint, transport, source.path, body, method=source.method, key=source.key)
    except InvalidRequest:
        return Answer(0)


def _get(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _is_window(value: Any) -> bool:
    return value.__class__ is int and 0 < value <= MOST
