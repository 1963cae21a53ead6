"""The model that runs in this process: no key, no network, no set-up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.broker.embedded import reading, runtime, weights
from ullage.broker.embedded.channel import Channel
from ullage.broker.embedded.vocabulary import sendable
from ullage.errors import LocalModelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from concurrent.futures import Future

    from ullage.broker.events import Event
    from ullage.broker.provider import Ask

SAMPLING = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.1}
"""How a small model stays on its subject; what is asked for goes before it."""
MOST_OUTPUT = 512
"""The longest answer where nobody says how long: a small model may not find its end."""


class EmbeddedProvider:
    """A GGUF model in this process, SmolLM2-135M-Instruct by default.

    Loading begins at once, in a thread; `stream` and `count` wait for it. Answers are given one at a time, in
    the order in which they were asked for. What a prompt shares with the one before is not evaluated again.
    """

    endpoint = "embedded:"

    def __init__(self, path: str | Path | None = None, *, window: int = 2048, threads: int = 1) -> None:
        runtime.check_installed()
        self.path = weights.needed(path)
        self.model = weights.SMOLLM2.model if path is None else Path(path).stem.lower()
        # Our own model runs with what it is given, up to what it was trained for; another one may not.
        self._known = window if path is None and window <= weights.SMOLLM2.context else None
        # One thread does all that must not overlap, in order: load, answer, answer, let go.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ullage-embedded")
        self._open: set[Channel[dict[str, Any] | Exception]] = set()
        self._ended = False
        self._runtime: runtime.Runtime | None = None
        self._loaded: Future[None] = self._worker.submit(self._load, window, threads)

    @property
    def status(self) -> str:
        """`loading`, `ready`, `failed` or `closed`."""
        if self._ended:
            return "closed"
        if not self._loaded.done():
            return "loading"
        return "failed" if self._loaded.exception() else "ready"

    @property
    def failure(self) -> str:
        """Why it does not load, and what to do; empty where it does."""
        error = self._loaded.exception() if self._loaded.done() else None
        return "" if error is None else str(error)

    async def stream(self, ask: Ask) -> AsyncIterator[Event]:
        """What the model answers, as it comes. Leaving the iterator stops the model."""
        if self._ended:
            raise LocalModelError("the embedded model is closed: make another EmbeddedProvider")
        channel: Channel[dict[str, Any] | Exception] = Channel()
        reader = reading.ChunkReader()
        body = {**_body(ask), "stream": True, **_STREAMED}
        self._open.add(channel)
        try:
            self._worker.submit(self._answer, body, channel)
            while (item := await channel.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                for event in reader.read(item):
                    yield event
            for event in reader.end():
                yield event
        finally:
            channel.close()
            self._open.discard(channel)

    async def window(self) -> int | None:
        """The longest prompt: one less than the runtime's context, for the first token of the answer."""
        if self._known is not None and not self._ended:
            return self._known - 1
        loaded = await self._ready()
        return None if loaded is None else loaded.context - 1

    async def count(self, ask: Ask) -> int | None:
        """What the runtime counts for the whole request: exactly what it will evaluate."""
        loaded = await self._ready()
        return None if loaded is None else await asyncio.to_thread(loaded.count, _body(ask))

    async def close(self) -> None:
        """Stops what is being answered and frees the model."""
        self._ended = True
        for channel in tuple(self._open):
            channel.cut(LocalModelError("the embedded model was closed while it answered"))
        await asyncio.to_thread(self._let_go)

    def _load(self, window: int, threads: int) -> None:
        if not self._ended:
            self._runtime = runtime.Runtime(self.path, model=self.model, window=window, threads=threads)

    async def _ready(self) -> runtime.Runtime | None:
        try:
            await asyncio.to_thread(self._loaded.result)
        except LocalModelError:
            return None
        return self._runtime

    def _answer(self, body: dict[str, Any], channel: Channel[dict[str, Any] | Exception]) -> None:
        """In the worker: every chunk into the channel, and what goes wrong too."""
        try:
            self._loaded.result()
            if self._runtime is not None and not channel.closed:
                self._runtime.chat(body, channel.put)
        except (LocalModelError, RuntimeError, ValueError, TypeError) as error:
            channel.put(reading.refused(error))
        finally:
            channel.end()

    def _let_go(self) -> None:
        self._worker.shutdown(wait=True)
        self._runtime = None  # the only reference: the model's memory goes with it


# `return_progress` makes the runtime speak after every batch of the prompt: there, too, it can be stopped.
_STREAMED = {"stream_options": {"include_usage": True}, "return_progress": True, "cache_prompt": True}


def _body(ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": _sendable(ask.messages),
        "max_tokens": MOST_OUTPUT if ask.max_output is None else ask.max_output,
        **SAMPLING,
        **ask.options,
    }
    if ask.tools:
        body["tools"] = _sendable(ask.tools)
    return body


def _sendable(value: Any) -> Any:
    """Messages as plain JSON values, whose texts JSON can carry."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, Mapping):
        return {key: _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_sendable(each) for each in value]
    return value
