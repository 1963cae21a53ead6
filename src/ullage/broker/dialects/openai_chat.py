"""OpenAI's chat completions, and the servers that speak it: llama.cpp, vLLM, SGLang, LM Studio, OpenRouter.

They differ in where reasoning stands, in which chunk usage comes, and in how calls are numbered; the reader
takes them all. The answer is whole when a finish reason or `[DONE]` has come.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.broker.dialect import Dialect
from ullage.broker.dialects.shared import (
    Ending,
    Part,
    bearer,
    broken,
    decoded,
    items,
    mapping,
    merged,
    text,
)
from ullage.broker.events import Finished, Reasoning, Text
from ullage.broker.frames import SseFramer
from ullage.broker.refusals import refusal
from ullage.broker.retry import may_retry
from ullage.models import short_name
from ullage.usage import Usage, read_usage
from ullage.wire import Request, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.broker.dialect import Frame
    from ullage.broker.events import Event
    from ullage.broker.provider import Ask

API = "openai.chat"

REASONS = {
    "stop": Finished("stop"),
    "eos": Finished("stop"),
    "length": Finished("length"),
    "max_tokens": Finished("length"),
    "model_length": Finished("length", "model_length"),
    "tool_calls": Finished("tool_calls"),
    "function_call": Finished("tool_calls"),
    "content_filter": Finished("refused", "content_filter"),
}
REASONING = ("reasoning_content", "reasoning")
"""Where servers put what the model thinks; some fill both with the same."""

LIMITS = ("max_tokens", "max_completion_tokens")
NEWER = re.compile(r"(?:o\d|gpt-[5-9]|gpt-\d\d|codex)")
"""OpenAI's models that refuse `max_tokens`. Every other server takes it, and not every one the newer name."""


