"""A dialect: how one API is asked over HTTP and how its answer is read. Dialects are rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from ullage.broker.endpoint import Key
    from ullage.broker.events import Event
    from ullage.broker.provider import Ask


class Frame(NamedTuple):
    """One message of a stream: an event of server-sent events, or a line of JSON."""

    data: str
    event: str = ""
    """The event's name, where it has one."""


class Framer(Protocol):
    """Cuts the bytes of an answer into frames, wherever the network cut them."""

    def feed(self, chunk: bytes) -> Iterable[Frame]:
        """The frames that are complete now."""

    def end(self) -> Iterable[Frame]:
        """What is left when the bytes end; most dialects take that for nothing."""


class Reader(Protocol):
    """Reads the frames of one answer; raises ProviderError or ContextOverflowError for an error in them."""

    def read(self, frame: Frame) -> Iterable[Event]:
        """What a frame tells."""

    def end(self) -> Iterable[Event]:
        """What is told at the end of the stream: raises StreamBroken where the answer was not at its end."""


class Dialect(NamedTuple):
    """One API."""

    path: str
    """Appended to the endpoint's address."""
    body: Callable[[str, Ask], dict[str, Any]]
    """The request's body for a model and what is asked of it, with streaming and usage switched on."""
    headers: Callable[[Key | None], Mapping[str, str]]
    framer: Callable[[], Framer]
    reader: Callable[[], Reader]
