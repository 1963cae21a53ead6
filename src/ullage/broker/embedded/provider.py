"""The provider of the model that runs in this process, without key, network or set-up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.broker.embedded import chunks, runtime, weights
from ullage.broker.embedded.channel import Channel
from ullage.broker.embedded.vocabulary import sendable
from ullage.errors import LocalModelError
from ullage.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from concurrent.futures import Future

    from ullage.broker.ask import Ask
    from ullage.broker.endpoint import Endpoint
    from ullage.broker.events import Event

SAMPLING = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.1}
"""Options that keep a small model on its subject; the caller's options replace them."""
MOST_OUTPUT = 512
"""Most tokens of an answer if the caller sets no limit, because a small model may not end by itself."""


class EmbeddedProvider:
    """A GGUF model in this process, SmolLM2-135M-Instruct by default.

    Loading begins at once, in a thread; `stream` and `count` wait for it. Requests are answered one at a
    time, in their order. The part that a prompt shares with the one before is not evaluated again.
    """

    def __init__(self, path: str | Path | None = None, *, window: int = 2048, threads: int = 1) -> None:
        runtime.check_installed()
        self.path = weights.require_file(path)
        model = weights.SMOLLM2.model if path is None else Path(path).stem.lower()
        self.target = Target(model=model, api="openai.chat", endpoint="embedded:")
        # SmolLM2 works in any window up to the one it was trained with; another model may not.
        self._known = window if path is None and window <= weights.SMOLLM2.context else None
        # One thread does everything that must not overlap, in order: load, answer, answer, free.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ullage-embedded")
        self._open: set[Channel[dict[str, Any] | Exception]] = set()
        self._ended = False
        self._runtime: runtime.Runtime | None = None
        self._loaded: Future[None] = self._worker.submit(self._load, model, window, threads)

    @property
    def status(self) -> str:
        """The state: `loading`, `ready`, `failed` or `closed`."""
        if self._ended:
            return "closed"
        if not self._loaded.done():
            return "loading"
        return "failed" if self._loaded.exception() else "ready"

    @property
    def failure(self) -> str:
        """The reason why the model does not load, and what to do; empty if it loads."""
        error = self._loaded.exception() if self._loaded.done() else None
        return "" if error is None else str(error)

    async def stream(self, ask: Ask) -> AsyncIterator[Event]:
        """Streams the answer of the model. Leaving the iterator stops the model."""
        if self._ended:
            raise LocalModelError("the embedded model is closed: create another EmbeddedProvider")
        channel: Channel[dict[str, Any] | Exception] = Channel()
        reader = chunks.ChunkReader()
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
        """Returns the longest prompt in tokens: the runtime's context less one token for the answer."""
        if self._known is not None and not self._ended:
            return self._known - 1
        loaded = await self._ready()
        return None if loaded is None else loaded.context - 1

    async def endpoint(self) -> Endpoint:
        """Returns the model's loopback port, for a gateway; raises LocalModelError if it does not load."""
        loaded = await self._ready()
        if loaded is None:
            raise LocalModelError(self.failure)
        return loaded.endpoint(self.target.model or "")

    async def count(self, ask: Ask) -> int | None:
        """Returns the runtime's exact count of the whole request; None if the model does not load."""
        loaded = await self._ready()
        return None if loaded is None else await asyncio.to_thread(loaded.count, _body(ask))

    def tokenizer(self) -> None:
        """Returns None, because there is no server: the model's own vocabulary counts already."""

    async def close(self) -> None:
        """Stops the current answers and frees the model."""
        self._ended = True
        for channel in tuple(self._open):
            channel.cut(LocalModelError("the embedded model was closed while it answered"))
        await asyncio.to_thread(self._let_go)

    def _load(self, model: str, window: int, threads: int) -> None:
        if not self._ended:
            self._runtime = runtime.Runtime(self.path, model=model, window=window, threads=threads)

    async def _ready(self) -> runtime.Runtime | None:
        try:
            await asyncio.to_thread(self._loaded.result)
        except LocalModelError:
            return None
        return self._runtime

    def _answer(self, body: dict[str, Any], channel: Channel[dict[str, Any] | Exception]) -> None:
        """Puts every chunk and every error into the channel; runs in the worker thread."""
        try:
            self._loaded.result()
            if self._runtime is not None and not channel.closed:
                self._runtime.chat(body, channel.put)
        except (LocalModelError, RuntimeError, ValueError, TypeError) as error:
            channel.put(chunks.make_refusal(error))
        finally:
            channel.end()

    def _let_go(self) -> None:
        self._worker.shutdown(wait=True)
        self._runtime = None  # the only reference, so this frees the model's memory


# With `return_progress` the runtime reports after every batch of the prompt, so it can be stopped there too.
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
    """Returns messages as plain JSON values, with texts that JSON can hold."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, Mapping):
        return {key: _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_sendable(each) for each in value]
    return value
