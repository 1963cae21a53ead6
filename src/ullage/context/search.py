"""Searches a conversation by plain words: BM25 over stems, the same in every journal.

A journal returns the passages that have a stem, and `rank` orders the pieces. A text beside a matching text
gets a higher score, because an answer often has few words of its question. `take_excerpt` cuts a long hit to
the part that matches.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from math import log
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ullage.fitting.pieces import HANDLE_LENGTH
from ullage.fitting.recall import DATED, date_at_head
from ullage.fitting.relevance import BESIDE, frequency, passages, rarity, stems
from ullage.messages import split_recalled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

SHORTEST_BEGINNING = 3
"""Least letters of a word that also matches longer words that begin with it; 1 if it is not ASCII."""

RELATIVE = 0.2
"""Least share of the best text's score; a text below it shares only common words with the query."""

_QUOTED = re.compile(r'"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»|「([^「」]+)」')
_HANDLE = re.compile(rf"[a-z2-7]{{{HANDLE_LENGTH},52}}")
_OWN_CALL = re.compile(r"^recall \{.*\}$", re.MULTILINE)
_DIGITS = 9  # digits of a score; smaller differences come from rounding

Posting: TypeAlias = "tuple[int, int, int, int, int | None]"
"""A passage that has a stem: passage, piece, occurrences of the stem, number of stems, position.

Pieces are numbered in the order in which they were kept. The position of a turn is the number of its event,
plus `SESSION_PLACES` for each session that began before its own: at its first event or its first piece. It is
None if the piece is not a turn.
"""
SESSION_PLACES = 1 << 32
"""The number of positions for each session; no session has as many events."""
NOWHERE = -(1 << 63)
"""The position of a text that is not a turn; it sorts before turns with the same score."""


class Said(NamedTuple):
    """A turn beside a hit."""

    role: str
    text: str


class Hit(NamedTuple):
    """A piece that was found, with the turns beside it."""

    handle: str
    text: str
    session: str
    role: str | None = None
    """The role of the speaker: user, assistant or tool; None if the text is not a turn."""
    date: str | None = None
    """The day of the turn, as the conversation states it; None if it does not."""
    before: Said | None = None
    after: Said | None = None


class SearchQuery(NamedTuple):
    """The words and phrases to search for."""

    stems: tuple[str, ...]
    phrases: tuple[str, ...]
    """Texts that must occur exactly, except for case and blanks."""

    def matches(self, text: str) -> bool:
        """Returns True if all phrases occur in the text."""
        if not self.phrases:
            return True
        plain = _plain(text)
        return all(phrase in plain for phrase in self.phrases)


def read_query(words: str) -> SearchQuery:
    """Returns the query for a question in plain words; text in quotation marks must occur exactly."""
    quoted = ["".join(found) for found in _QUOTED.findall(words)]
    phrases = tuple(dict.fromkeys(filter(None, map(_plain, quoted))))
    return SearchQuery(tuple(sorted(set(stems(words)))), phrases)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def read_handle(words: str) -> str | None:
    """Returns the words as a handle; None if they cannot be one."""
    sought = words.strip().lower()
    return sought if _HANDLE.fullmatch(sought) else None


def explain_nothing(words: str) -> str:
    """Returns a message that says why nothing was found and what to try."""
    query = read_query(words)
    if not query.stems:
        return "These words are too common to search for. Name a person, a thing or a number"
    if query.phrases:
        return "No text has the words in quotation marks. Leave out the quotation marks, or quote less"
    return "No text has any of these words. Try other words, or only the beginning of one word"


# Words --------------------------------------------------------------------------------------------------


def index_forms(text: str) -> Iterator[list[str]]:
    """Yields the stems of each passage of a text, if it has any.

    Calls of the recall tool and its answers are left out: a search would find them instead of the texts that
    they quote.
    """
    for passage in passages(_OWN_CALL.sub("", split_recalled(text)[1]), most=None):
        if found := stems(passage):
            yield found


