"""Reads the runtime's chunks as events: OpenAI's chat stream, with llama.cpp's own errors and timings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.broker.events import Finished, Reasoning, Text, ToolCall, Used
from ullage.errors import ContextOverflowError, LocalModelError, ProviderError, StreamBroken
from ullage.usage import Usage, read_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.broker.events import Event, Reason

OVERFLOW = "exceed_context_size_error"
_REASONS: Mapping[str, Reason] = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


class ChunkReader:
    """Reads the chunks of one answer."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, str]] = {}
        self._reason: str | None = None

    def read(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        """Returns the events of a chunk; raises if it has an error."""
        if "error" in chunk:
            raise error_of(chunk["error"])
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            if delta.get("reasoning_content"):
                yield Reasoning(delta["reasoning_content"])
            if delta.get("content"):
                yield Text(delta["content"])
            for part in delta.get("tool_calls") or ():
                self._gather(part)
            self._reason = choice.get("finish_reason") or self._reason
        if isinstance(chunk.get("usage"), dict):
            yield Used(_usage(chunk))

    def end(self) -> Iterator[Event]:
        """Yields the complete calls and the end; raises StreamBroken if the runtime gave no reason."""
        if self._reason is None:
            raise StreamBroken("the embedded model stopped in the middle of its answer; ask again")
        for call in self._calls.values():
            yield ToolCall(call["id"], call["name"], call["arguments"])
        yield Finished(_REASONS.get(self._reason, "other"), self._reason)

    def _gather(self, part: Mapping[str, Any]) -> None:
        number = part.get("index", 0)
        call = self._calls.setdefault(number, {"id": f"call_{number}", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""


def _usage(chunk: Mapping[str, Any]) -> Usage:
    """Returns the usage; the timings say how much of the prompt was evaluated."""
    usage = read_usage(chunk["usage"])
    evaluated = (chunk.get("timings") or {}).get("prompt_n")
    if not isinstance(evaluated, int) or not 0 <= evaluated <= usage.prompt:
        return usage
    return Usage(prompt=usage.prompt, completion=usage.completion, cached_read=usage.prompt - evaluated)


def error_of(error: Any) -> Exception:
    """Returns the runtime's error as ours: an overflow with its numbers, or a refusal."""
    if not isinstance(error, dict):
        return ProviderError(f"the embedded model failed: {error}")
    if error.get("type") == OVERFLOW:
        tokens, context = int(error.get("n_prompt_tokens") or 0), int(error.get("n_ctx") or 1)
        return ContextOverflowError(tokens, context - 1, reported=tokens or None)
    code = error.get("code")
    return ProviderError(
        f"the embedded model refused the request: {error.get('message', 'no reason given')}",
        status=code if isinstance(code, int) else None,
        code=error.get("type"),
    )


def make_refusal(error: Exception) -> Exception:
    """Returns the typed error for one that the runtime raised."""
    if isinstance(error, LocalModelError):
        return error
    return ProviderError(f"the embedded model refused the request: {error}")
