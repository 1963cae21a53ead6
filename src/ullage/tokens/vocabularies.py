"""Vocabularies, which ship with splintr-rs, behind one small interface, and rules that count characters.

No other module imports splintr. A vocabulary is loaded when its first text is counted. A character rule can
be chosen by name instead. For shell output, real vocabularies need 30–60 % more tokens than such a rule says.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ullage.errors import ConfigurationError
from ullage.intake import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class CharacterRule:
    """Counts tokens as a fraction of the characters."""

    name: str
    halves: int
    """Characters per token, times two. It is an integer, so that no rounding error can change a count."""
    up: bool
    """True to round up."""

    def count(self, text: str) -> int:
        """Returns the tokens of `text` by this rule."""
        return (2 * len(text) + (self.halves - 1 if self.up else 0)) // self.halves


RULES: Mapping[str, CharacterRule] = {
    rule.name: rule
    for rule in (CharacterRule("chars/4", 8, up=False), CharacterRule("chars/3.5", 7, up=True))
}


@runtime_checkable
class Tokenizer(Protocol):
    """Counts tokens. A tokenizer that also has `encode` can list the tokens of a text."""

    @property
    def name(self) -> str:
        """Name of the tokenizer, for messages."""
        ...

    def count(self, text: str) -> int:
        """Returns the number of tokens of `text`, at least 0; 0 for the empty text."""
        ...


def check_tokenizer(given: Any) -> Tokenizer:
    """Returns a caller's tokenizer; raises ConfigurationError if it is not a tokenizer.

    A text has a method `count` too, which counts something else, so the name is checked as well.
    """
    is_named = not isinstance(given, type) and isinstance(getattr(given, "name", None), str)
    if is_named and isinstance(given, Tokenizer) and callable(given.count):
        return given
    raise ConfigurationError(
        f"{kind_of(given)} is not a tokenizer: it needs a name and a method count(text). "
        "ullage.get_tokenizer(model) returns the one of a known model"
    )


_nfc = functools.partial(unicodedata.normalize, "NFC")

# Vocabulary → (splintr's name, normalization of the text or None, splintr's method). `encode_ordinary` never
# matches a special token that is spelled out in a text. Gemma's vocabulary has HTML tags as words, so its
# ordinary encoding is `encode_raw`.
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
"""Vocabularies whose encoder needs quadratic time for long runs of line ends."""
_BLOCK = 8192
_WHOLE = frozenset({"llama2", "mistral1", "mistral2"})
"""Vocabularies in which a cut between two words changes the tokens."""
_LONG = 64 * 1024
"""Longer texts are counted in blocks of about so many characters. An encoder does not let other threads run,
and takes a second for some megabytes."""
_LONGEST = 1_000_000
"""Most characters of a block. A block without a place to cut is cut here, which may add a token."""
_CUT = re.compile(r"(?<=\n)(?=[^\W_])|(?<=[a-z])(?= [a-z])")


class Vocabulary:
    """One of splintr's vocabularies, for plain text: it never matches special tokens."""

    def __init__(self, name: str) -> None:
        self.name = name
        source, self._prepare, method = _SOURCES[name]
        tokenizer = _load(source)
        encode: Callable[[str], list[int]] = getattr(tokenizer, method)
        self._encode = functools.partial(_in_blocks, encode) if name in _QUADRATIC else encode
        # Ids as bytes take half the time of ids as a list, but only the encoder that matches special tokens
        # returns bytes. `count` uses that encoder only if the text does not contain the beginning of a
        # special token.
        self._begins = sorted({special[:2] for special in tokenizer.special_tokens()})
        self._bytes: Callable[[str], bytes] | None = None
        if method == "encode_ordinary" and len(self._begins) <= 2:
            self._bytes = tokenizer.encode_flat

    def __repr__(self) -> str:
        return f"Vocabulary({self.name!r})"

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of `text`."""
        return self._encode(self._prepare_text(text))

    def count(self, text: str) -> int:
        """Returns the number of tokens of `text`."""
        if self._prepare is not None or not text.isascii():
            text = self._prepare_text(text)
        if len(text) > _LONG and self.name not in _WHOLE:
            return sum(map(self._count, blocks_of(text)))
        return self._count(text)

    def _count(self, text: str) -> int:
        if self._bytes is None:
            return len(self._encode(text))
        for begin in self._begins:  # any() takes as long as the count of a short text
            if begin in text:
                return len(self._encode(text))
        return len(self._bytes(text)) // _ID_BYTES

    def ready(self) -> None:
        """Makes splintr build now the tables that it otherwise builds at the first unknown word."""
        self._encode("qzxvkjwq")

    def _prepare_text(self, text: str) -> str:
        if not text.isascii():
            text = _without_lone_surrogates(text)
        return text if self._prepare is None else self._prepare(text)


_ID_BYTES = 4


@functools.cache
def vocabulary(name: str) -> Vocabulary | CharacterRule:
    """Returns the vocabulary or character rule of that name. It is loaded once."""
    if name in RULES:
        return RULES[name]
    if name not in _SOURCES:
        known = ", ".join(sorted(VOCABULARIES | RULES.keys()))
        raise ConfigurationError(f"unknown vocabulary {name!r}; use one of {known}")
    return Vocabulary(name)


def _load(source: str) -> Any:
    import splintr  # noqa: PLC0415 - 37 MB of vocabularies; paid by the first count

    return splintr.Tokenizer.from_pretrained(source)


def _in_blocks(encode: Callable[[str], list[int]], text: str) -> list[int]:
    """Returns the tokens of a text that is encoded in blocks, for encoders that need quadratic time.

    A block ends between two words or before the first word of a line, where a cut changes no token. A block
    without such a place is cut anywhere, which may add a token.
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


def blocks_of(text: str) -> Iterator[str]:
    """Yields the blocks of a long text. They end where a cut changes no token, if there is such a place."""
    start = 0
    while len(text) - start > _LONG:
        found = _CUT.search(text, start + _LONG, start + _LONGEST)
        end = min(start + _LONGEST, len(text)) if found is None else found.end()
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _without_lone_surrogates(text: str) -> str:
    """Returns the text as JSON encoders send it: joins surrogate pairs, makes lone surrogates U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