class IndexedWords(Protocol):
    """The index of words of one session, or of all."""

    def total(self) -> tuple[int, int]:
        """Returns the number of passages, and the number of all their stems."""

    def holding(self, stem: str) -> Sequence[Posting]:
        """Returns the passages that have the stem."""

    def beginning(self, letters: str) -> Sequence[Posting]:
        """Returns the passages that have a stem which begins with these letters."""


def rank(words: IndexedWords, query: SearchQuery) -> list[int]:
    """Returns the pieces that match a query, the best first; of equal ones the newest turn first."""
    found = {stem: words.holding(stem) for stem in query.stems}
    if not any(found.values()):
        found = {stem: words.beginning(stem) for stem in query.stems if _is_long_enough(stem)}
    if not any(found.values()):
        return []
    count, all_stems = words.total()
    scores, places = _score(found, count, all_stems / count)
    at = {place: scores[piece] for piece, place in places.items() if place is not None}
    allowed = _with_phrases(query, found) if query.phrases else scores.keys()
    lifted = []
    for piece in allowed:
        place = places[piece]
        score = round(scores[piece] + BESIDE * _beside(place, at), _DIGITS)
        lifted.append((-score, NOWHERE if place is None else -place, -piece))
    lifted.sort()
    return [-piece for score, _, piece in lifted if score <= RELATIVE * lifted[0][0]]


def _is_long_enough(stem: str) -> bool:
    return len(stem) >= SHORTEST_BEGINNING or not stem.isascii()


def _score(
    found: Mapping[str, Sequence[Posting]], count: int, mean: float
) -> tuple[dict[int, float], dict[int, int | None]]:
    """Returns the score of each piece, which is that of its best passage, and its position."""
    weight = frequency(mean)
    sums: defaultdict[int, float] = defaultdict(float)
    owners: dict[int, int] = {}
    places: dict[int, int | None] = {}
    for held in found.values():
        rare = rarity(count, len(held))
        for passage, piece, times, size, place in held:
            sums[passage] += rare * weight(times, size)
            owners[passage] = piece
            places[piece] = place
    scores: dict[int, float] = {}
    for passage, score in sums.items():
        piece = owners[passage]
        if score > scores.get(piece, 0.0):
            scores[piece] = score
    return scores, places


def _beside(place: int | None, at: Mapping[int, float]) -> float:
    """Returns the better score of the two turns beside a position."""
    return 0.0 if place is None else max(at.get(place - 1, 0.0), at.get(place + 1, 0.0))


def _with_phrases(query: SearchQuery, found: Mapping[str, Sequence[Posting]]) -> set[int]:
    """Returns the pieces that have all stems of all phrases; only these can have the phrases."""
    sought = {stem for phrase in query.phrases for stem in stems(phrase)}
    having = [{piece for _, piece, *_ in found.get(stem, ())} for stem in sought]
    if not having:
        return {piece for held in found.values() for _, piece, *_ in held}
    return set.intersection(*having)


class MemoryWords:
    """An index of words in memory, to which pieces are added one by one."""

    def __init__(self) -> None:
        self._holding: dict[str, list[Posting]] = {}
        self._passages = self._stems = 0

    def add(self, piece: int, text: str, place: int | None) -> None:
        """Adds the words of a piece."""
        for forms in index_forms(text):
            for stem, times in Counter(forms).items():
                posting = (self._passages, piece, times, len(forms), place)
                self._holding.setdefault(stem, []).append(posting)
            self._passages += 1
            self._stems += len(forms)

    def total(self) -> tuple[int, int]:
        """Returns the number of passages, and the number of all their stems."""
        return self._passages, self._stems

    def holding(self, stem: str) -> Sequence[Posting]:
        """Returns the passages that have the stem."""
        return self._holding.get(stem, ())

    def beginning(self, letters: str) -> Sequence[Posting]:
        """Returns the passages that have a stem which begins with these letters, each once."""
        found: dict[int, Posting] = {}
        for stem, held in self._holding.items():
            if stem.startswith(letters):
                for passage, piece, times, size, place in held:
                    before = found.get(passage)
                    more = before[2] if before else 0
                    found[passage] = (passage, piece, times + more, size, place)
        return list(found.values())


# Hits ---------------------------------------------------------------------------------------------------

BEFORE, AFTER = DATED, 4
"""The number of events before and after a hit that are read for its date and the turns beside it."""


