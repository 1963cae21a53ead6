"""The tool by which a model fetches back what was taken out of its window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.context.journal import Journal, Piece
    from ullage.messages import Tool

RECALL_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": "recall",
        "description": (
            "Gives back text that was taken out of this conversation to save room: by its handle, as it "
            "stands in a placeholder, or by words that occur in it."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "The handle, eight or more letters and digits"},
                "words": {"type": "string", "description": "Words to look for, where no handle is known"},
                "start": {"type": "integer", "description": "The character to begin with, 0 by default"},
            },
        },
    },
}
"""Send it beside the other tools when the policy names handles (`FitPolicy(recall=True)`)."""

MOST_CHARS = 8_000
"""What one answer gives back of a piece; the rest is asked for with `start`."""
FOUND = 5
"""How many pieces a search tells of."""
_SHOWN = 160


def answer_recall(journal: Journal, session: str, arguments: Mapping[str, Any]) -> str:
    """What the tool answers to these arguments; what is wrong with them is an answer too."""
    handle, words = arguments.get("handle"), arguments.get("words")
    if isinstance(handle, str) and handle.strip():
        piece = journal.recall(handle, session)
        if piece is None:
            return f"error: no piece has the handle {handle!r}; look for it by words"
        return _part(piece, arguments.get("start"))
    if isinstance(words, str) and words.strip():
        found = journal.search(words, session, FOUND)
        return "\n".join(map(_line, found)) or f"error: no piece has all of the words {words!r}"
    return "error: give a handle, or words to look for"


def _part(piece: Piece, start: Any) -> str:
    begin = start if isinstance(start, int) and 0 <= start < len(piece.text) else 0
    part = piece.text[begin : begin + MOST_CHARS]
    left = len(piece.text) - begin - len(part)
    return f"{part}\n[{left} more characters; go on with start={begin + len(part)}]" if left else part


def _line(piece: Piece) -> str:
    shown = " ".join(piece.text[: 2 * _SHOWN].split())[:_SHOWN]
    return f"{piece.handle[:12]}: {shown}"
