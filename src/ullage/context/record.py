"""`Record`: the events of a conversation, and the state that they add up to. It has no window and no limit.

Every change is an event. It is written to the journal first, and then applied to the state. Reading the
events again restores the conversation.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypeAlias

from ullage.call_pairs import INTERRUPTED, follow
from ullage.context.blocks import Blocks, memory_text
from ullage.context.journal import JournalEvent, MemoryJournal
from ullage.context.state import State, apply, render
from ullage.errors import InvalidConversation
from ullage.intake import check_member, check_text, copy_value, kind_of, read_message, whole_number
from ullage.messages import SYSTEM_ROLES, result_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.context.journal import Item, Journal, Piece
    from ullage.context.search import Hit
    from ullage.messages import Message

_JOURNAL = ("journal", "a Journal, such as the journal of ullage.store.open(path)", "append", "events")

Listener: TypeAlias = "Callable[[JournalEvent, Blocks], None]"
"""Called with each event after it was applied, and with the blocks of the prompt before it."""


class Record:
    """The turns of a conversation, and the parts of its prompt."""

    def __init__(
        self, journal: Journal | None, session: str | None, system_prompt: str, memory_max_chars: int
    ) -> None:
        self.system_prompt = check_text(system_prompt, "system_prompt")
        named = None if session is None else check_text(session, "session")
        self.session = named or uuid.uuid4().hex
        self.journal: Journal = MemoryJournal() if journal is None else check_member(journal, *_JOURNAL)
        self.pursuing = True
        """False while the goal is paused: requests are then made as if there were no goal."""
        self.state = State()
        """The sum of all events."""
        self._memory_max_chars = whole_number(memory_max_chars, "memory_max_chars")
        self._memory = self._project = self._next_project = ""
        self._refresh_memory()
        self._unwritten: list[JournalEvent] = []
        """Events that the journal could not take; the next change writes them first."""
        self._left: Sequence[str] = ()
        """The calls whose program ended or was stopped; the next user turn answers them `[interrupted]`."""
        self._listener: Listener = _ignore

    def replay(self, listener: Listener) -> None:
        """Applies the events of the journal; the listener is called for these and for all later events."""
        self._listener = listener
        for event in self.journal.events(self.session):
            self._apply(event)

    def leave_calls(self) -> None:
        """Leaves the open calls to another process, until the next user turn."""
        self._left = self.waiting

    # Events and turns -------------------------------------------------------------------------------

    @property
    def turns(self) -> Sequence[Message]:
        """Every turn as it was appended, sent or not."""
        return [turn.message for turn in self.state.turns]

    def __len__(self) -> int:
        """The number of turns."""
        return len(self.state.turns)

    @property
    def waiting(self) -> Sequence[str]:
        """The ids of the tool calls that have no result yet."""
        return self.state.waiting

    def append(self, message: Message, *, pin: bool = False, priority: int = 0, quoted: int = 0) -> None:
        """Adds a turn and writes it to the journal; `quoted` is the size of the command output in it."""
        self.change(*self._events_of(message, pin=pin, priority=priority, quoted=quoted))

    def append_later(self, message: Message) -> None:
        """Adds a turn that the journal cannot take now; the next change, or `save`, writes it."""
        for event in self._events_of(message):
            self._apply(event)
            self._unwritten.append(event)

    def _events_of(
        self, message: Message, *, pin: bool = False, priority: int = 0, quoted: int = 0
    ) -> list[JournalEvent]:
        """Returns the events of a new turn; a user turn first answers the calls that were left open."""
        message = read_message(message, len(self.state.turns))
        events = self.interruptions() if message["role"] == "user" else []
        place = len(self.state.turns) + len(events)
        message = _json_only(copy_value(message), place)
        if message["role"] in SYSTEM_ROLES:
            raise InvalidConversation(
                "the system prompt is not a turn; set system_prompt", index=place, field="role"
            )
        follow(() if events else self.state.waiting, message, place)
        more = {"quoted": quoted, "pin": bool(pin), "priority": whole_number(priority, "priority", None)}
        said = {name: value for name, value in more.items() if value}
        return [*events, JournalEvent("turn", {"message": message, **said})]

    def append_exec_output(self, text: str) -> None:
        """Keeps the output of a command for the next user turn."""
        if not isinstance(text, str):
            raise InvalidConversation(f"the output of a command must be a string, not {kind_of(text)}")
        if text:
            self.change(JournalEvent("output", {"text": text}))

    def interrupt(self) -> None:
        """Gives each open call the result `[interrupted]`, so that the conversation can go on.

        If the journal cannot take these results now, the next user turn writes them.
        """
        self.leave_calls()
        events = self.interruptions()
        if events:
            self.change(*events)

    def interruptions(self) -> list[JournalEvent]:
        """Returns results for the open calls, if all of them were left open; otherwise an empty list."""
        if not set(self.waiting) <= set(self._left):
            return []
        return [JournalEvent("turn", {"message": result_message(call, INTERRUPTED)}) for call in self.waiting]

    def undo(self) -> Sequence[Message]:
        """Removes the last exchange, and returns its turns; right after a reset, brings its turns back."""
        before = self.turns
        if before or self.state.cleared is not None:
            self.change(JournalEvent("undo", {}))
        return before[len(self.state.turns) :]

    def reset(self) -> None:
        """Clears turns, waiting output and summary; keeps memory, project, usage and warnings."""
        self.change(JournalEvent("reset", {}))

    def save(self) -> None:
        """Writes the events that the journal could not take before; does nothing if all are written."""
        if self._unwritten:
            self.change()

    def change(self, *events: JournalEvent) -> None:
        """Writes events as one change, then applies them to the state."""
        written = self.state.events - len(self._unwritten)
        self.journal.append(self.session, written, *self._unwritten, *events)
        self._unwritten.clear()
        for event in events:
            self._apply(event)

    def _apply(self, event: JournalEvent) -> None:
        """Applies an event to the state."""
        before = self.blocks()
        apply(self.state, event)
        if not self.state.waiting:
            self._left = ()
        self._listener(event, before)

    # Memory, project, goal and summary --------------------------------------------------------------

    @property
    def memory(self) -> Sequence[Item]:
        """The items that are remembered in every conversation."""
        return self.journal.items()

    def remember(self, content: str, kind: str = "") -> Item:
        """Remembers an item, which is in the prompt from now on."""
        item = self.journal.remember(check_text(content, "content"), check_text(kind, "kind"))
        self._refresh_memory()
        return item

    def forget(self, number: int) -> bool:
        """Forgets an item; returns False if there is no item with this number."""
        found = self.journal.forget(number)
        self._refresh_memory()
        return found

    def _refresh_memory(self) -> None:
        """Reads the items again, as other conversations may have changed them."""
        self._memory = memory_text(self.journal.items(), self._memory_max_chars)

    @property
    def project(self) -> str:
        """The file tree in the prompt, or empty."""
        return self._project

    def set_project(self, tree: str, *, at_trim: bool = False) -> None:
        """Puts a file tree into the prompt: now, or with the next trim, which changes the prompt anyway."""
        self._next_project = check_text(tree, "tree")
        if not at_trim:
            self._project = tree

    def take_over_prompt(self) -> bool:
        """Puts memory and project that wait for a trim into the prompt; returns True if this changes it."""
        before = (self._memory, self._project)
        self._refresh_memory()
        self._project = self._next_project
        return before != (self._memory, self._project)

    @property
    def goal(self) -> str:
        """The goal that was set and has not ended, or empty."""
        return self.state.goal

    @goal.setter
    def goal(self, text: str) -> None:
        self.change(JournalEvent("goal", {"text": check_text(text, "goal")}))

    @property
    def in_goal_mode(self) -> bool:
        """True if requests are made for the goal: there is one, and it is not paused."""
        return bool(self.state.goal) and self.pursuing

    @property
    def summary(self) -> str:
        """The summary of evicted turns, or empty."""
        return self.state.summary

    # Messages before fitting ------------------------------------------------------------------------

    def blocks(self, prompt: str | None = None) -> Blocks:
        """Returns the texts of the system message, with another prompt if one is given."""
        own = check_text(self.system_prompt if prompt is None else prompt, "system_prompt")
        summary = self.state.summary if self.state.shown else ""
        goal = self.state.goal if self.pursuing else ""
        return Blocks(own, self._memory, self._project, summary, goal)

    def history(self, system_prompt_override: str | None = None) -> list[Message]:
        """Returns all messages, untrimmed."""
        return render(self.blocks(system_prompt_override), self.state.turns)

    # Pieces -----------------------------------------------------------------------------------------

    def recall(self, handle: str) -> Piece | None:
        """Returns the piece with this handle, or None."""
        return self.journal.recall(check_text(handle, "handle"), self.session)

    def search(self, words: str, most: int = 20) -> Sequence[Hit]:
        """Returns the texts of this conversation that match the words, the best first, also evicted ones.

        Not all words need to occur. Text in quotation marks must occur exactly.
        """
        return self.journal.search(check_text(words, "words"), self.session, most)


def _ignore(_: JournalEvent, __: Blocks) -> None:
    """Ignores an event."""


def _json_only(value: Any, place: int, path: str = "") -> Any:
    """Returns the value; raises InvalidConversation if JSON, and so the journal, cannot hold it."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise InvalidConversation(
                    f"a key must be a string, not {kind_of(key)}", index=place, field=path or None
                )
            _json_only(each, place, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _json_only(each, place, f"{path}[{number}]")
    elif value is not None and not isinstance(value, str | int | float):
        raise InvalidConversation(f"JSON cannot hold {kind_of(value)}", index=place, field=path or None)
    return value
