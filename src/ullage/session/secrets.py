"""Masks what looks like a secret in a text before a model gets it: keys, tokens and passwords.

The table `secrets.toml` has a row for each kind. The whole text stays in memory for the user, and is never
written to the store, so neither the model's recall tool nor another program finds it there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ullage.fitting.pieces import HANDLE_LENGTH, letters_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MASK = "<masked: {}>"
"""The text that a model gets in place of a secret."""
MOST_KEPT = 50
"""The most masked texts that are kept in memory; the oldest is forgotten first."""


class SecretKind(NamedTuple):
    """One row of the table."""

    name: str
    words: Sequence[str]
    """The pattern is tried only if the text contains one of these words, in lower case."""
    pattern: re.Pattern[str]
    """A group whose name begins with `secret` is masked; without such a group, the whole match."""
    entropy: float
    """The least bits for each character of the secret; 0 if the pattern alone decides."""


class MaskedText(NamedTuple):
    """A text without its secrets."""

    text: str
    found: Mapping[str, int]
    """Kind of secret → the number of masks."""


def mask(text: str) -> MaskedText:
    """Returns the text with a mask in place of each secret, and the kinds of secrets that were found."""
    lowered = text.lower()
    found: Counter[str] = Counter()
    for kind in _kinds():
        if not any(word in lowered for word in kind.words):
            continue
        spans = list(_spans(kind, text))
        if spans:
            found[kind.name] += len(spans)
            text = _without(text, spans, MASK.format(kind.name))
            lowered = text.lower()
    return MaskedText(text, dict(found))


def entropy(text: str) -> float:
    """Returns the Shannon entropy of a text in bits for each character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _spans(kind: SecretKind, text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each secret of a kind."""
    named = [name for name in kind.pattern.groupindex if name.startswith("secret")]
    groups: Sequence[str | int] = named or [0]
    for match in kind.pattern.finditer(text):
        for group in groups:
            secret = match[group]
            if secret and not secret.startswith("<masked") and _is_random(secret, kind.entropy):
                yield match.span(group)


def _is_random(secret: str, least: float) -> bool:
    """Returns True if a text is as random as a secret; a plain word or a path is not."""
    if not least:
        return True
    is_plain = least > 3 and not (re.search(r"\d", secret) and re.search(r"[A-Za-z]", secret))
    return not is_plain and entropy(secret) >= least


def _without(text: str, spans: Sequence[tuple[int, int]], put: str) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], put]
        at = end
    return "".join([*parts, text[at:]])


@cache
def _kinds() -> Sequence[SecretKind]:
    import tomllib  # noqa: PLC0415 - read at the first text only
    from importlib.resources import files  # noqa: PLC0415 - see above

    rows = tomllib.loads(files("ullage.session").joinpath("secrets.toml").read_text("utf-8"))["secret"]
    return [
        SecretKind(row["name"], row["words"], re.compile(row["pattern"]), row.get("entropy", 0.0))
        for row in rows
    ]


@dataclass(slots=True)
class SecretKeeper:
    """Masks texts, and keeps the whole ones in memory for the user until the program ends."""

    enabled: bool = True
    _whole: dict[str, str] = field(default_factory=dict)

    def mask(self, text: str) -> tuple[str, str]:
        """Returns the masked text, and a notice for the user; the notice is empty if nothing was masked."""
        if not self.enabled:
            return text, ""
        masked = mask(text)
        if not masked.found:
            return text, ""
        handle = letters_of(text)[:HANDLE_LENGTH]
        self._whole.pop(handle, None)
        self._whole[handle] = text
        while len(self._whole) > MOST_KEPT:
            del self._whole[next(iter(self._whole))]
        number = sum(masked.found.values())
        secrets = "1 secret is" if number == 1 else f"{number:,} secrets are"
        kinds = ", ".join(masked.found)
        return masked.text, f"{secrets} masked for the model ({kinds}); :recall {handle} shows you the text"

    def recall(self, handle: str) -> str | None:
        """Returns the whole text with this handle; None if there is none."""
        return next((text for own, text in self._whole.items() if handle and own == handle.lower()), None)
