"""Writes an answer, read from any API, in the API of the client: one module an API.

An answer is a stream of events of the API, or one object. Both are made from the same `CollectedAnswer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ullage.gateway.answer_writer import chat, messages, responses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from ullage.gateway.answer_writer.collected import AnswerHead, AnswerPart, CollectedAnswer
    from ullage.target import ApiName


class StreamWriter(Protocol):
    """Writes the events of one answer as they come."""

    def begin(self) -> Iterator[bytes]:
        """Yields the events before the first word."""

    def add(self, part: AnswerPart) -> Iterator[bytes]:
        """Yields the events of a part of the answer."""

    def end(self, answer: CollectedAnswer) -> Iterator[bytes]:
        """Yields the events after the last part, with the usage."""


class AnswerWriter(NamedTuple):
    """The two forms of an answer in one API."""

    stream: Callable[[AnswerHead], StreamWriter]
    whole: Callable[[AnswerHead, CollectedAnswer], dict[str, Any]]


WRITERS: Mapping[ApiName, AnswerWriter] = {
    "openai.chat": AnswerWriter(chat.ChatStream, chat.whole),
    "openai.responses": AnswerWriter(responses.ResponsesStream, responses.whole),
    "anthropic.messages": AnswerWriter(messages.MessagesStream, messages.whole),
}

__all__ = ["WRITERS", "AnswerWriter", "StreamWriter"]
