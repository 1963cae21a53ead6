"""The vocabularies that ship with splintr-rs, behind one small interface.

Only this module knows splintr. A vocabulary is loaded when its first text is counted.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ullage.errors import ConfigurationError
from ullage.tokens.rules import RULES, CharacterRule

if TYPE_CHECKING:
    from collections.abc import Callable


@runtime_checkable
class Tokenizer(Protocol):
    """What counting needs: a name and a count. One that also has `encode` can show its tokens."""

    @property
    def name(self) -> str:
        """The name under which counts are remembered."""
        ...

    def count(self, text: str) -> int:
        """The tokens of `text`; 0 for the empty text, never negative."""
        ...


_nfc = functools.partial(unicodedata.normalize, "NFC")

# vocabulary → (splintr's name, what to do to a text first, splintr's method).
# `encode_ordinary` never matches a special token that is spelled out in a text; Gemma, whose vocabulary has
# HTML tags as words, has its ordinary encoding under `encode_raw`.
_SOURCES: dict[str, tuple[str, Callable[[str], str] | None, str]] = {
    "o200k": ("o200k_base", None, "encode_ordinary"),
    "gpt-oss": ("o200k_harmony", None, "encode_ordinary"),
    "cl100k": ("cl100k_base", None, "encode_ordinary"),
    "llama3": ("llama3", None, "encode_ordinary"),
    "llama2": ("llama2", None, "encode_ordinary"),
    "qwen2": ("qwen2", _nfc, "encode_ordinary"),
    "qwen3": ("qwen3", _nfc, "encode_ordinary"),
    "deepseek": ("deepseek_v3", None, "encode_ordinary"),
    "mistral1": ("mistral_v1", None, "encode_ordinary"),
    "mistral2": ("mistral_v2", None, "encode_ordinary"),
    "tekken": ("mistral_v3", None, "encode_ordinary"),
    "gemma2": ("gemma2", None, "encode_raw"),
    "gemma3": ("gemma3", None, "encode_raw"),
    "gemma4": ("gemma4", None, "encode_raw"),
    "glm4": ("glm4", None, "encode_ordinary"),
    "kimi": ("kimi_k2", None, "encode_ordinary"),
    "phi4": ("phi4", None, "encode_ordinary"),
    "olmo2": ("olmo2", None, "encode_ordinary"),
}

VOCABULARIES = frozenset(_SOURCES)

_QUADRATIC = frozenset({"gemma2", "gemma3"})
"""Vocabularies whose encoder takes the square of the time for long runs of line ends."""
_BLOCK = 8192
_CUT = re.compile(r"(?<=\n)(?=[^\W_])|(?<=[a-z])(?= [a-z])")


class Vocabulary:
    """One of splintr's vocabularies: plain text only, special tokens are never matched."""

    def __init__(self, name: str) -> None:
        self.name = name
        source, self._prepare, method = _SOURCES[name]
        tokenizer = _load(source)
        encode: Callable[[str], list[int]] = getattr(tokenizer, method)
        self._encode = functools.partial(_in_blocks, encode) if name in _QUADRATIC else encode
        # Ids as bytes take half the time of ids as a list, but only the encoder that matches special tokens
        # gives them; so it is asked where a text has not even the beginning of one.
        self._begins = sorted({special[:2] for special in tokenizer.special_tokens()})
        self._bytes: Callable[[str], bytes] | None = None
        if method == "encode_ordinary" and len(self._begins) <= 2:
            self._bytes = tokenizer.encode_flat

    def __repr__(self) -> str:
        return f"Vocabulary({self.name!r})"

    def encode(self, text: str) -> list[int]:
        """The token ids of `text`."""
        return self._encode(self._prepared(text))

    def count(self, text: str) -> int:
        """The number of tokens of `text`."""
        text = self._prepared(text)
        if self._bytes is None or any(begin in text for begin in self._begins):
            return len(self._encode(text))
        return len(self._bytes(text)) // _ID_BYTES

    def ready(self) -> None:
        """Does now what splintr puts off until the first word that is not in its vocabulary."""
        self._encode("qzxvkjwq")

    def _prepared(self, text: str) -> str:
        if not text.isascii():
            text = _without_lone_surrogates(text)
        return text if self._prepare is None else self._prepare(text)


_ID_BYTES = 4


@functools.cache
def vocabulary(name: str) -> Vocabulary | CharacterRule:
    """The vocabulary or plain rule of that name, loaded once."""
    if name in RULES:
        return RULES[name]
    if name not in _SOURCES:
        known = ", ".join(sorted(VOCABULARIES | RULES.keys()))
        raise ConfigurationError(f"unknown vocabulary {name!r}; one of {known}")
    return Vocabulary(name)


def _load(source: str) -> Any:
    import splintr  # noqa: PLC0415 - 37 MB of vocabularies; paid by the first count

    return splintr.Tokenizer.from_pretrained(source)


def _in_blocks(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """The tokens of a text, cut where cutting changes nothing: between words, or before a line's first word.

    Only where a block has no such place is it cut anywhere, and may have a token more.
    """
    if len(text) <= _BLOCK:
        return encode(text)
    tokens: list[int] = []
    start = 0
    while start < len(text):
        end = start + _BLOCK
        if end < len(text):
            cuts = [cut.end() for cut in _CUT.finditer(text, start + _BLOCK // 2, end)]
            end = cuts[-1] if cuts else end
        tokens += encode(text[start:end])
        start = end
    return tokens


def _without_lone_surrogates(text: str) -> str:
    """What a JSON encoder would send: pairs joined, lone halves replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
