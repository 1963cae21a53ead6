"""The saved conversations as people know them: title, folder, turns and age, and the last exchange of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.context.journal import JournalEvent
from ullage.context.state import State, apply
from ullage.messages import text_of
from ullage.session.continuations import CONTINUATIONS
from ullage.session.preferences import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ullage.store import Session, Store

MOST_FOLDERS = 1_000
"""Number of latest conversations whose folder is remembered."""
NEAR = 50
"""Number of latest conversations in which the last one of a folder is looked for first."""


class SavedTalk(NamedTuple):
    """A saved conversation in a list."""

    id: str
    title: str
    folder: str
    """The folder in which it was last continued; empty if that is unknown."""
    turns: int | None
    """None if the conversation is damaged."""
    updated: float
    """Time of its last event, in seconds since the epoch."""


class SavedExchange(NamedTuple):
    """The last question of a conversation, without command output, and the text of its answer."""

    question: str
    answer: str


def note_folder(kept: Store, session: str, folder: Path) -> None:
    """Remembers the folder in which a conversation is continued."""

    def add_folder(folders: Mapping[str, str]) -> Mapping[str, str]:
        others = {name: place for name, place in folders.items() if name != session}
        return dict([*others.items(), (session, str(folder))][-MOST_FOLDERS:])

    FOLDERS.update(kept.preferences, add_folder)


def list_talks(kept: Store, most: int = 20) -> list[SavedTalk]:
    """Returns the latest conversations, the latest first."""
    folders = FOLDERS.get(kept.preferences)
    return [_read_talk(kept, session, folders) for session in kept.sessions(most)]


def _read_talk(kept: Store, session: Session, folders: Mapping[str, str]) -> SavedTalk:
    state = None if session.damaged else _state(kept, session.id)
    turns = None if state is None else len(state.turns)
    return SavedTalk(session.id, session.title, folders.get(session.id, ""), turns, session.updated)


def latest_in(kept: Store, folder: Path, besides: str = "") -> str | None:
    """Returns the conversation of a folder that was continued last and is not empty, or None.

    A conversation with a question comes before all that have only the output of commands.
    """
    folders = FOLDERS.get(kept.preferences)
    here = [name for name, place in folders.items() if place == str(folder) and name != besides]
    wanted, near = set(here), [each.id for each in kept.sessions(NEAR)]
    ordered = [*(name for name in near if name in wanted), *(name for name in reversed(here))]
    only_outputs = None
    for name in dict.fromkeys(ordered):
        state = _state(kept, name)
        if state is not None and state.turns:
            return name
        if state is not None and state.outputs:
            only_outputs = only_outputs or name
    return only_outputs


def _state(kept: Store, session: str) -> State | None:
    """Returns the state of a conversation; None if an event is damaged."""
    state = State()
    for event in kept.salvage(session):
        if event is None:
            return None
        apply(state, JournalEvent(*event))
    return state


def last_exchange(kept: Store, session: str) -> SavedExchange | None:
    """Returns the last exchange of a conversation; None if it has no question."""
    question, answer = "", ""
    for message, quoted in _messages(kept.salvage(session)):
        if message["role"] == "user":
            content = message.get("content")
            words = text_of(content[quoted:] if isinstance(content, str | list) else content).strip()
            if words and words not in CONTINUATIONS:
                question, answer = words, ""
        elif message["role"] == "assistant":
            answer = text_of(message.get("content")) or answer
    return SavedExchange(question, answer.strip()) if question else None


def _messages(events: Sequence[tuple[str, Any] | None]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yields the messages of a conversation that were not taken back, with the size of the output in each."""
    state = State()
    sizes: dict[int, int] = {}
    for event in filter(None, events):
        if event[0] == "turn":
            sizes[state.events] = event[1].get("quoted", 0)
        apply(state, JournalEvent(*event))
    for turn in state.turns:
        yield turn.message, 0 if turn.event is None else sizes.get(turn.event, 0)
