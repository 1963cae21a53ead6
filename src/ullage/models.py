"""Windows, output limits and prices of models, in one table.

The table is `models.tsv` beside this module. It has one model per line, sorted by name, so a look-up is a
binary search in the text and never parses the whole file. `scripts/make_models.py` writes it.

A name is looked up as it is, then without its provider (`openai/…`, `us.anthropic.…-v1:0`), then without its
date, then by the longest known name that it begins with, up to a word boundary. The rest of the name must not
look like another version (`claude-opus-4-9` is not `claude-opus-4`). The result for an unknown name is None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError
from ullage.intake import kind_of, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Facts about a model. Prices are in US dollars per token; None if unknown."""

    name: str
    window: int
    """Context window in tokens, shared by input and output if the provider allows that."""
    max_output: int | None = None
    """Most output tokens of one request."""
    max_input: int | None = None
    """Most input tokens, if that is less than the window (gpt-5: 272,000 of 400,000)."""
    input: Decimal | None = None
    output: Decimal | None = None
    cached_read: Decimal | None = None
    """Price of input that is read from the provider's prompt cache."""
    cache_write: Decimal | None = None
    """Price of input that is written to the provider's prompt cache."""
    reasoning: Decimal | None = None
    """Price of reasoning output, if it differs from other output."""


def model_info(model: str | None) -> ModelInfo | None:
    """Returns the facts about this model, or None; never a guess."""
    if model is None:
        return None
    if not isinstance(model, str):
        raise ConfigurationError(f"a model's name must be a string, not {kind_of(model)}")
    name = model.strip().lower()
    registered = _registered.get(name)
    return registered if registered is not None else _look_up(name)


def register_model(info: ModelInfo) -> None:
    """Makes `info` the result for its name, ignoring case; it takes precedence over the table."""
    if not isinstance(info, ModelInfo) or not isinstance(info.name, str):
        raise ConfigurationError(f"register_model needs a ModelInfo with a name, not {kind_of(info)}")
    whole_number(info.window, "window", 1)
    for name in ("max_output", "max_input"):
        if getattr(info, name) is not None:
            whole_number(getattr(info, name), name, 1)
    _registered[info.name.strip().lower()] = info


_registered: dict[str, ModelInfo] = {}

COLUMNS = ("window", "max_input", "max_output", "input", "output", "cached_read", "cache_write", "reasoning")
"""The columns after the name. Prices are in dollars per million tokens; an empty cell means unknown."""

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
    """Returns a model's name in lower case without provider, region and revision."""
    plain = _REGION.sub("", name.strip().lower().rpartition("/")[2])
    short = _REVISION.sub("", _VENDOR.sub("", plain))
    # only Bedrock's names end in a revision that is not part of the model's own name
    if _VENDOR.match(plain):
        short = _LOOSE_REVISION.sub("", short)
    return short.replace("@", "-")


def strip_date(name: str) -> str:
    """Returns a name without its date or a word such as `latest`."""
    return _DATE.sub("", name)


def _variants(name: str) -> Iterator[str]:
    """Yields the name, the name without each leading provider in turn, and the short name."""
    yield name
    rest = name
    while "/" in rest:
        rest = rest.partition("/")[2]
        yield rest
    yield short_name(name)
    yield short_name(name).replace(":", "-")  # Ollama's tags


def _prefixes(name: str) -> Iterator[str]:
    """Yields the beginnings of the name up to each word boundary, longest first; versions stay whole."""
    for boundary in reversed(list(_BOUNDARY.finditer(name))):
        prefix = name[: boundary.start()]
        if _VERSION.match(name, boundary.end()) is None and not prefix.isalpha():
            yield prefix  # a single word (`chat`, `command`) does not identify a model


@lru_cache(maxsize=1024)
def _look_up(name: str) -> ModelInfo | None:
    variants = list(dict.fromkeys(_variants(name)))
    undated = [strip_date(each) for each in variants]
    for ways in (variants, undated, [p for v in variants for p in _prefixes(v)]):
        for way in ways:
            row = _row(way)
            if row is not None:
                return _parse_row(row)
    return None


# The table


@cache
def _table() -> bytes:
    # Same as importlib.resources, without the 15 ms that its import takes.
    loader: Any = __spec__.loader
    text: bytes = loader.get_data(__file__.removesuffix("models.py") + "models.tsv")
    return text[text.rindex(b"\n#") + 1 :]


def _row(name: str) -> bytes | None:
    """Returns the line of this name by binary search over the sorted lines, or None."""
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


def _parse_row(row: bytes) -> ModelInfo:
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
