"""Windows, output limits and prices of models: one table, looked up by name.

The table is `models.tsv` beside this module, one model a line, sorted by name, so that a look-up
is a binary search in the text and never a parse of the whole. `scripts/make_models.py` makes it.

A name is sought as it is, then without its provider (`openai/…`, `us.anthropic.…-v1:0`), then
without its date, then by the longest known name that it begins with, up to a word boundary; what
is left over must not look like another version (`claude-opus-4-9` is not `claude-opus-4`). What
is not found is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What is known of a model; a price is in US dollars a token, None where it is not known."""

    name: str
    window: int
    """The context window: what input and output share, where the provider lets them share it."""
    max_output: int | None = None
    """The most output tokens of one request."""
    max_input: int | None = None
    """The most input tokens, where that is less than the window (gpt-5: 272,000 of 400,000)."""
    input: Decimal | None = None
    output: Decimal | None = None
    cached_read: Decimal | None = None
    """Input that is read from the provider's prompt cache."""
    cache_write: Decimal | None = None
    """Input that is written to the provider's prompt cache."""
    reasoning: Decimal | None = None
    """Output that is reasoning, where it has a price of its own."""


def model_info(model: str) -> ModelInfo | None:
    """What is known of this model, or None; never a guess."""
    name = model.strip().lower()
    registered = _registered.get(name)
    return registered if registered is not None else _looked_up(name)


def register_model(info: ModelInfo) -> None:
    """Makes `info` the answer for its name, in any case of letters, over whatever the table says."""
    _registered[info.name.strip().lower()] = info


_registered: dict[str, ModelInfo] = {}

COLUMNS = ("window", "max_input", "max_output", "input", "output", "cached_read", "cache_write", "reasoning")
"""The columns behind the name; prices stand in dollars a million tokens, nothing means unknown."""

# Names


_REGION = re.compile(r"^(?:us|us-gov|eu|apac|ap|global|jp|au|ca|sa|uk|me|af)\.(?=[a-z])")
_VENDOR = re.compile(
    r"^(?:anthropic|amazon|ai21|cohere|deepseek|google|meta|minimax|mistral|moonshot|moonshotai|nvidia|openai|"
    r"qwen|writer|xai|zai|twelvelabs)\.(?=[a-z])"
)
_REVISION = re.compile(r"(?<!claude)(?<!claude-instant)-v\d+:\d+(?::\d+k)?$|:\d+(?::\d+k)?$")
_LOOSE_REVISION = re.compile(r"(?<!claude)(?<!claude-instant)-v\d+$")
_DATE = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest|default)|:(?:latest|free|beta|nitro))$")
_VERSION = re.compile(r"\d{1,2}(?:[^0-9a-z]|$)")
_BOUNDARY = re.compile(r"[-:@_]")


def short_name(name: str) -> str:
    """A model's name in lower case without provider, region and revision."""
    plain = _REGION.sub("", name.strip().lower().rpartition("/")[2])
    short = _REVISION.sub("", _VENDOR.sub("", plain))
    if _VENDOR.match(plain):  # only Bedrock's names end in a revision that is not the model's own
        short = _LOOSE_REVISION.sub("", short)
    return short.replace("@", "-")


def undated(name: str) -> str:
    """A name without its date or the word that stands for the newest."""
    return _DATE.sub("", name)


def _variants(name: str) -> Iterator[str]:
    """The name, without each provider before it in turn, and in its short form."""
    yield name
    rest = name
    while "/" in rest:
        rest = rest.partition("/")[2]
        yield rest
    yield short_name(name)
    yield short_name(name).replace(":", "-")  # Ollama's tags


def _prefixes(name: str) -> Iterator[str]:
    """What the name begins with up to each word boundary, longest first, versions not taken apart."""
    for boundary in reversed(list(_BOUNDARY.finditer(name))):
        prefix = name[: boundary.start()]
        if _VERSION.match(name, boundary.end()) is None and not prefix.isalpha():
            yield prefix  # a bare word (`chat`, `command`) says too little of what follows it


@lru_cache(maxsize=1024)
def _looked_up(name: str) -> ModelInfo | None:
    variants = list(dict.fromkeys(_variants(name)))
    for ways in (variants, [undated(each) for each in variants], [p for v in variants for p in _prefixes(v)]):
        for way in ways:
            row = _row(way)
            if row is not None:
                return _parsed(row)
    return None


# The table


@cache
def _table() -> bytes:
    # what importlib.resources does in the end, without the 15 ms that importing it takes
    loader: Any = __spec__.loader
    text: bytes = loader.get_data(__file__.removesuffix("models.py") + "models.tsv")
    return text[text.rindex(b"\n#") + 1 :]


def _row(name: str) -> bytes | None:
    """The line of this name, by binary search over the sorted lines."""
    table, key = _table(), name.encode("utf-8", "replace")
    low, high = table.index(b"\n") + 1, len(table)
    while low < high:
        start = table.rfind(b"\n", low, (low + high) // 2) + 1 or low
        end = table.index(b"\n", start)
        found = table[start : table.index(b"\t", start)]
        if found == key:
            return table[start:end]
        if found < key:
            low = end + 1
        else:
            high = start
    return None


def _parsed(row: bytes) -> ModelInfo:
    from decimal import Decimal  # noqa: PLC0415 - only a look-up pays for it

    name, *cells = row.decode().split("\t")
    window, max_input, max_output, *prices = cells
    priced = [Decimal(price).scaleb(-6) if price else None for price in prices]
    return ModelInfo(
        name=name,
        window=int(window),
        max_input=int(max_input) if max_input else None,
        max_output=int(max_output) if max_output else None,
        input=priced[0],
        output=priced[1],
        cached_read=priced[2],
        cache_write=priced[3],
        reasoning=priced[4],
    )
