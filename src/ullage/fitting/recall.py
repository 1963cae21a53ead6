"""Recall by itself: quotes removed passages that bear on the newest question in front of it.

No model is asked. The same history and the same room always give the same quotation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.fitting.relevance import Index, passages, stems
from ullage.fitting.result import is_eviction
from ullage.fitting.talk import is_courtesy, sentences
from ullage.messages import split_recalled, text_of
from ullage.text import RECALL_CLOSE, RECALL_OPEN, disarm, split_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ullage.fitting.series import Done
    from ullage.messages import Message
    from ullage.tokens import Counter

MOST_TOKENS = 8_000
"""Most tokens of a quotation, however large the window is."""
LEAST_TOKENS = 40
"""In a room of fewer tokens, nothing is quoted."""
MOST_PIECES = 2_000
"""At least this many of the newest removed messages can be recalled, and at most twice as many."""

COMMON = 0.15
"""A word in a larger share of the passages is too common: a question needs a rarer one to recall anything."""
RELATIVE = 0.1
"""A passage needs this share of the best passage's score."""
HINT = 0.15
"""Weight of a word from the messages before the question. The question's own words weigh 1."""
MESSAGES_BEFORE = 2
"""Number of messages before the question whose words count."""
REFERRING = frozenset({
    "he", "her", "him", "his", "how", "it", "its", "she", "that", "their", "them", "then", "there", "these",
    "they", "this", "those", "what", "when", "where", "which", "who", "whose", "why",
})  # fmt: skip
"""Words by which a question that has no subject of its own refers to the messages before it."""

_LABEL_TOKENS = 5
_MISSES = 20  # after so many passages that no longer fit, less relevant ones are not tried
_DATE = re.compile(
    r"[\[(]?(?:\d{1,2}:\d\d ?(?:[ap]m)?,? (?:on )?)?"
    r"(\d{4}-\d\d-\d\d|\d{1,2} [A-Z][a-z]{2,8},? \d{4}|[A-Z][a-z]{2,8} \d{1,2},? \d{4}"
    r"|\d{4}年\d{1,2}月\d{1,2}日)"
)
DATED = 60
"""Number of earlier messages that are searched for the date of a message."""


class Quotation(NamedTuple):
    """Recalled passages as a block of text."""

    text: str
    places: tuple[int, ...]
    """The messages of the history that it quotes."""


class Recall:
    """Recall in one window: an index of the removed messages, and the last quotation.

    A quotation is chosen for a question, and again when a trim takes out more. In between a tool loop keeps
    it as it is, so that each request begins like the one before, until the loop needs the room.
    """

    def __init__(self) -> None:
        self._index = Index()
        self._read = 0
        self._last: Done | None = None
        self._chosen: tuple[tuple[Any, ...], Quotation | None] = ((), None)

    def quotation(  # noqa: PLR0917 - the parts of one state, in its order
        self,
        history: Sequence[Message],
        asked: int,
        counter: Counter,
        log: Sequence[Done],
        room: int,
        task: str = "",
    ) -> Quotation | None:
        """Returns the quotation for the question at the place `asked`; None if nothing bears on it.

        `log` names all that was taken out, and `task` stands in the request already. The same room gives the
        same quotation until the log grows.
        """
        key = (asked, history[asked]["content"], len(log), log[-1], room)
        if self._chosen[0] != key:
            chosen = None
            if room >= LEAST_TOKENS:
                chosen = self._choose(history, asked, counter, self._update_index(history, log), room, task)
            self._chosen = (key, chosen)
        return self._chosen[1]

    @staticmethod
    def _choose(  # noqa: PLR0917 - the same
        history: Sequence[Message], asked: int, counter: Counter, index: Index, room: int, task: str
    ) -> Quotation | None:
        query = query_of(history, asked)
        ranked, texts = relevant(history, asked, index, query), _Texts(history, index, query)
        if task:
            ranked = [number for number in ranked if texts[number].strip() not in task]
        return quote(history, index, ranked, texts, room, lambda text: counter.text(text).ceiling)

    def _update_index(self, history: Sequence[Message], log: Sequence[Done]) -> Index:
        """Returns the index of the logged messages; reads only what is new since the last call."""
        first = _first_of(len(log))
        # The last entries of the log may belong to a trim that was computed and then not committed.
        if first != _first_of(self._read) or (
            self._read and (self._read > len(log) or log[self._read - 1] is not self._last)
        ):
            self._index, self._read = Index(), 0
        for kind, place, _, _, _ in log[max(self._read, first) :]:
            message = history[place]
            # Of a tool's output the digest tells, and the window may still hold a part of it.
            if message["role"] in {"user", "assistant"} and is_eviction(kind):
                self._index.add(place, own_words(message))
        self._read, self._last = len(log), log[-1]
        return self._index


