"""Ollama's own chat API: a line of JSON for each piece, whole with the line that says `done`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.broker.dialect import Dialect
from ullage.broker.dialects.shared import Ending, Part, bearer, decoded, items, mapping, merged, text
from ullage.broker.events import Finished, Reasoning, Text
from ullage.broker.frames import JsonLinesFramer
from ullage.broker.refusals import refusal
from ullage.wire import Request, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.broker.dialect import Frame
    from ullage.broker.events import Event
    from ullage.broker.provider import Ask

API = "ollama.chat"

REASONS = {
    "": Finished("stop"),  # older servers give no reason
    "stop": Finished("stop"),
    "length": Finished("length"),
}


def body(model: str, ask: Ask) -> dict[str, Any]:
    """A request's body; the server is asked not to cut a prompt that is too long in silence."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    written |= {"stream": True, "truncate": False}
    # Without `num_ctx` it runs with a window of its own, whatever the model was trained for.
    limits = {"num_predict": ask.max_output, "num_ctx": ask.window}
    set_limits = {name: limit for name, limit in limits.items() if limit is not None}
    options = merged(set_limits, mapping(ask.options.get("options")))
    return merged(written, {**ask.options, "options": options or None})


class OllamaReader:
    """Reads the lines of one answer."""

    def __init__(self) -> None:
        self._ending = Ending(API, REASONS)
        self._begun = ""

    def read(self, frame: Frame) -> Iterator[Event]:
        """What a line tells."""
        if self._ending.over or not frame.data.strip():
            return
        line = decoded(frame)
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
            yield from self._ending.told(line)
            yield from self._ending.finished(line.get("done_reason"))

    def end(self) -> Iterator[Event]:
        """Nothing; raises StreamBroken where the answer was not at its end."""
        return self._ending.end()

    def _call(self, call: dict[str, Any]) -> Iterator[Event]:
        function = mapping(call.get("function"))
        if text(function.get("name")):
            part = Part(id=text(call.get("id")), name=function["name"])
            part.add(function.get("arguments"))
            yield self._ending.call(part, self._begun)


DIALECT = Dialect(path="/api/chat", body=body, headers=bearer, framer=JsonLinesFramer, reader=OllamaReader)
