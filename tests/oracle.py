"""tiktoken as an independent counter, without its downloads.

The rank files that tiktoken would fetch are written from splintr's vocabularies into a temporary cache.
tiktoken checks their sha256, so they are OpenAI's own files, byte for byte.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import splintr
import tiktoken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# encoding → (address of its ranks, which names the cache file; how many ranks it has)
RANKS = {
    "o200k_base": ("https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken", 199_998),
    "cl100k_base": ("https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken", 100_256),
}


@functools.cache
def encoding(name: str) -> tiktoken.Encoding:
    """tiktoken's own encoding of that name."""
    address, size = RANKS[name]
    decode = splintr.Tokenizer.from_pretrained(name).decode_bytes
    lines = (base64.b64encode(decode([rank])) + b" %d\n" % rank for rank in range(size))
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    with tempfile.TemporaryDirectory() as cache:
        Path(cache, hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()).write_bytes(
            b"".join(lines)
        )
        os.environ["TIKTOKEN_CACHE_DIR"] = cache
        try:
            return tiktoken.get_encoding(name)
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before


def count(text: str, name: str = "o200k_base") -> int:
    """The tokens of a text by tiktoken; a special token that is spelled out is plain text."""
    return len(encoding(name).encode_ordinary(text))


def independent_count(messages: Iterable[Mapping[str, Any]], name: str = "o200k_base") -> int:
    """A request of texts and calls by OpenAI's documented rule and tiktoken: no code of ours takes part."""
    total, parallel = 3, False
    for message in messages:
        calls = message.get("tool_calls") or ()
        if message["role"] != "tool":
            parallel = len(calls) > 1
        total += 4 + sum(count(text, name) for text in _texts(message, parallel))
        total += sum(3 + count(call["function"]["name"], name) for call in calls)
    return total


def _texts(message: Mapping[str, Any], parallel: bool) -> Iterator[str]:
    content = message.get("content")
    for part in [content] if isinstance(content, str) else content or ():
        text = part if isinstance(part, str) else part.get("text", "")
        yield _json(text) if parallel and message["role"] == "tool" else text
    if message.get("name") and message["role"] != "tool":
        yield message["name"]
    for call in message.get("tool_calls") or ():
        yield _json(call["function"]["arguments"], (",", ":"))


def _json(text: str, separators: tuple[str, str] | None = None) -> str:
    """JSON as a provider writes it again; anything else as it is."""
    try:
        return json.dumps(json.loads(text), separators=separators, ensure_ascii=False)
    except ValueError:
        return text
