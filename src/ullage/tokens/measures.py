"""How many tokens a text has, each asked once: of a vocabulary, a plain rule, or a registered tokenizer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.tokens.bounds import BOUNDS
from ullage.tokens.calls import arguments_in, compact, quoted
from ullage.tokens.memo import remembered
from ullage.tokens.vocabularies import vocabulary

if TYPE_CHECKING:
    from ullage.tokens.families import Family
    from ullage.tokens.vocabularies import Tokenizer

Measure = Callable[[str], int]
"""Text in, tokens out."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one tokenizer; each remembers what it was asked."""

    text: Measure
    compact: Measure
    """Of JSON, written without spaces."""
    quoted: Callable[[str], tuple[int, bool]]
    """Of a text, written as JSON; and whether that is shorter than the text."""
    arguments: Measure
    """Of JSON: the members of the object that it is."""
    upper: Measure | None
    """The bound that a text's ceiling holds to beside the margin."""
    custom: bool = False
    """Whether a caller registered the tokenizer: it is taken at its word."""
    exact: bool = False
    """Whether that tokenizer says of itself that it is the model's own."""


def measures_of(family: Family, tokenizer: Tokenizer | None) -> Measures:
    """The measures of a registered tokenizer, or of the family's own vocabulary."""
    if tokenizer is not None:
        return _measures(
            _checked(tokenizer), None, custom=True, exact=getattr(tokenizer, "exact", False) is True
        )
    return _vocabulary_measures(family.vocabulary, family.bound)


@functools.cache
def _vocabulary_measures(name: str, bound: str) -> Measures:
    if bound not in BOUNDS:
        raise ConfigurationError(f"unknown bound {bound!r}; one of {', '.join(sorted(BOUNDS))}")
    text = _vocabulary_measure(name)
    rule = BOUNDS[bound]
    return _measures(text, None if rule is None else remembered(lambda each: rule(each, text(each))))


@functools.cache
def _vocabulary_measure(name: str) -> Measure:
    return remembered(lambda text: vocabulary(name).count(text))


def _measures(text: Measure, upper: Measure | None, *, custom: bool = False, exact: bool = False) -> Measures:
    return Measures(
        text=text,
        compact=remembered(lambda each: text(compact(each))),
        quoted=remembered(functools.partial(_quoted, text)),
        arguments=remembered(arguments_in),
        upper=upper,
        custom=custom,
        exact=exact,
    )


def _quoted(text: Measure, given: str) -> tuple[int, bool]:
    written = quoted(given)
    return text(written), len(written) < len(given)


def _checked(tokenizer: Tokenizer) -> Measure:
    """A registered tokenizer's count, refused where it is no count."""

    def count(text: str) -> int:
        tokens = tokenizer.count(text)
        if tokens.__class__ is not int or tokens < 0:
            raise ConfigurationError(
                f"tokenizer {tokenizer.name!r} counted {tokens!r}; a count is an integer, 0 or more"
            )
        return tokens

    return remembered(count)
