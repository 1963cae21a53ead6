"""What texts, messages and whole requests cost, counted offline."""

from __future__ import annotations

from ullage.tokens.counter import Cost, Counter, counter_for, counter_with
from ullage.tokens.counting import Count, count, count_request
from ullage.tokens.registry import get_tokenizer, ready, register_tokenizer
from ullage.tokens.vocabularies import Tokenizer

__all__ = [
    "Cost",
    "Count",
    "Counter",
    "Tokenizer",
    "count",
    "count_request",
    "counter_for",
    "counter_with",
    "get_tokenizer",
    "ready",
    "register_tokenizer",
]
