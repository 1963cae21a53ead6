"""Quoted files in a message: documents that a client puts between two lines of backticks or tildes."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_DOCUMENT = re.compile(
    r"^(?P<name>[^\n]*)\n(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<text>.*?)\n(?P=fence)[ \t]*$\n?",
    re.MULTILINE | re.DOTALL,
)
"""A document with the line before it, which has its name."""


def count_documents(text: str) -> int:
    """Returns the number of documents in a message."""
    return sum(1 for _ in _DOCUMENT.finditer(text))


def rewrite_documents(text: str, change: Callable[[str], str]) -> str:
    """Returns the message with each document changed; its name and its fences stay.

    If the message is a list of documents with nothing but names between them, they come in the order of their
    names. Some clients keep their files in a set, whose order changes when a file is added.
    """
    found = [*_DOCUMENT.finditer(text)]
    if not found:
        return text
    between = [text[one.end() : two.start()] for one, two in itertools.pairwise(found)]
    names = [each["name"].strip() for each in found]
    written = [_rewritten(each, change) for each in found]
    if all(names) and len(set(names)) == len(names) and not "".join(between).strip():
        written = [written[place] for place in sorted(range(len(found)), key=names.__getitem__)]
    pieces = [part for pair in zip(written, [*between, ""], strict=True) for part in pair]
    return "".join([text[: found[0].start()], *pieces, text[found[-1].end() :]])


def _rewritten(document: re.Match[str], change: Callable[[str], str]) -> str:
    start, end = (place - document.start() for place in document.span("text"))
    return document[0][:start] + change(document["text"]) + document[0][end:]
