"""Ollama's own chat API: each piece is a line of JSON, and the line with `done` is the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.broker.dialect import Dialect
from ullage.broker.dialects.shared import (
    AnswerState,
    Part,
    bearer,
    decode_frame,
    items,
    mapping,
    merge_options,
    text,
)
from ullage.broker.events import Finished, Reasoning, Text
from ullage.broker.frames import JsonLinesFramer
from ullage.broker.refusals import refusal
from ullage.wire import Request, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.broker.ask import Ask
    from ullage.broker.dialect import Frame, Progress
    from ullage.broker.events import Event
    from ullage.target import ApiName

API: ApiName = "ollama.chat"

REASONS = {
    "": Finished("stop"),  # older servers send no reason
    "stop": Finished("stop"),
    "length": Finished("length"),
}


def body(model: str, ask: Ask) -> dict[str, Any]:
    """Returns the body of a request; it asks the server not to cut a long prompt silently."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    written |= {"stream": True, "truncate": False}
    # Without `num_ctx` the server uses its own window, even if the model has a larger one.
    limits = {"num_predict": ask.max_output, "num_ctx": ask.window}
    set_limits = {name: limit for name, limit in limits.items() if limit is not None}
    options = merge_options(set_limits, mapping(ask.options.get("options")))
    return merge_options(written, {**ask.options, "options": options or None})


class OllamaReader:
    """Reads the lines of one answer."""

    def __init__(self) -> None:
        self._ending = AnswerState(API, REASONS)
        self._begun = ""

    @property
    def whole(self) -> bool:
        """True once the line that says `done` has come."""
        return self._ending.over

    def read(self, frame: Frame) -> Iterator[Event | Progress]:
        """Returns the events of a line."""
        if self._ending.over or not frame.data.strip():
            return
        line = decode_frame(frame)
        if line.get("error"):
            raise refusal(None, line)
        self._begun = self._begun or text(line.get("created_at"))
        message = mapping(line.get("message"))
        if text(message.get("thinking")):
            yield Reasoning(message["thinking"])
        if text(message.get("content")):
            yield Text(message["content"])
        for call in items(message.get("tool_calls")):
            yield from self._call(call)
        if line.get("done") is True:
            yield from self._ending.read_usage(line)
            yield from self._ending.finish(line.get("done_reason"))

    def end(self) -> Iterator[Event]:
        """Yields nothing; raises StreamBroken if the answer is not complete."""
        return self._ending.end()

    def _call(self, call: dict[str, Any]) -> Iterator[Event | Progress]:
        function = mapping(call.get("function"))
        if text(function.get("name")):
            part = Part(id=text(call.get("id")), name=function["name"])
            yield from part.add(function.get("arguments"))
            yield self._ending.call(part, self._begun)


DIALECT = Dialect(path="/api/chat", body=body, headers=bearer, framer=JsonLinesFramer, reader=OllamaReader)
