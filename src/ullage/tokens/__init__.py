"""Token counts of texts, messages and whole requests, computed offline."""

from __future__ import annotations

from ullage.tokens.counter import Cost, Counter, counter_for
from ullage.tokens.registry import get_tokenizer, ready, register_tokenizer
from ullage.tokens.remote_tokenizer import RemoteTokenizer, texts_counted, texts_of
from ullage.tokens.request_count import Count, count, count_request
from ullage.tokens.vocabularies import Tokenizer

__all__ = [
    "Cost",
    "Count",
    "Counter",
    "RemoteTokenizer",
    "Tokenizer",
    "count",
    "count_request",
    "counter_for",
    "get_tokenizer",
    "ready",
    "register_tokenizer",
    "texts_counted",
    "texts_of",
]
