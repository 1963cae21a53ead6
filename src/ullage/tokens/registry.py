"""Chooses the tokenizer of a model: by its exact name, then by the longest family prefix, then the fallback.

A tokenizer that a caller registered takes precedence over the built-in families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.target import target_of
from ullage.tokens.families import family_of, longest_prefix
from ullage.tokens.vocabularies import Vocabulary, check_tokenizer, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.target import ModelLike
    from ullage.tokens.vocabularies import Tokenizer

_registered: dict[str, Tokenizer] = {}
_watchers: list[Callable[[], object]] = []


def register_tokenizer(family: str, tokenizer: Tokenizer) -> None:
    """Makes `tokenizer` count every model whose name is or begins with `family`."""
    if not isinstance(family, str) or not family:
        raise ConfigurationError(
            "the family is empty or not a string; use a model name or its beginning, such as 'gpt-4o'"
        )
    _registered[family.lower()] = check_tokenizer(tokenizer)
    for watcher in _watchers:
        watcher()


def on_change(watcher: Callable[[], object]) -> None:
    """Calls `watcher` whenever a tokenizer is registered, because remembered counters may be out of date."""
    _watchers.append(watcher)


def find_registered(model: str | None) -> Tokenizer | None:
    """Returns the tokenizer registered for the model or the longest prefix of its name, or None."""
    if not _registered or model is None:
        return None
    best = longest_prefix(model, _registered)
    return None if best is None else _registered[best]


def get_tokenizer(model: ModelLike = None) -> Tokenizer:
    """Returns the tokenizer that counts the texts of `model`; without a model, the fallback's."""
    model = target_of(model).model
    return find_registered(model) or vocabulary(family_of(model).vocabulary)


def ready(model: str | None) -> None:
    """Loads the tokenizer of `model` now, so that the first turn does not wait for it."""
    tokenizer = get_tokenizer(model)
    if isinstance(tokenizer, Vocabulary):
        tokenizer.ready()
