"""OpenAI's chat completions, also spoken by llama.cpp, vLLM, SGLang, LM Studio and OpenRouter.

The servers differ in the field of the reasoning, in the chunk with the usage, and in the numbers of calls.
The reader accepts all forms. The answer is complete when a finish reason or `[DONE]` has come.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.broker.dialect import Dialect, Progress
from ullage.broker.dialects.shared import (
    AnswerState,
    Part,
    bearer,
    decode_frame,
    items,
    make_stream_broken,
    mapping,
    merge_options,
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

    from ullage.broker.ask import Ask
    from ullage.broker.dialect import Frame
    from ullage.broker.events import Event
    from ullage.target import ApiName

API: ApiName = "openai.chat"

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
"""The fields in which servers put the reasoning; some fill both with the same text."""

CALL_SIZE = 128
"""Characters that each call adds to the size of an answer, beside its content."""

LIMITS = ("max_tokens", "max_completion_tokens")
NEWER = re.compile(r"(?:o\d|gpt-[5-9]|gpt-\d\d|codex)")
"""OpenAI's models that reject `max_tokens`. All other servers take it, but not all take the newer name."""


def body(model: str, ask: Ask) -> dict[str, Any]:
    """Returns the body of a request, with streaming and usage enabled."""
    written = write(Request(model=model, messages=ask.messages, tools=ask.tools), API)
    written |= {"stream": True, "stream_options": {"include_usage": True}}
    if ask.max_output is not None and not any(name in ask.options for name in LIMITS):
        written[limit_field(model)] = ask.max_output
    return merge_options(written, ask.options)


@functools.cache
def limit_field(model: str) -> str:
    """Returns the name of the field that limits the answer of this model."""
    return LIMITS[NEWER.match(short_name(model)) is not None]


class ChatReader:
    """Reads the chunks of one answer."""

    def __init__(self) -> None:
        self._ending = AnswerState(API, REASONS)
        self._parts: list[Part] = []
        self._at: dict[int, Part] = {}
        self._named: dict[str, Part] = {}
        self._answer = ""
        self._word: str | None = None

    @property
    def whole(self) -> bool:
        """True once a finish reason or `[DONE]` has come."""
        return self._ending.over or self._word is not None

    def read(self, frame: Frame) -> Iterator[Event | Progress]:
        """Returns the events of a chunk."""
        if self._ending.over or not frame.data.strip():
            return
        if frame.data.strip() == "[DONE]":
            yield from self._finish()
            return
        chunk = decode_frame(frame)
        error = chunk.get("error") or _choice_error(chunk)
        # After the end it is only a note: OpenRouter sends one with the usage
        if error and self._word is None:
            raise refusal(_status(error), {"error": error})
        self._answer = self._answer or text(chunk.get("id"))
        for choice in items(chunk.get("choices")):
            if choice.get("index") in (0, None):
                yield from self._choice(choice)
        yield from self._usage(chunk)

    def end(self) -> Iterator[Event]:
        """Yields the last event if a finish reason has come; raises StreamBroken if none has."""
        if self._ending.over:
            return
        if self._word is None:
            raise make_stream_broken()
        yield from self._finish()

    def _finish(self) -> Iterator[Event]:
        yield from self._complete()
        yield from self._ending.finish(self._word)

    def _choice(self, choice: dict[str, Any]) -> Iterator[Event | Progress]:
        delta = mapping(choice.get("delta") or choice.get("message"))
        thought = next((text(delta[name]) for name in REASONING if text(delta.get(name))), "")
        if thought:
            yield Reasoning(thought)
        yield from _content(delta.get("content"))
        if text(delta.get("refusal")):
            self._ending.refused = True
            yield Text(delta["refusal"])
        for call in items(delta.get("tool_calls")):
            yield from self._collect(call)
        if isinstance(delta.get("function_call"), dict):  # the older form has one call without an id
            yield from self._collect({"index": 0, "function": delta["function_call"]})
        if text(choice.get("finish_reason")):
            self._word = choice["finish_reason"]
            yield from self._complete()

    def _collect(self, call: dict[str, Any]) -> Iterator[Progress]:
        function = mapping(call.get("function"))
        name, identity = text(function.get("name")), text(call.get("id"))
        known = len(self._parts)
        part = self._part(call.get("index"), identity, name)
        if len(self._parts) > known:
            yield Progress(CALL_SIZE)
        if identity and not part.id:
            part.id = identity
            self._named[identity] = part
        if name and not part.name:
            part.name = name
            yield Progress(len(name))
        yield from part.add(function.get("arguments"))

    def _part(self, index: Any, identity: str, name: str) -> Part:
        """Returns the call of a piece: by index, by id, or the last call; a new id begins a new call.

        Vertex numbers the pieces of one call differently, so the id of an unfinished call takes precedence
        over a number.
        """
        numbered = isinstance(index, int)
        at = self._at.get(index) if numbered else None
        same = self._named.get(identity) if identity else None
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
        """Yields the calls, which are known to be complete only at the end of the answer."""
        for part in self._parts:
            if part.name:
                yield self._ending.call(part, self._answer)
        self._parts, self._at, self._named = [], {}, {}

    def _usage(self, chunk: dict[str, Any]) -> Iterator[Event]:
        timings = mapping(chunk.get("timings"))
        ours = mapping(chunk.get("usage")) or mapping(mapping(chunk.get("x_groq")).get("usage"))
        if ours:
            yield from self._ending.read_usage(ours)
        if timings and self._ending.usage is not None:
            yield from self._ending.set_usage(_with_cache(self._ending.usage, _read_timings(timings)))
        elif timings and self._word is not None:
            yield from self._ending.set_usage(_read_timings(timings))


def _content(content: Any) -> Iterator[Event]:
    """Yields the text of a delta; Mistral sends reasoning as parts."""
    if text(content):
        yield Text(content)
    for part in items(content):
        if text(part.get("text")):
            yield Text(part["text"])
        thoughts = "".join(text(each.get("text")) for each in items(part.get("thinking")))
        if thoughts:
            yield Reasoning(thoughts)


def _choice_error(chunk: dict[str, Any]) -> Any:
    """Returns an error inside a choice, or one for a finish reason that means an error."""
    for choice in items(chunk.get("choices")):
        if choice.get("error") or choice.get("finish_reason") == "error":
            return choice.get("error") or {"message": "the provider failed in the middle of its answer"}
    return None


def _status(error: Any) -> int | None:
    """Returns the HTTP status in the field `code` of a temporary error; some servers send it there."""
    code = mapping(error).get("code")
    return code if isinstance(code, int) and may_retry(code, None) else None


def _read_timings(timings: dict[str, Any]) -> Usage | None:
    """Returns the usage by llama.cpp's timings: the evaluated prompt tokens, and those from its cache."""
    usage = read_usage(
        {
            "prompt_tokens": timings.get("prompt_n"),
            "completion_tokens": timings.get("predicted_n"),
            "prompt_tokens_details": {"cached_tokens": timings.get("cache_n")},
        }
    )
    if not usage.prompt and not usage.completion:
        return None
    evaluated = read_usage({"prompt_tokens": timings.get("prompt_n")}).prompt
    return replace(usage, prompt=evaluated + usage.cached_read)


def _with_cache(usage: Usage, timed: Usage | None) -> Usage:
    """Returns a usage with the cached tokens, which only the timings have."""
    if timed is None or usage.cached_read or timed.cached_read > usage.prompt:
        return usage
    return replace(usage, cached_read=timed.cached_read)


DIALECT = Dialect(path="/chat/completions", body=body, headers=bearer, framer=SseFramer, reader=ChatReader)
