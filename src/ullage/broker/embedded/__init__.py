"""The model in this process: SmolLM2-135M-Instruct, or any GGUF file, run by llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.broker.embedded.provider import EmbeddedProvider
from ullage.broker.embedded.vocabulary import ChatTokenizer, GgufTokenizer, tokenizer_of
from ullage.broker.embedded.weights import find
from ullage.tokens import register_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ChatTokenizer",
    "EmbeddedProvider",
    "GgufTokenizer",
    "count_exactly",
    "find",
    "tokenizer_of",
]


def count_exactly(path: Path | None = None) -> bool:
    """Counts SmolLM2 with its own vocabulary from now on; returns False if its file is missing."""
    found = find(path)
    if found is None:
        return False
    register_tokenizer("smollm2", ChatTokenizer(tokenizer_of(found)))
    return True
