"""Ceilings for texts where an average says little: of models that nobody knows, and one-sided texts."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from ullage.tokens.vocabularies import vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = "0123456789"
# Patterns, compiled when the first text of an unknown model comes.
_THREE_DIGITS = "[0-9]{1,3}"
_CHANGE = "[a-z][A-Z0-9]|[0-9][A-Za-z]"
_TWO_MARKS = r"[!-/:-@\[-`{-~]{2}"
_INDENT = r"\n[ \t]+"
_REPEATED = r"([^\s0-9])\1{3,}"
_BLANK = r"[ \t]{17,}|[\r\n]{3,}"
_SCRIPTS = {
    "accents": "[\x80-\u036f]",
    "alphabets": "[\u0370-\u06ff]",
    "typography": "[\u2000-\u206f]",
    "ideographs": "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]",
    "hangul": "[\uac00-\ud7af]",
    "other scripts": "[\u0700-\u1fff\u2070-\u2e7f\ua000-\uabff\ud7b0-\uf8ff\ufb00-\ufeff\ufff0-\U0010ffff]",
}

ASKED = ("gemma4", "tekken")
"""The vocabularies that are asked themselves: the most wasteful on code, on markup and on repetitions."""

# What one of each costs the other vocabularies (cl100k, Llama 3, Qwen, DeepSeek) beyond o200k, at most.
# Fitted to shell output, logs, dumps, code and prose in two dozen languages.
_WEIGHTS: Mapping[str, float] = {
    "tokens": 1.06,
    "split digits": 1.0,
    "capitals": 0.1,
    "changes": 0.32,
    "underscores": 0.7,
    "two marks": 0.05,
    "indents": 0.18,
    "repeated": 0.1,
    "blank": 0.05,
    "accents": 2.0,
    "alphabets": 0.9,
    "typography": 0.7,
    "ideographs": 0.55,
    "hangul": 0.8,
    "other scripts": 1.9,
    "once": 4.0,
}


def any_vocabulary(text: str, tokens: int) -> int:
    """The most tokens that a modern vocabulary makes of `text`, which has `tokens` by o200k.

    Two vocabularies are asked themselves; what the others may need follows from what they are known to
    split: digits one by one, identifiers, other scripts.
    """
    others = sum(_WEIGHTS[name] * value for name, value in _features(text, tokens).items())
    return max(tokens, math.ceil(others), *(vocabulary(name).count(text) for name in ASKED))


def _features(text: str, tokens: int) -> dict[str, float]:
    found = {
        "tokens": tokens,
        "split digits": sum(map(text.count, _DIGITS)) - len(re.findall(_THREE_DIGITS, text)),
        "capitals": sum(map(text.count, _CAPITALS)),
        "changes": len(re.findall(_CHANGE, text)),
        "underscores": text.count("_"),
        "two marks": len(re.findall(_TWO_MARKS, text)),
        "indents": len(re.findall(_INDENT, text)),
        "repeated": sum(len(run[0]) for run in re.finditer(_REPEATED, text)),
        "blank": sum(map(len, re.findall(_BLANK, text))),
        "once": min(1, tokens / 40),
    }
    if not text.isascii():
        found |= {name: len(re.findall(script, text)) for name, script in _SCRIPTS.items()}
    return found


ONE_SIDED_FROM = 400
"""Characters from which a text is long enough to be one-sided."""
_SAMPLE = 4096


def one_sided(text: str, tokens: int) -> int:
    """The most tokens that a scaled vocabulary may make of a text that is one word over and over, or all
    capitals: there the scale of an average text says nothing. 0 for every other text.

    A word that is one token here and two there doubles such a text; recorded are 2.0 and, in capitals, 1.5,
    for a scale of 1.13; finer vocabularies need more.
    """
    if len(text) < ONE_SIDED_FROM:
        return 0
    sample = text[:_SAMPLE]
    words = sample.split()
    if len(words) > 20 and Counter(words).most_common(1)[0][1] * 3 > len(words):
        return math.ceil(2.5 * tokens)
    if sum(map(sample.count, _CAPITALS)) * 2 > sum(map(len, words)):
        return math.ceil(1.9 * tokens)
    return 0


def small_vocabulary(text: str, tokens: int) -> int:
    """The most tokens that a vocabulary of some 50,000 pieces, trained on English, makes of `text`.

    Of other scripts it knows little but their bytes, and it never needs more tokens than those.
    """
    foreign = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(text)
    return max(any_vocabulary(text, tokens), math.ceil(SMALL * tokens)) + foreign


SMALL = 1.5
"""How many times o200k's tokens such a vocabulary needs for English and for code, at most."""

BOUNDS: Mapping[str, Callable[[str, int], int] | None] = {
    "margin": None,
    "scaled": one_sided,
    "any": any_vocabulary,
    "small": small_vocabulary,
}
"""The bounds that a family can name."""
ASKING = frozenset({"any", "small"})
"""Those for which the vocabularies of `ASKED` are loaded."""
