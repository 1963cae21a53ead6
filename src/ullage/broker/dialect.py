"""A dialect: the HTTP requests and answers of one API. Each dialect is a row of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ullage.broker.ask import Ask
    from ullage.broker.endpoint import Key
    from ullage.broker.events import Event


class Frame(NamedTuple):
    """One message of a stream: an event of server-sent events, or a line of JSON."""

    data: str
    event: str = ""
    """The name of the event; empty if it has none."""


class Progress(NamedTuple):
    """A part of something unfinished, such as a call; it only shows that the answer goes on."""

    size: int
    """The size in characters."""


class Framer(Protocol):
    """Cuts the bytes of an answer into frames, at any split of the network."""

    def feed(self, chunk: bytes) -> Iterable[Frame]:
        """Yields the frames that are complete now."""

    def end(self) -> Iterable[Frame]:
        """Returns the frames that are left when the bytes end; most dialects ignore them."""


class AnswerReader(Protocol):
    """Reads the frames of one answer; raises ProviderError or ContextOverflowError for an error in them."""

    @property
    def whole(self) -> bool:
        """True once the model has ended its answer. Only usage may still come, and `end` does not raise."""

    def read(self, frame: Frame) -> Iterable[Event | Progress]:
        """Returns the events of a frame; none for a ping or an empty piece."""

    def end(self) -> Iterable[Event]:
        """Returns the events at the end of the stream; raises StreamBroken if the answer is not complete."""


class Dialect(NamedTuple):
    """The requests and answers of one API."""

    path: str
    """The path that is appended to the endpoint's address."""
    body: Callable[[str, Ask], dict[str, Any]]
    """Makes the body of a request from the model's name and the Ask, with streaming and usage enabled."""
    headers: Callable[[Key | None], Mapping[str, str]]
    framer: Callable[[], Framer]
    reader: Callable[[], AnswerReader]
