"""Costs that a process had to leave beside the store, until somebody books them."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import store
from ullage.cost.book import Account, Cap, Reservation
from ullage.errors import StoreError
from ullage.store.unbooked import SUFFIX, Unbooked, forget_aside, put_aside, read_aside
from ullage.usage import LedgerEntry

DAY = "2026-11-16"
HERE = Account("one", "gpt-4o", "main", "ullage", DAY)
CAP = Cap("day", DAY, Decimal("1.50"))
any_text = st.text(st.characters(), max_size=20)
entries = st.builds(
    LedgerEntry,
    calls=st.integers(0, 2**60),
    prompt=st.integers(0, 2**60),
    cost=st.none() | st.decimals(0, 10_000, places=12),
)
endings = st.builds(Unbooked, any_text, st.builds(Account, *[any_text] * 5), st.none() | entries)


@given(left=st.lists(endings, max_size=3), holder=st.integers(1, 2**62))
def test_what_is_put_aside_comes_back_as_it_was(left: list[Unbooked], holder: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ullage.db")
        assert read_aside(file, holder) == ()
        assert put_aside(file, holder, left)
        assert read_aside(file, holder) == left
        (made,) = Path(folder).iterdir()
        assert made.stat().st_mode & 0o777 == 0o600
        forget_aside(file, holder)
        forget_aside(file, holder)
        assert list(Path(folder).iterdir()) == []


def left_behind(file: Path, *costs: str) -> None:
    """A store whose holder is gone with these costs put aside, two cents reserved for each."""
    with store.open(file) as kept:
        left = []
        for number, cost in enumerate(costs):
            kept.book.reserve(Reservation(str(number), HERE, Decimal("0.02")), [])
            left.append(Unbooked(str(number), HERE, LedgerEntry(calls=1, cost=Decimal(cost))))
        assert put_aside(file, kept._database.locks.holder, left)


@pytest.mark.parametrize("first", ["reserve", "used", "entries"])
def test_whoever_uses_the_book_next_books_what_was_put_aside_once(tmp_path: Path, first: str) -> None:
    file = tmp_path / "ullage.db"
    left_behind(file, "1.00", "0.25")
    with store.open(file) as kept:
        if first == "reserve":
            call = Reservation("next", HERE, Decimal("0.30"))
            assert kept.book.reserve(call, [CAP]) is not None  # it counts against the cap
        elif first == "used":
            assert kept.book.used("day", DAY) == (Decimal("1.25"), 0)
        ((_, entry),) = kept.book.entries()
        assert (entry.calls, entry.cost) == (2, Decimal("1.25"))
        assert list(tmp_path.glob(f"*{SUFFIX}*")) == []


def test_a_file_that_cannot_be_read_is_told_and_left_and_reading_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "ullage.db"
    left_behind(file, "1.00")
    (aside,) = tmp_path.glob(f"*{SUFFIX}*")
    for damage in (b"", b"{}x", b'[{"names": 1, "entry": null}]', b'[{"names": ["a"], "entry": null}]'):
        aside.write_bytes(damage)
        with store.open(file) as kept:
            with pytest.raises(StoreError, match="delete it and lose these costs"):
                kept.book.reserve(Reservation("next", HERE, Decimal("0.30")), [CAP])
            assert kept.book.used("day", DAY) == (0, Decimal("0.02"))
        assert aside.read_bytes() == damage
    aside.unlink()
    with store.open(file) as kept:
        assert kept.book.reserve(Reservation("next", HERE, Decimal("0.30")), [CAP]) is None
