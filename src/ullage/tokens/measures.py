"""Functions that count a text's tokens, by a vocabulary, a character rule or a registered tokenizer.

They remember their results by the hash and length of the text; the texts themselves are not kept. Two
generations of results bound the memory. When the young one is full, it becomes the old one, and results in
the previous old one that were not used since are forgotten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ullage.errors import ConfigurationError
from ullage.tokens.ceilings import BOUNDS
from ullage.tokens.definitions import arguments_in, compact, quote_result
from ullage.tokens.vocabularies import vocabulary

if TYPE_CHECKING:
    from ullage.tokens.families import Family
    from ullage.tokens.vocabularies import Tokenizer

Asked = TypeVar("Asked", str, tuple[object, ...])
Value = TypeVar("Value")

Measure = Callable[[str], int]
"""Takes a text and returns its tokens."""
GENERATION = 100_000
"""Results in one generation, enough for a history of 20,000 messages with all calls."""

PARTS = 10_000
"""Counts of parts in one generation."""
PART_CHARS = 1_000
"""Fewest characters of a part. A shorter text is counted as a whole."""
_QUOTED_LINE = "\n> "
LINEWISE = frozenset({"o200k", "gpt-oss", "cl100k", "llama3", "qwen2", "qwen3"})
"""Vocabularies in which no token reaches from the end of one line into a quoted line. So the tokens of a text
are the sum of the tokens of its parts."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The counting functions of one tokenizer. Each one remembers its results."""

    text: Measure
    compact: Measure
    """Counts JSON after its spaces are removed."""
    quoted: Callable[[str], tuple[int, bool]]
    """Counts a text written as JSON. The bool is True if that JSON is shorter than the text."""
    arguments: Measure
    """Returns the number of members if the JSON text is an object, else 0."""
    upper: Measure | None
    """Least ceiling of a text in tokens, in addition to the margin; None if the family has no such bound."""
    custom: bool = False
    """True if a caller registered the tokenizer. Its counts get no scale and no margin."""
    exact: bool = False
    """True if the registered tokenizer says that it is the model's own."""
    learns: bool = False
    """True if the tokenizer learns counts later. Costs made from its counts must not be remembered."""


def measures_of(family: Family, tokenizer: Tokenizer | None) -> Measures:
    """Returns the counting functions of a registered tokenizer, or else of the family's vocabulary."""
    if tokenizer is not None:
        exact, learns = getattr(tokenizer, "exact", False) is True, hasattr(tokenizer, "learn")
        # A tokenizer that learns keeps its own counts. If an estimate were remembered here, it would never be
        # corrected.
        count = _check_counts(tokenizer) if learns else remember_results(_check_counts(tokenizer))
        return _measures(count, None, custom=True, exact=exact, learns=learns)
    return _vocabulary_measures(family.vocabulary, family.bound)


@functools.cache
def _vocabulary_measures(name: str, bound: str) -> Measures:
    if bound not in BOUNDS:
        raise ConfigurationError(f"unknown bound {bound!r}; use one of {', '.join(sorted(BOUNDS))}")
    text = _vocabulary_measure(name)
    rule = BOUNDS[bound]
    return _measures(text, None if rule is None else remember_results(lambda each: rule(each, text(each))))


@functools.cache
def _vocabulary_measure(name: str) -> Measure:
    def count(text: str) -> int:
        return vocabulary(name).count(text)

    if name not in LINEWISE:
        return remember_results(count)
    count_part = remember_results(count, PARTS)

    def count_parts(text: str) -> int:
        if len(text) < PART_CHARS:
            return count(text)
        parts = split_at_quotes(text)
        return count(text) if len(parts) == 1 else sum(map(count_part, parts))

    # A digest grows at its end, line by line: only the last part of it is new.
    return remember_results(count_parts)


def split_at_quotes(text: str) -> list[str]:
    """Returns the text in parts of at least PART_CHARS; each part but the first begins with a quoted line."""
    parts: list[str] = []
    start, end = 0, text.find(_QUOTED_LINE, PART_CHARS)
    while end >= 0:
        parts.append(text[start : end + 1])
        start = end + 1
        end = text.find(_QUOTED_LINE, start + PART_CHARS)
    return [*parts, text[start:]] if parts else [text]


def _measures(
    text: Measure,
    upper: Measure | None,
    *,
    custom: bool = False,
    exact: bool = False,
    learns: bool = False,
) -> Measures:
    def measure_compact(each: str) -> int:
        return text(compact(each))

    measure_quoted = functools.partial(_count_quoted, text)
    return Measures(
        text=text,
        compact=measure_compact if learns else remember_results(measure_compact),
        quoted=measure_quoted if learns else remember_results(measure_quoted),
        arguments=remember_results(arguments_in),
        upper=upper,
        custom=custom,
        exact=exact,
        learns=learns,
    )


def _count_quoted(text: Measure, given: str) -> tuple[int, bool]:
    written = quote_result(given)
    return text(written), len(written) < len(given)


def _check_counts(tokenizer: Tokenizer) -> Measure:
    """Returns the tokenizer's `count`, with a check that each result is an integer of at least 0."""

    def count(text: str) -> int:
        tokens = tokenizer.count(text)
        if tokens.__class__ is not int or tokens < 0:
            name = getattr(tokenizer, "name", "?")
            raise ConfigurationError(
                f"tokenizer {name!r} returned {tokens!r} as a count; return an integer of 0 or more"
            )
        return tokens

    return count


def remember_results(
    measure: Callable[[Asked], Value], generation: int = GENERATION
) -> Callable[[Asked], Value]:
    """Returns `measure` with a memory: it runs once for each argument while the result is remembered."""
    young: dict[tuple[int, int], Value] = {}
    old: dict[tuple[int, int], Value] = {}

    def look(asked: Asked) -> Value:
        nonlocal young, old
        key = (hash(asked), len(asked))
        found = young.get(key)
        if found is None:
            found = old.get(key)
            if found is None:
                found = measure(asked)
            if len(young) >= generation:
                old, young = young, {}
            young[key] = found
        return found

    return look