def body(model: str, ask: Ask) -> dict[str, Any]:
    """A request's body, with streaming and usage switched on."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    written |= {"stream": True, "stream_options": {"include_usage": True}}
    if ask.max_output is not None and not any(name in ask.options for name in LIMITS):
        written[LIMITS[NEWER.match(short_name(model)) is not None]] = ask.max_output
    return merged(written, ask.options)


class ChatReader:
    """Reads the chunks of one answer."""

    def __init__(self) -> None:
        self._ending = Ending(API, REASONS)
        self._parts: list[Part] = []
        self._at: dict[int, Part] = {}
        self._answer = ""
        self._word: str | None = None

    def read(self, frame: Frame) -> Iterator[Event]:
        """What a chunk tells."""
        if self._ending.over or not frame.data.strip():
            return
        if frame.data.strip() == "[DONE]":
            yield from self._finish()
            return
        chunk = decoded(frame)
        error = chunk.get("error") or _choice_error(chunk)
        if error and self._word is None:  # after the end it is a remark: OpenRouter sends one with the usage
            raise refusal(_status(error), {"error": error})
        self._answer = self._answer or text(chunk.get("id"))
        for choice in items(chunk.get("choices")):
            if choice.get("index") in (0, None):
                yield from self._choice(choice)
        yield from self._usage(chunk)

    def end(self) -> Iterator[Event]:
        """The last event where a finish reason has come; raises StreamBroken where none has."""
        if self._ending.over:
            return
        if self._word is None:
            raise broken()
        yield from self._finish()

    def _finish(self) -> Iterator[Event]:
        yield from self._complete()
        yield from self._ending.finished(self._word)

    def _choice(self, choice: dict[str, Any]) -> Iterator[Event]:
        delta = mapping(choice.get("delta") or choice.get("message"))
        thought = next((text(delta[name]) for name in REASONING if text(delta.get(name))), "")
        if thought:
            yield Reasoning(thought)
        yield from _content(delta.get("content"))
        if text(delta.get("refusal")):
            self._ending.refused = True
            yield Text(delta["refusal"])
        for call in items(delta.get("tool_calls")):
            self._collect(call)
        if isinstance(delta.get("function_call"), dict):  # the older form has one call, and no id
            self._collect({"index": 0, "function": delta["function_call"]})
        if text(choice.get("finish_reason")):
            self._word = choice["finish_reason"]
            yield from self._complete()

    def _collect(self, call: dict[str, Any]) -> None:
        function = mapping(call.get("function"))
        name, identity = text(function.get("name")), text(call.get("id"))
        part = self._part(call.get("index"), identity, name)
        part.id = part.id or identity
        part.name = part.name or name
        part.add(function.get("arguments"))

    def _part(self, index: Any, identity: str, name: str) -> Part:
        """The call that a piece belongs to: by index, by id, or the last one; another id begins another.

        Vertex numbers the pieces of one call differently, so an id that is still open goes before a number.
        """
        numbered = isinstance(index, int)
        at = self._at.get(index) if numbered else None
        same = next((each for each in reversed(self._parts) if identity and each.id == identity), None)
        if at is not None and (not identity or at.id in {"", identity} or not name):
            part = at
        elif same is not None and (not numbered or (name in {"", same.name} and not same.whole)):
            part = same
        elif self._parts and not numbered and not identity and not name:
            part = self._parts[-1]
        else:
            part = Part()
            self._parts.append(part)
        if numbered:
            self._at[index] = part
        return part

    def _complete(self) -> Iterator[Event]:
        """The calls, which only the end of the answer tells to be complete."""
        for part in self._parts:
            if part.name:
                yield self._ending.call(part, self._answer)
        self._parts, self._at = [], {}

    def _usage(self, chunk: dict[str, Any]) -> Iterator[Event]:
        timings = mapping(chunk.get("timings"))
        ours = mapping(chunk.get("usage")) or mapping(mapping(chunk.get("x_groq")).get("usage"))
        if ours:
            yield from self._ending.told(ours)
        if timings and self._ending.usage is not None:
            yield from self._ending.used(_with_cache(self._ending.usage, _timed(timings)))
        elif timings and self._word is not None:
            yield from self._ending.used(_timed(timings))


def _content(content: Any) -> Iterator[Event]:
    """The text of a delta; Mistral's thinking comes as parts."""
    if text(content):
        yield Text(content)
    for part in items(content):
        if text(part.get("text")):
            yield Text(part["text"])
        thoughts = "".join(text(each.get("text")) for each in items(part.get("thinking")))
        if thoughts:
            yield Reasoning(thoughts)


def _choice_error(chunk: dict[str, Any]) -> Any:
    """An error that stands in a choice, or the finish reason that stands for one."""
    for choice in items(chunk.get("choices")):
        if choice.get("error") or choice.get("finish_reason") == "error":
            return choice.get("error") or {"message": "the provider failed in the middle of its answer"}
    return None


def _status(error: Any) -> int | None:
    """The status that an error has for a code, where it may pass: so vLLM, llama.cpp and OpenRouter."""
    code = mapping(error).get("code")
    return code if isinstance(code, int) and may_retry(code, None) else None


def _timed(timings: dict[str, Any]) -> Usage | None:
    """What llama.cpp measured: of the prompt, what it evaluated and what it had in its cache."""
    told = read_usage(
        {
            "prompt_tokens": timings.get("prompt_n"),
            "completion_tokens": timings.get("predicted_n"),
            "prompt_tokens_details": {"cached_tokens": timings.get("cache_n")},
        }
    )
    if not told.prompt and not told.completion:
        return None
    evaluated = read_usage({"prompt_tokens": timings.get("prompt_n")}).prompt
    return replace(told, prompt=evaluated + told.cached_read)


def _with_cache(usage: Usage, timed: Usage | None) -> Usage:
    """A usage with the cached part that only the timings tell."""
    if timed is None or usage.cached_read or timed.cached_read > usage.prompt:
        return usage
    return replace(usage, cached_read=timed.cached_read)


DIALECT = Dialect(path="/chat/completions", body=body, headers=bearer, framer=SseFramer, reader=ChatReader)
