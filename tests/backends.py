"""Every place that can keep a conversation and its bill, so that one suite can be run over all of them."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.postgres import emptied_url
from ullage import store
from ullage.context.journal import MemoryJournal
from ullage.cost.book import MemoryBook
from ullage.tokens.calibration import MemoryShelf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ullage.context.journal import Journal
    from ullage.cost.book import Book
    from ullage.tokens.calibration import Shelf


class Backend(NamedTuple):
    journal: Journal
    book: Book
    calibration: Shelf


@contextlib.contextmanager
def _memory() -> Iterator[Backend]:
    yield Backend(MemoryJournal(), MemoryBook(), MemoryShelf())


@contextlib.contextmanager
def _file_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        yield str(Path(directory, "ullage.db"))


@contextlib.contextmanager
def _memory_url() -> Iterator[str]:
    yield "sqlite://:memory:"


DATABASES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "sqlite": _file_url,
    "sqlite-in-memory": _memory_url,
    "postgres": emptied_url,
}
"""The URL of an empty store in each kind of database, which is gone afterwards."""
LASTING = tuple(name for name in DATABASES if name != "sqlite-in-memory")
"""Those that keep what is in them when they are closed."""


@contextlib.contextmanager
def _opened(url: Callable[[], AbstractContextManager[str]]) -> Iterator[Backend]:
    with url() as place, store.open(place) as kept:
        yield Backend(kept.journal, kept.book, kept.calibration)


BACKENDS: dict[str, Callable[[], AbstractContextManager[Backend]]] = {
    "memory": _memory,
    **{name: functools.partial(_opened, url) for name, url in DATABASES.items()},
}
QUICK = tuple(name for name in BACKENDS if name != "sqlite")
"""Those without a disk, for properties that try many examples; the same code runs on the disk."""
COLUMNS = tuple(DATABASES)
"""Those that keep amounts in columns of a database, which have a largest value and a smallest step."""
