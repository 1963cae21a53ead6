"""The recall tool, with which a model finds texts that are no longer in its window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ullage.context.search import explain_nothing, read_query, shorten_beside, take_excerpt
from ullage.target import target_of
from ullage.text import RECALL_CLOSE, RECALL_OPEN, disarm
from ullage.tokens import counter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ullage.context.journal import Journal, Piece
    from ullage.context.search import Hit, Said
    from ullage.messages import Tool

RECALL_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": "recall",
        "description": (
            "Finds text of this conversation that is no longer in view: by its handle, as it stands in a "
            "placeholder, or by words; the best matches first."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "The handle, eight or more letters and digits"},
                "words": {
                    "type": "string",
                    "description": 'Words to look for; a "phrase" must occur exactly',
                },
                "start": {"type": "integer", "description": "The character to begin with, for a handle"},
            },
        },
    },
}
"""The recall tool; send it with the other tools if the policy names handles (`FitPolicy(recall=True)`)."""

MOST_TOKENS = 2_000
"""Most tokens of an answer, for any window."""
WINDOW_SHARE = 4
"""An answer takes at most the window divided by this number."""
FOUND = 5
"""Most texts that a search quotes."""
LEAST_TOKENS = 48
"""Least tokens for a hit; if there is less room, fewer hits are quoted."""
_SHOWN_HANDLE = 12


def count_conservatively(text: str) -> int:
    """Returns a number of tokens of a text that no model's own count exceeds."""
    return counter_for(target_of(None)).text(text).ceiling


def answer_recall(
    journal: Journal,
    session: str,
    arguments: Mapping[str, Any],
    *,
    room: int = MOST_TOKENS,
    measure: Callable[[str], int] = count_conservatively,
    without: Collection[str] = (),
) -> str:
    """Returns the tool's answer in at most `room` tokens, also if the arguments are invalid.

    `without` has the whole hashes of texts that the model has in view; `Context.answer_recall` sets it.
    """
    given = arguments if isinstance(arguments, Mapping) else {}
    handle, words = given.get("handle"), given.get("words")
    if isinstance(handle, str) and handle.strip():
        piece = journal.recall(handle, session)
        if piece is None:
            return f"error: no text has the handle {disarm(handle)!r}. Look for it by words"
        return _part(piece, given.get("start"), room, measure)
    if isinstance(words, str) and words.strip():
        found = journal.search(words, session, FOUND, without)
        if not found:
            return f"error: {explain_nothing(words)}"
        return (
            quote_hits(found, words, room, measure)
            or "error: the window has no room for the texts that were found"
        )
    return "error: give a handle, or words to look for"


def _part(piece: Piece, start: Any, room: int, measure: Callable[[str], int]) -> str:
    """Returns the text of a piece from a character on, as far as there is room."""
    begin = start if isinstance(start, int) and 0 <= start < len(piece.text) else 0
    text = disarm(piece.text)  # `disarm` does not change the length
    length = len(text) - begin
    while True:
        part, left = text[begin : begin + length], len(text) - begin - length
        answer = f"{part}\n[{left} more characters; go on with start={begin + length}]" if left else part
        cost = measure(answer)
        if cost <= room or length <= 1:
            return answer
        length = max(1, min(length * 9 // 10, length * room // cost))


def quote_hits(hits: Sequence[Hit], words: str, room: int, measure: Callable[[str], int]) -> str:
    """Returns the hits as one quoted block, the best first; empty if there are no hits or no room.

    Each line of a text begins with a mark that none of our own lines begins with, so no text can imitate
    another one.
    """
    sought = read_query(words).stems
    left = room - measure(f"{RECALL_OPEN}\n\n{RECALL_CLOSE}")
    blocks: list[str] = []
    shown = hits[: max(1, left // LEAST_TOKENS)]
    for number, hit in enumerate(shown):
        block = _block(hit, sought, left // (len(shown) - number), measure, {each.text for each in shown})
        if block:
            blocks.append(block)
            left -= measure(f"{block}\n")
    while blocks and measure(_fence_blocks(blocks)) > room:  # counts are not additive
        blocks.pop()
    return _fence_blocks(blocks) if blocks else ""


def _fence_blocks(blocks: Sequence[str]) -> str:
    return "\n".join((RECALL_OPEN, *blocks, RECALL_CLOSE))


def _block(
    hit: Hit, sought: Collection[str], room: int, measure: Callable[[str], int], quoted: Collection[str]
) -> str:
    """Returns one hit: handle, role, date, text, and the turns beside it; empty if there is no room.

    A turn that is itself quoted as a hit is not shown beside another hit.
    """
    head = (
        f"{hit.handle[:_SHOWN_HANDLE]}: {', '.join(filter(None, (hit.role, disarm(hit.date or ''))))}".rstrip(
            ": "
        )
    )
    before, after = _beside("before", hit.before, quoted), _beside("after", hit.after, quoted)
    cost = measure("\n".join((head, *before, *after, "")))
    if cost > room // 2:
        before = after = ()
        cost = measure(f"{head}\n")
    text = disarm(hit.text)
    shown = take_excerpt(text, sought, room - cost, lambda part: measure(_quote_lines(part)))
    return "\n".join((head, *before, _quote_lines(shown), *after)) if shown else ""


def _quote_lines(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _beside(where: str, said: Said | None, quoted: Collection[str]) -> tuple[str, ...]:
    if said is None or not said.text.strip() or said.text in quoted:
        return ()
    return (f"{where} ({said.role})> {shorten_beside(disarm(said.text))}",)
