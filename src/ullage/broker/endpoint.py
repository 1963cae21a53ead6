"""An endpoint: the address of a model, its API, its key and its timeouts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.target import ApiName


class Key:
    """A secret that no log, error or store shows; `reveal` returns it to the code that sends it."""

    __slots__ = ("_secret", "source")

    def __init__(self, secret: str, source: str = "given") -> None:
        self._secret = secret
        self.source = source
        """The origin of the key, such as the name of an environment variable; this may be shown."""

    def reveal(self) -> str:
        """Returns the secret."""
        return self._secret

    def __repr__(self) -> str:
        return f"Key(from {self.source})"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a key cannot be pickled or copied")


LATER = 1.5
"""Multiple of `first` that all tries have together, so the tries after the first have half as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The times to wait, in seconds."""

    connect: float = 10.0
    first: float = 120.0
    """For the first piece of the answer, in each try; a long prompt takes time."""
    between: float = 60.0
    """From one piece of the answer to the next; pings, comments and empty pieces do not count."""
    begin: float | None = None
    """For the beginning of the answer, all tries and waits together; None for `LATER` times `first`."""

    @property
    def all_tries(self) -> float:
        """The seconds for all tries together."""
        return LATER * self.first if self.begin is None else self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model at an address."""

    url: str
    """The address that the provider's paths are appended to, such as https://api.openai.com/v1."""
    model: str
    api: ApiName = "openai.chat"
    """The dialect: openai.chat, openai.responses, anthropic.messages or ollama.chat."""
    key: Key | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More headers, such as an organisation's. They may hold credentials, so no log shows them."""
    timeouts: Timeouts = Timeouts()
    window: int | None = None
    """The configured context window in tokens; None to ask the server."""
    local: bool = False
    """True if a call costs nothing."""

    def __repr__(self) -> str:
        shown = {each.name: getattr(self, each.name) for each in fields(self) if each.repr}
        shown["url"] = _VALUES.sub("…", _LOGIN.sub("…@", self.url))
        return f"Endpoint({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


_LOGIN = re.compile(r"(?<=://)[^/?#]*@")
_VALUES = re.compile(r"(?<==)[^&#]+")
"""The parts of an address that may be secret: a login, and the values of its query."""
