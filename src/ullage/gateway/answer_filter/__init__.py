"""Takes recall calls out of an answer, and joins the answers of several rounds: one module an API.

The client sees one answer. What the model says before and after a recall comes as it was written, signatures
and sealed reasoning included. Thinking that stands right before a recall goes with that call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ullage.gateway.answer_filter import chat, messages, responses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from ullage.gateway.answer_filter.shared import RecallCall
    from ullage.target import ApiName


class StreamFilter(Protocol):
    """Filters the events of the rounds of one answer."""

    has_other_calls: bool
    """True if the client has tools to run before the model goes on."""

    @property
    def calls(self) -> list[RecallCall]:
        """The recall calls of this round."""

    def feed(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the events that the client gets for an event of the upstream."""

    def next_round(self) -> None:
        """Begins another round: its events follow those of the round before."""

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yields the events at the end of the answer, with the usage of all rounds."""


class AnswerFilter(NamedTuple):
    """The two forms of an answer in one API, and its hidden turns."""

    stream: Callable[[], StreamFilter]
    split: Callable[[dict[str, Any]], tuple[dict[str, Any], list[RecallCall], bool]]
    """Returns a whole answer without recall calls, these calls, and True if others are left."""
    make_hidden_turn: Callable[[Sequence[RecallCall], Sequence[str]], list[Any]]
    """Returns the items of the hidden turn: the calls, and their results."""
    tool: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Returns the recall tool in the form of the API."""


FILTERS: Mapping[ApiName, AnswerFilter] = {
    "openai.chat": AnswerFilter(chat.ChatFilter, chat.split, chat.make_hidden_turn, dict),
    "openai.responses": AnswerFilter(
        responses.ResponsesFilter, responses.split, responses.make_hidden_turn, responses.tool
    ),
    "anthropic.messages": AnswerFilter(
        messages.MessagesFilter, messages.split, messages.make_hidden_turn, messages.tool
    ),
}

__all__ = ["FILTERS", "AnswerFilter", "StreamFilter"]
