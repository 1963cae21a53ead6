"""Where a model is, and how it is spoken to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Key:
    """A secret that shows itself to no log, error or store; `reveal` gives it to the one who sends it."""

    __slots__ = ("_secret", "source")

    def __init__(self, secret: str, source: str = "given") -> None:
        self._secret = secret
        self.source = source
        """Where it came from, such as the name of an environment variable: this may be shown."""

    def reveal(self) -> str:
        """The secret itself."""
        return self._secret

    def __repr__(self) -> str:
        return f"Key(from {self.source})"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long to wait, in seconds."""

    connect: float = 10.0
    first: float = 120.0
    """For the first byte of the answer: a long prompt takes its time."""
    between: float = 60.0
    """From one byte to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model behind an address."""

    url: str
    """The address that the provider's paths are appended to, such as https://api.openai.com/v1."""
    model: str
    api: str = "openai.chat"
    """The dialect: openai.chat, openai.responses, anthropic.messages or ollama.chat."""
    key: Key | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """More headers, such as an organisation's."""
    timeouts: Timeouts = Timeouts()
    window: int | None = None
    """The context window, where it is configured: then nobody is asked."""
    local: bool = False
    """Whether a call costs nothing."""
