"""Sums of entries: of tokens all, of costs what is known."""

from __future__ import annotations

from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING

from ullage.cost.book import Entry
from ullage.usage import add_money

if TYPE_CHECKING:
    from collections.abc import Iterable

_COUNTS = tuple(field.name for field in fields(Entry) if field.name != "cost")


def add(one: Entry, other: Entry) -> Entry:
    """Both entries as one."""
    counts = {name: getattr(one, name) + getattr(other, name) for name in _COUNTS}
    return Entry(**counts, cost=add_money(one.cost, other.cost))


def total(entries: Iterable[Entry]) -> Entry:
    """All entries as one; an empty one where there are none."""
    return reduce(add, entries, Entry())
