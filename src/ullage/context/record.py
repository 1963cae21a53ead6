"""`Record`: a conversation as it is kept, without any thought of a window.

It is the fold of its journal: every change is an event that is kept first and applied then, so that whoever
reads the events again has the same conversation.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ullage.context.blocks import Blocks, memory_text
from ullage.context.journal import Event, MemoryJournal
from ullage.context.rendering import render
from ullage.context.state import State, apply
from ullage.errors import InvalidConversation
from ullage.messages import SYSTEM_ROLES, check_message
from ullage.pairing import follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.context.journal import Item, Journal, Piece
    from ullage.messages import Message

INTERRUPTED = "[interrupted]"
"""The result of a call whose program ended before it answered."""


class Record:
    """What happened in a conversation, and what its prompt is made of."""

    def __init__(
        self, journal: Journal | None, session: str | None, system_prompt: str, memory_max_chars: int
    ) -> None:
        self.system_prompt = system_prompt
        self.session = session or uuid.uuid4().hex
        self.journal: Journal = MemoryJournal() if journal is None else journal
        self.pursuing = True
        """Whether a goal, where there is one, is being pursued; else the conversation is an ordinary one."""
        self._memory_max_chars = memory_max_chars
        self._project = self._next_project = ""
        self._refresh_memory()
        self._state = State()
        self._events = 0

    def _replay(self) -> None:
        """Makes the events that are kept part of the state, in their order."""
        for event in self.journal.events(self.session):
            self._apply(event)

    # What happened ----------------------------------------------------------------------------------

    @property
    def turns(self) -> Sequence[Message]:
        """Every turn as it was appended, sent or not."""
        return [turn.message for turn in self._state.turns]

    def __len__(self) -> int:
        """How many turns there are."""
        return len(self._state.turns)

    @property
    def waiting(self) -> Sequence[str]:
        """The ids of the calls that have no result yet."""
        return self._state.waiting

    def _append(self, message: Message, **more: Any) -> None:
        """Keeps a turn, with what else there is to say of it."""
        place = len(self._state.turns)
        check_message(message, place)
        if message["role"] in SYSTEM_ROLES:
            raise InvalidConversation(
                "the system prompt is not a turn; set system_prompt", index=place, field="role"
            )
        follow(self._state.waiting, message, place)
        said = {name: value for name, value in more.items() if value}
        self._happened("turn", {"message": _copied(message), **said})

    def append_exec_output(self, text: str) -> None:
        """Keeps what a command printed for the next user turn."""
        if text:
            self._happened("output", {"text": text})

    def interrupt(self) -> None:
        """Gives the calls that still wait the result `[interrupted]`, so that the conversation can go on."""
        for call in self.waiting:
            self._append({"role": "tool", "tool_call_id": call, "content": INTERRUPTED})

    def undo(self) -> Sequence[Message]:
        """Takes back the last exchange, and gives its turns."""
        before = self.turns
        if before:
            self._happened("undo", {})
        return before[len(self._state.turns) :]

    def reset(self) -> None:
        """Clears turns, waiting output and summary; memory, project, usage and warnings stay."""
        self._happened("reset", {})

    def _happened(self, kind: str, data: dict[str, Any]) -> None:
        """Keeps an event, then makes it part of the state."""
        event = Event(kind, data)
        self.journal.append(self.session, self._events, event)
        self._apply(event)

    def _apply(self, event: Event) -> None:
        """Makes an event part of the state."""
        apply(self._state, event)
        self._events += 1

    # What is remembered beside it -------------------------------------------------------------------

    @property
    def memory(self) -> Sequence[Item]:
        """What is remembered in every conversation."""
        return self.journal.items()

    def remember(self, content: str, kind: str = "") -> Item:
        """Remembers something; the prompt has it from now on."""
        item = self.journal.remember(content, kind)
        self._refresh_memory()
        return item

    def forget(self, number: int) -> bool:
        """Forgets an item; False where there is none of this number."""
        found = self.journal.forget(number)
        self._refresh_memory()
        return found

    def _refresh_memory(self) -> None:
        self._memory = memory_text(self.journal.items(), self._memory_max_chars)

    @property
    def project(self) -> str:
        """The file tree as the prompt has it; empty for none."""
        return self._project

    def set_project(self, tree: str, *, at_trim: bool = False) -> None:
        """Puts a file tree into the prompt: now, or when the next trim changes the prompt anyway."""
        self._next_project = tree
        if not at_trim:
            self._project = tree

    @property
    def goal(self) -> str:
        """The goal that was set and has not ended; else empty."""
        return self._state.goal

    @goal.setter
    def goal(self, text: str) -> None:
        self._happened("goal", {"text": text})

    @property
    def in_goal_mode(self) -> bool:
        """Whether requests are made for the goal: not where there is none, or it waits to be taken up."""
        return bool(self._state.goal) and self.pursuing

    @property
    def summary(self) -> str:
        """The summary of what was evicted, where one was written."""
        return self._state.summary

    # What is sent of it, before anything is fitted --------------------------------------------------

    def _blocks(self, prompt: str | None = None) -> Blocks:
        own = self.system_prompt if prompt is None else prompt
        summary = self._state.summary if self._state.shown else ""
        goal = self._state.goal if self.pursuing else ""
        return Blocks(own, self._memory, self._project, summary, goal)

    def history(self, system_prompt_override: str | None = None) -> list[Message]:
        """All messages as they would be sent if everything fitted."""
        return render(self._blocks(system_prompt_override), self._state.turns)

    # Pieces -----------------------------------------------------------------------------------------

    def recall(self, handle: str) -> Piece | None:
        """The text that was taken out under this handle."""
        return self.journal.recall(handle, self.session)

    def search(self, words: str, most: int = 20) -> Sequence[Piece]:
        """The pieces of this conversation in which all the words stand."""
        return self.journal.search(words, self.session, most)


def _copied(value: Any) -> Any:
    """A message of our own, which its caller cannot change."""
    if isinstance(value, dict | Mapping):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list | tuple) else value
