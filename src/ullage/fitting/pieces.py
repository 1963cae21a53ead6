"""Pieces: the texts of messages that were removed or shortened, and the handles by which they are found.

A handle is the beginning of the text's hash, in small letters and digits. It is longer than usual if two
texts would share it.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from ullage.messages import arguments_text, calls_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.messages import Message

HANDLE_LENGTH = 8
"""The usual number of characters of a handle."""


def piece_of(message: Message) -> str:
    """Returns the text that is kept of a removed message: its content and its calls."""
    text = text_of(message.get("content"))
    calls = calls_of(message)
    if not calls:
        return text
    lines = (f"{call['function']['name']} {arguments_text(call)}" for call in calls)
    return "\n".join(filter(None, (text, *lines)))


def handle_of(text: str, taken: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Returns the handle of a text and its hash. The handle is longer if `taken` has it for another text."""
    digest = _hash(text)
    letters = _letters(digest)
    length = HANDLE_LENGTH
    while taken.get(letters[:length], digest) != digest:
        length += 1
    return letters[:length], digest


def letters_of(text: str) -> str:
    """Returns the whole hash of a text as letters; a handle is the beginning of it."""
    return _letters(_hash(text))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _letters(digest: bytes) -> str:
    return base64.b32encode(digest).decode().rstrip("=").lower()
