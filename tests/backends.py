"""Every place that can keep a conversation and its bill, so that one suite can be run over all of them."""

from __future__ import annotations

import contextlib
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
def _sqlite() -> Iterator[Backend]:
    with (
        tempfile.TemporaryDirectory() as directory,
        store.open(Path(directory, "ullage.db")) as kept,
    ):
        yield Backend(kept.journal, kept.book, kept.calibration)


@contextlib.contextmanager
def _sqlite_in_memory() -> Iterator[Backend]:
    with store.open("sqlite://:memory:") as kept:
        yield Backend(kept.journal, kept.book, kept.calibration)


@contextlib.contextmanager
def _postgres() -> Iterator[Backend]:
    with emptied_url() as url, store.open(url) as kept:
        yield Backend(kept.journal, kept.book, kept.calibration)


BACKENDS: dict[str, Callable[[], AbstractContextManager[Backend]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "sqlite-in-memory": _sqlite_in_memory,
    "postgres": _postgres,
}
QUICK = tuple(name for name in BACKENDS if name != "sqlite")
"""Those without a disk, for properties that try many examples; the same code runs on the disk."""
COLUMNS = ("sqlite", "sqlite-in-memory", "postgres")
"""Those that keep amounts in columns of a database, which have a largest value and a smallest step."""
