"""The list of conversations, as a person looks through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.store.values import read, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.store.database import Database

_TITLE = 60  # characters
_SOON = 20  # events, within which the first words of a user are looked for


class Session(NamedTuple):
    """A conversation in the list of them."""

    id: str
    created: float
    """In seconds since the epoch."""
    updated: float
    """When its last event was kept."""
    events: int
    title: str
    """The first words of its user; empty where there are none."""


def latest(database: Database, most: int) -> Sequence[Session]:
    """The conversations that have begun, the one that went on last first."""
    with database.reading() as connection:
        rows = connection.execute(
            "SELECT id, name, created, updated, length FROM sessions WHERE length > 0 "
            "ORDER BY updated DESC, id DESC LIMIT ?",
            (max(0, min(most, 2**31)),),
        ).fetchall()
        found = []
        for key, name, created, updated, length in rows:
            first = connection.execute(
                "SELECT data FROM events WHERE session = ? AND number < ? ORDER BY number", (key, _SOON)
            )
            title = next(filter(None, (_user_words(read(data)) for (data,) in first)), "")
            found.append(Session(text_of(name), created, updated, length, title))
    return tuple(found)


def _user_words(data: Mapping[str, Any]) -> str:
    """The beginning of a user's message, where the event is one or has one in it."""
    for message in (data, *data.values()):
        if isinstance(message, dict) and message.get("role") == "user":
            asked = message.get("content")
            if isinstance(asked, str | list):  # without what commands had printed before
                asked = asked[data.get("quoted", 0) :]
            words = " ".join(_text(asked).split())
            return words if len(words) <= _TITLE else words[: _TITLE - 1].rstrip() + "…"
    return ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
