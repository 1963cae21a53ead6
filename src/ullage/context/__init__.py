"""A conversation: its events in a journal, and the requests that are rendered from it within its limits."""

from __future__ import annotations

from ullage.context.blocks import DEFAULT_PROMPT
from ullage.context.conversation import Context
from ullage.context.forms import Compress
from ullage.context.journal import Item, Journal, JournalEvent, MemoryJournal, Piece
from ullage.context.recall import RECALL_TOOL, answer_recall

__all__ = [
    "DEFAULT_PROMPT",
    "RECALL_TOOL",
    "Compress",
    "Context",
    "Item",
    "Journal",
    "JournalEvent",
    "MemoryJournal",
    "Piece",
    "answer_recall",
]
