"""Ranks texts by how much they bear on a question: BM25 over stems, without a model.

An `Index` grows text by text, so a conversation pays for the texts that are new. Long texts are indexed as
passages, and words of scripts without spaces as pairs of characters.

The store's index is made of the same stems and passages. So a change of `stems` or `passages` needs a
migration step in `store.sqlite` and `store.postgres` that indexes the store again.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from functools import cache, lru_cache
from itertools import chain, pairwise
from math import log
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

SATURATION = 1.2
"""BM25's k1: how soon another occurrence of a word stops counting."""
LENGTH = 0.4
"""BM25's b: how much the length of a passage lowers its score."""
BESIDE = 0.3
"""Share of a score that the neighbours of a passage get, because an answer is next to its question."""

PASSAGE_CHARS = 500
"""Texts are cut into passages of about this length, at the end of a line or a sentence."""
READ_CHARS = 12_000
"""Of a longer text only the beginning and the end are indexed."""


_WORD = re.compile(r"[^\W_]+")
_BLANKS = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalnum()})
# Thai, Lao, Burmese, Khmer, Japanese and Chinese put no space between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]+"
)
_VOWEL = re.compile("[aeiouy]")
_ENDINGS = (
    ("ational", "ate"),
    ("ization", "ize"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("ation", "ate"),
    ("ment", ""),
    ("ness", ""),
    ("able", ""),
    ("ible", ""),
    ("ally", "al"),
    ("ful", ""),
    ("ly", ""),
)
_BREAK = re.compile(r"\n+|(?<=[.!?])\s+|(?<=[。！？])")


@cache
def stop_words() -> frozenset[str]:
    """Returns the words that are too common to identify a subject."""
    lines = Path(__file__).with_name("stop_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def stems(text: str) -> list[str]:
    """Returns the stems of a text's words in order, without stop words."""
    text = text.lower()
    # Blanks for all marks and one split find the same words in half the time.
    found = text.translate(_BLANKS).split() if text.isascii() else _WORD.findall(text)
    return list(chain.from_iterable(map(_forms, found)))


@lru_cache(20_000)
def _forms(word: str) -> tuple[str, ...]:
    """Returns the stem of a word; nothing for a stop word; pairs of characters in scripts without spaces."""
    if word.isascii():
        return () if word in stop_words() else (_stem(word),)
    return tuple(_pairs(word)) if _UNSPACED.search(word) else (_without_accents(word),)


def _pairs(word: str) -> Iterator[str]:
    """Returns the pairs of adjacent characters of a word in a script without spaces."""
    at = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > at:
            yield _stem(word[at : run.start()])
        characters = run.group()
        yield from map("".join, pairwise(characters)) if characters[1:] else characters
        at = run.end()
    if at < len(word):
        yield _stem(word[at:])


def _without_accents(word: str) -> str:
    """Returns a word without accents, so that both spellings match; as a stem if it is English then."""
    bare = "".join(each for each in unicodedata.normalize("NFD", word) if not unicodedata.combining(each))
    return _stem(bare) if bare.isascii() else unicodedata.normalize("NFC", bare)


def _stem(word: str) -> str:
    """Returns an English word without its ending, so that its forms become equal."""
    if len(word) <= 3 or not word.isalpha():
        return word
    word = _without_ing_ed(_singular(word))
    for ending, rest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + rest
            break
    if word[-1] == "y":
        return word[:-1] + "i"
    return word[:-1] if word[-1] == "e" and len(word) > 3 else word


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    if word[-1] == "s" and word[-2] not in "sui":
        return word[:-1]
    return word


def _without_ing_ed(word: str) -> str:
    for ending in ("ing", "ed"):
        bare = word.removesuffix(ending)
        if bare != word and _VOWEL.search(bare):
            doubled = len(bare) > 2 and bare[-1] == bare[-2] and bare[-1] not in "lsz"
            return bare[:-1] if doubled else bare
    return word


def passages(text: str, most: int | None = READ_CHARS) -> list[str]:
    """Returns the text in passages of about PASSAGE_CHARS. Only longer sentences are cut.

    Of a text with more than `most` characters these are passages of its beginning and its end.
    """
    if len(text) <= PASSAGE_CHARS:
        return [text] if text.strip() else []
    if most is not None and len(text) > most:
        text = f"{text[: most * 2 // 3]}\n{text[-most // 3 :]}"
    found, start = [], 0
    while len(text) - start > PASSAGE_CHARS:
        end = start + PASSAGE_CHARS
        breaks = [match.end() for match in _BREAK.finditer(text, start + PASSAGE_CHARS // 2, end)]
        end = breaks[-1] if breaks else _word_end(text, end)
        found.append(text[start:end])
        start = end
    return [part for part in (*found, text[start:]) if part.strip()]


def _word_end(text: str, at: int) -> int:
    """Returns the next position from `at` on that is not inside a word; `at` in a text without spaces."""
    space = text.find(" ", at, at + PASSAGE_CHARS // 2)
    return space + 1 if space >= 0 else at


def rarity(count: int, holders: int) -> float:
    """Returns BM25's weight of a stem from the number of passages that have it: rarer stems weigh more."""
    return log(1 + (count - holders + 0.5) / (holders + 0.5))


def frequency(mean: float) -> Callable[[int, int], float]:
    """Returns BM25's weight of a stem in a passage, from its occurrences and the size of the passage."""
    most, least, slope = SATURATION + 1, SATURATION * (1 - LENGTH), SATURATION * LENGTH / mean
    return lambda times, size: most * times / (times + least + slope * size)


class Index:
    """Passages by their stems.

    Thousands of windows may be open, and each one has an index. So the index keeps no texts: a passage is
    known by its number, and its text is cut from the conversation again.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        """The number of the first passage of each text, by the text's place."""
        self._places, self._sizes = array("I"), array("I")
        """The place of each passage's text, and the number of its stems."""
        self._holding: dict[str, int | array[int]] = {}
        """The passages that have a stem. Most stems stand in one passage only."""
        self._stems = 0

    def __len__(self) -> int:
        """The number of passages."""
        return len(self._places)

    def position(self, number: int) -> tuple[int, int]:
        """Returns the place of a passage's text, and the position of the passage in the text."""
        place = self._places[number]
        return place, number - self._first[place]

    def add(self, place: int, text: str) -> None:
        """Indexes a text under its place in the conversation."""
        holding, first = self._holding, len(self._places)
        for number, part in enumerate(passages(text), first):
            self._first[place] = first
            words = stems(part)
            self._places.append(place)
            self._sizes.append(len(words))
            self._stems += len(words)
            for stem, times in Counter(words).items():
                packed = number << 8 | (times if times < 256 else 255)
                before = holding.get(stem)
                if before is None:
                    holding[intern(stem)] = packed
                elif isinstance(before, int):
                    holding[stem] = array("I", (before, packed))
                else:
                    before.append(packed)

    def rank(
        self, query: Iterable[str], hints: Iterable[str] = (), weight: float = 0.0
    ) -> list[tuple[float, int]]:
        """Returns (score, number) of passages with stems of the query and their neighbours, the best first.

        Hints are stems of less weight: they bring no passage of their own.
        """
        scores: dict[int, float] = {}
        for stem in sorted(query):
            for number, score in self._score_passages(stem):
                scores[number] = scores.get(number, 0.0) + score
        for stem in sorted(hints):
            for number, score in self._score_passages(stem):
                if number in scores:
                    scores[number] += weight * score
        ranked = [(score + BESIDE * self._beside(number, scores), number) for number, score in scores.items()]
        beside = {number for near in scores for number in self._neighbours(near)} - scores.keys()
        ranked += [(BESIDE * self._beside(number, scores), number) for number in beside]
        ranked.sort(key=lambda found: (-found[0], found[1]))
        return ranked

    def has_rare(self, query: Iterable[str], most: float) -> bool:
        """Returns True if a stem of the query stands in at most this number of passages."""
        for stem in query:
            holding = self._holding.get(stem)
            if holding is not None and (isinstance(holding, int) or len(holding) <= most):
                return True
        return False

    def _find_passages(self, stem: str) -> Sequence[int]:
        """Returns the passages that have a stem, each with the number of times."""
        holding = self._holding.get(stem, ())
        return (holding,) if isinstance(holding, int) else holding

    def _score_passages(self, stem: str) -> Iterator[tuple[int, float]]:
        """Yields the passages that have a stem, with its score in each; rarer stems score higher."""
        holding, sizes = self._find_passages(stem), self._sizes
        if not holding:
            return
        rare = rarity(len(sizes), len(holding))
        weight = frequency(self._stems / len(sizes))
        for packed in holding:
            number = packed >> 8
            yield number, rare * weight(packed & 255, sizes[number])

    def _beside(self, number: int, scores: Mapping[int, float]) -> float:
        return max([scores.get(near, 0.0) for near in self._neighbours(number)], default=0.0)

    def _neighbours(self, number: int) -> Iterable[int]:
        """Returns the passages before and after this one, also in adjacent texts."""
        place, first = self._places[number], self._first
        before = number - 1 if number > first[place] else self._last_of(place - 1)
        after = number + 1 if number < self._last_of(place) else first.get(place + 1, -1)
        return [near for near in (before, after) if near >= 0]

    def _last_of(self, place: int) -> int:
        """Returns the last passage of a text; -1 if the text is not in the index."""
        number, places = self._first.get(place, -1), self._places
        if number >= 0:
            while number + 1 < len(places) and places[number + 1] == place:
                number += 1
        return number