def hit_of(
    handle: str, text: str, session: str, event: int | None, around: Iterable[tuple[int, Said]]
) -> Hit:
    """Returns a hit with the turns beside it; `around` has turns by the number of their event, in order."""
    own = date_at_head(text) or None
    hit = Hit(handle, text, session, date=own)
    if event is None:
        return hit
    for number, said in around:
        if number < event:
            stated = date_at_head(said.text) if said.role != "tool" else ""
            hit = hit._replace(before=said, date=own or stated or hit.date)
        elif number == event:
            hit = hit._replace(role=said.role)
        else:
            return hit._replace(after=said)
    return hit


# Excerpts -----------------------------------------------------------------------------------------------

GAP = "…"
"""Marks a place where text was left out."""
SHORT_CHARS = 160
"""Most characters of a turn beside a hit."""

_WORD = re.compile(r"[^\W_]+")
_LEAST = 24  # characters; a shorter part of a passage is of no use


def take_excerpt(text: str, sought: Collection[str], room: int, measure: Callable[[str], int]) -> str:
    """Returns the text, or its passages with the most stems, in at most `room` units of `measure`.

    Empty if the room is too small for any passage.
    """
    if measure(text) <= room:
        return text
    parts = passages(text, most=None)
    chosen: set[int] = set()
    for number in _by_relevance(parts, sought):
        if measure(_join_passages(parts, {*chosen, number})) > room:
            break
        chosen.add(number)
    if chosen:
        return _join_passages(parts, chosen)
    best = _by_relevance(parts, sought)
    return _cut(parts[best[0]], sought, room, measure) if best else ""


def _by_relevance(parts: Sequence[str], sought: Collection[str]) -> list[int]:
    """Returns the passages, those with the most stems first; a stem that few passages have counts more."""
    having = [frozenset(stems(part)).intersection(sought) for part in parts]
    holders = {stem: sum(stem in each for each in having) for stem in sought}
    worth = [sum(log(1 + len(parts) / holders[stem]) for stem in sorted(each)) for each in having]
    return sorted(range(len(parts)), key=lambda number: (-worth[number], number))


def _join_passages(parts: Sequence[str], chosen: Collection[int]) -> str:
    """Joins passages in the order of the text, with a mark for each gap."""
    lines: list[str] = []
    last = -1
    for number in sorted(chosen):
        if number != last + 1:
            lines.append(GAP)
        lines.append(parts[number].strip("\n"))
        last = number
    if last != len(parts) - 1:
        lines.append(GAP)
    return "\n".join(lines)


def _cut(passage: str, sought: Collection[str], room: int, measure: Callable[[str], int]) -> str:
    """Returns the part of a passage around the first word of the query, as long as the room allows."""
    first = next(find_words(passage, sought), (0, 0))[0]
    length = len(passage)
    while length >= _LEAST:
        start = max(0, min(first - length // 4, len(passage) - length))
        part = passage[start : start + length].strip()
        shown = f"{GAP if start else ''}{part}{GAP if start + length < len(passage) else ''}"
        if measure(shown) <= room:
            return shown
        length = length * 3 // 4
    return ""


def shorten_beside(text: str) -> str:
    """Returns a turn beside a hit, shortened to one line."""
    line = " ".join(text[: 2 * SHORT_CHARS].split())
    if len(line) <= SHORT_CHARS and len(text) <= 2 * SHORT_CHARS:
        return line
    return line[: SHORT_CHARS - 1].rsplit(" ", 1)[0] + GAP


def find_words(text: str, sought: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yields the begin and end of each word that has one of the stems, in order."""
    unspaced = [stem for stem in sought if not stem.isascii()]
    for word in _WORD.finditer(text):
        found = frozenset(stems(word.group())).intersection(sought)
        if not found:
            continue
        run = word.group().lower()
        inside = sorted(run.find(stem) for stem in unspaced if stem in run and stem != run)
        if inside and len(run) == len(word.group()):
            for at in inside:
                width = max(len(stem) for stem in unspaced if run.startswith(stem, at))
                yield word.start() + at, word.start() + at + width
        else:
            yield word.span()
