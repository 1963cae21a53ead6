"""Which tokenizer a model uses: its exact name first, then the longest family prefix, then the fallback.

What a caller registered comes before the built-in families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.tokens.families import family_of, longest_prefix
from ullage.tokens.vocabularies import Tokenizer, Vocabulary, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

_registered: dict[str, Tokenizer] = {}
_watchers: list[Callable[[], object]] = []


def register_tokenizer(family: str, tokenizer: Tokenizer) -> None:
    """Count models whose name is or begins with `family` by `tokenizer` from now on."""
    if not isinstance(family, str) or not family:
        raise ConfigurationError("a family is a name or the beginning of one, such as 'gpt-4o'")
    if not isinstance(tokenizer, Tokenizer) or not callable(tokenizer.count):
        raise ConfigurationError(f"a tokenizer has a name and a count(text), {tokenizer!r} has not")
    _registered[family.lower()] = tokenizer
    for watcher in _watchers:
        watcher()


def on_change(watcher: Callable[[], object]) -> None:
    """Call `watcher` whenever a tokenizer is registered: what it remembers of a model may be stale."""
    _watchers.append(watcher)


def registered(model: str) -> Tokenizer | None:
    """The tokenizer registered for the model, or for the longest prefix of its name."""
    if not _registered:
        return None
    best = longest_prefix(model, _registered)
    return None if best is None else _registered[best]


def get_tokenizer(model: str) -> Tokenizer:
    """The tokenizer that counts the texts of `model`."""
    return registered(model) or vocabulary(family_of(model).vocabulary)


def ready(model: str) -> None:
    """Loads the tokenizer of `model` now, rather than in the middle of a conversation."""
    tokenizer = get_tokenizer(model)
    if isinstance(tokenizer, Vocabulary):
        tokenizer.ready()