def _first_of(count: int) -> int:
    """Returns the first entry to index: a multiple of MOST_PIECES, so that the index is rarely rebuilt."""
    return max(0, count // MOST_PIECES - 1) * MOST_PIECES


class _Texts:
    """The texts of passages by their numbers, cut from the history again."""

    def __init__(self, history: Sequence[Message], index: Index, query: frozenset[str]) -> None:
        self._history, self._index, self._query = history, index, query
        self._cut: dict[int, list[str]] = {}

    def __getitem__(self, number: int) -> str:
        place, position = self._index.position(number)
        parts = self._cut.get(place)
        if parts is None:
            parts = self._cut[place] = passages(own_words(self._history[place]))
        return parts[position]

    def shorten(self, number: int, room: int, measure: Callable[[str], int]) -> str:
        """Returns the sentences of a passage that share words with the query; empty if none fits.

        If not all fit, those with the most shared words go first.
        """
        said = sentences(self[number])
        shared = [len(self._query.intersection(stems(sentence))) for sentence in said]
        chosen: list[int] = []
        for at in sorted(range(len(said)), key=lambda at: -shared[at]):
            with_it = sorted([*chosen, at])
            if shared[at] and measure(_join_sentences(said, with_it)) <= room:
                chosen = with_it
        return _join_sentences(said, chosen) if chosen else ""


def _join_sentences(said: Sequence[str], chosen: Sequence[int]) -> str:
    """Returns the chosen sentences of a passage, with marks where others are left out."""
    parts, last = [], -1
    for at in chosen:
        parts += ["…", said[at]] if at > last + 1 else [said[at]]
        last = at
    return " ".join(parts if last == len(said) - 1 else [*parts, "…"])


def own_words(message: Message) -> str:
    """Returns the text of a message without recalled passages and without outputs of commands."""
    return split_outputs(split_recalled(text_of(message.get("content")))[1])[1]


def query_of(history: Sequence[Message], asked: int) -> frozenset[str]:
    """Returns the stems of the question at the place `asked`.

    A question that only refers to the messages before it, such as "and what did she say then?", asks with
    their words.
    """
    asking = sentences(own_words(history[asked]))
    question = " ".join([sentence for sentence in asking if not is_courtesy(sentence)])
    query = frozenset(stems(question))
    if not query and not REFERRING.isdisjoint(question.lower().replace("?", " ").split()):
        query = _stems_before(history, asked)
    return query


def relevant(history: Sequence[Message], asked: int, index: Index, query: frozenset[str]) -> Sequence[int]:
    """Returns the passages that bear on the query, the best first; the messages before it give hints."""
    rare = max(1, COMMON * len(index))
    if not index.has_rare(query, rare):
        return ()
    ranked = index.rank(query, _stems_before(history, asked) - query, HINT)
    return [number for score, number in ranked if score >= RELATIVE * ranked[0][0]]


def _stems_before(history: Sequence[Message], asked: int) -> frozenset[str]:
    """Returns the stems of the messages before a question."""
    before = history[max(0, asked - MESSAGES_BEFORE) : asked]
    said = [own_words(message) for message in before if message["role"] in {"user", "assistant"}]
    return frozenset([stem for text in said for stem in stems(text)])


def quote(  # noqa: PLR0917 - the parts of one choice
    history: Sequence[Message],
    index: Index,
    ranked: Sequence[int],
    texts: _Texts,
    room: int,
    measure: Callable[[str], int],
) -> Quotation | None:
    """Returns the passages that bear on the query, in at most `room` tokens; None if there are none."""
    most = left = min(room, MOST_TOKENS)
    while left >= LEAST_TOKENS:
        chosen = _choose(index, ranked, texts, left, measure)
        if not chosen:
            return None
        text = _block(history, index, chosen)
        cost = measure(text)
        if cost <= most:
            return Quotation(text, tuple(sorted({index.position(number)[0] for number in chosen})))
        left -= max(16, cost - most)
    return None


def _choose(
    index: Index, ranked: Sequence[int], texts: _Texts, room: int, measure: Callable[[str], int]
) -> dict[int, str]:
    """Returns the best passages that fit together, each text once, in the order of the history.

    If the best one is too long, only those of its sentences are chosen that bear on the question.
    """
    chosen: dict[int, str] = {}
    told: set[str] = set()
    misses = 0
    for number in ranked:
        text = texts[number]
        said = " ".join(text.split())
        if said in told:  # a log that repeats itself, a question that was asked twice
            continue
        cost = measure(text) + _LABEL_TOKENS
        if cost > room and not chosen and (text := texts.shorten(number, room - _LABEL_TOKENS, measure)):
            cost = measure(text) + _LABEL_TOKENS
        if cost <= room:
            room -= cost
            chosen[number] = text
            told.add(said)
        else:
            misses += 1
            if misses > _MISSES:
                break
    return {number: chosen[number] for number in sorted(chosen, key=index.position)}


def _block(history: Sequence[Message], index: Index, chosen: Mapping[int, str]) -> str:
    """Returns the quotation: the speaker before each message, and each date once before its messages."""
    lines = [RECALL_OPEN]
    last, day = -1, ""
    for number, text in chosen.items():
        place = index.position(number)[0]
        date = _date_of(history, place)
        if date != day:
            lines.append(f"> {date or 'undated'}")
            day = date
        label = "… " if place == last else f"{history[place]['role']}: "
        lines += [f"> {line}" for line in (label + disarm(text.strip())).splitlines()]
        last = place
    return "\n".join([*lines, RECALL_CLOSE])


def _date_of(history: Sequence[Message], place: int) -> str:
    """Returns the last date at the beginning of a message up to this place; empty if there is none."""
    for message in reversed(history[max(0, place - DATED) : place + 1]):
        if message["role"] != "tool" and (date := date_at_head(text_of(message.get("content")))):
            return date
    return ""


def date_at_head(text: str) -> str:
    """Returns the date at the beginning of a text; empty if there is none."""
    found = _DATE.match(text)
    return found[1] if found else ""


def with_quotation(message: Message, block: str) -> Message:
    """Returns a user message with the block in front of its own text."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": f"{block}\n\n{content}"}
    return {**message, "content": [{"type": "text", "text": f"{block}\n\n"}, *content]}
