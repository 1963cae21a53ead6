"""Upper bounds for texts that an average scale does not fit: unknown models and one-sided texts."""

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
# Patterns are compiled at the first text for an unknown model.
_THREE_DIGITS = "[0-9]{1,3}"
_CHANGE = "[a-z][A-Z0-9]|[0-9][A-Za-z]"
_TWO_MARKS = r"[!-/:-@\[-`{-~]{2}"
_INDENT = r"\n[ \t]+"
_REPEATED = r"([^\s0-9])\1{3,}"
_ANGLES = "<{4,}"
_ESCAPES = r'\\"[:,}\]]|[{\[]\\"'
_BLANK = r"[ \t]{17,}|[\r\n]{3,}"
_SCRIPTS = {
    "accents": "[\x80-\u036f]",
    "alphabets": "[\u0370-\u06ff]",
    "typography": "[\u2000-\u206f]",
    "ideographs": "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]",
    "wide letters": "[\uff10-\uff5a]",
    "hangul": "[\uac00-\ud7af]",
    "other scripts": "[\u0700-\u1fff\u2070-\u2e7f\ua000-\uabff\ud7b0-\uf8ff\ufb00-\ufeff\ufff0-\U0010ffff]",
}

ASKED: Mapping[str, float] = {"gemma4": 1.0, "tekken": 1.0, "cl100k": 1.1}
"""Vocabulary that counts the text itself → factor. The first two are the most wasteful ones on code, markup
and repetitions. cl100k is the most wasteful one on languages other than English: Llama 3 and GLM extend it,
and Qwen, DeepSeek and Kimi needed at most a tenth more in any of 110 languages."""

# Tokens that one occurrence costs the others (Llama 3, Qwen, DeepSeek, Kimi) beyond o200k, at most.
# Fitted to shell output, logs, dumps, code and prose in two dozen languages.
_WEIGHTS: Mapping[str, float] = {
    "tokens": 1.06,
    "split digits": 1.0,
    "capitals": 0.1,
    "changes": 0.32,
    "underscores": 0.7,
    "two marks": 0.05,
    "indents": 0.18,
    "repeated": 0.13,
    "angles": 0.4,
    "escapes": 1.0,
    "blank": 0.065,
    "accents": 2.0,
    "alphabets": 0.9,
    "typography": 0.7,
    "ideographs": 0.55,
    "wide letters": 1.2,
    "hangul": 0.8,
    "other scripts": 1.9,
    "once": 4.0,
}


def any_vocabulary(text: str, tokens: int) -> int:
    """Returns an upper bound of a text's tokens in any modern vocabulary; `tokens` is its count by o200k.

    Three vocabularies count the text themselves. The bound for the others follows from these counts, and from
    the texts that they are known to split: digits one by one, identifiers, other scripts.
    """
    others = sum(_WEIGHTS[name] * value for name, value in _features(text, tokens).items())
    asked = (math.ceil(factor * vocabulary(name).count(text)) for name, factor in ASKED.items())
    return max(tokens, math.ceil(others), *asked)


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
        "angles": sum(map(len, re.findall(_ANGLES, text))),
        "escapes": len(re.findall(_ESCAPES, text)),
        "blank": sum(map(len, re.findall(_BLANK, text))),
        "once": min(1, tokens / 40),
    }
    if not text.isascii():
        found |= {name: len(re.findall(script, text)) for name, script in _SCRIPTS.items()}
    return found


ONE_SIDED_FROM = 400
"""Number of characters from which a text is checked for being one-sided."""
_SAMPLE = 4096


def one_sided(text: str, tokens: int) -> int:
    """Returns an upper bound of a one-sided text's tokens in a scaled vocabulary; 0 for other texts.

    A one-sided text repeats one word, or is mostly capitals. The scale of an average text does not apply to
    it. If a word is one token in o200k and two tokens in the other vocabulary, such a text doubles. The
    recorded ratios are 2.0 and, for capitals, 1.5 where the scale is 1.13. Finer vocabularies need more.
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


FINEST = 1.65
"""Ratio of the finest vocabulary's tokens to o200k's for prose, code and data. The finest is that of the
newest Claude. It is not public, so the figure comes from recorded requests."""


def any_model(text: str, tokens: int) -> int:
    """Returns an upper bound of a text's tokens in any model, also if its vocabulary is not public."""
    return max(any_vocabulary(text, tokens), math.ceil(FINEST * tokens), one_sided(text, tokens))


def small_vocabulary(text: str, tokens: int) -> int:
    """Returns an upper bound of a text's tokens in an English vocabulary of about 50,000 pieces.

    Such a vocabulary splits other scripts into bytes, so the number of bytes is an upper bound for them.
    """
    foreign = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(text)
    return max(any_vocabulary(text, tokens), math.ceil(SMALL * tokens)) + foreign


SMALL = 1.5
"""Highest ratio of a small vocabulary's tokens to o200k's, for English and for code."""

BOUNDS: Mapping[str, Callable[[str, int], int] | None] = {
    "margin": None,
    "scaled": one_sided,
    "any": any_vocabulary,
    "every": any_model,
    "small": small_vocabulary,
}
"""The bounds that a family can name; None means the margin alone."""
ASKING = frozenset({"any", "every", "small"})
"""The bounds that need the vocabularies in `ASKED`."""
