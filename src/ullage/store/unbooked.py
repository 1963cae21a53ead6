"""A file beside the store with ended reservations that could not be written into it.

A process that must exit while the store is locked writes this file. The next process that finds the first one
gone books its contents. Each reservation ends once, so it does no harm if two processes book the same file.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import orjson

from ullage.cost.book import Account
from ullage.errors import StoreError
from ullage.usage import LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SUFFIX = "-unbooked-"
"""Suffix between the store's file name and the holder's number."""


@dataclass(frozen=True, slots=True)
class Unbooked:
    """The end of a reservation."""

    id: str
    account: Account
    entry: LedgerEntry | None
    """Usage of the call; None for a call that was not made."""
    tokens: int = 0
    """Tokens that count against caps."""


def put_aside(store: Path | None, holder: int, endings: Sequence[Unbooked]) -> bool:
    """Writes the ended reservations into a file beside the store; returns False if that fails."""
    if store is None:
        return False
    path = _path(store, holder)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as written:
            written.write(orjson.dumps([_plain(each) for each in endings]))
            written.flush()
            os.fsync(written.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        return False
    return True


def read_aside(store: Path | None, holder: int) -> Sequence[Unbooked]:
    """Returns the ended reservations of a process that is gone; empty if it closed the store properly."""
    if store is None:
        return ()
    path = _path(store, holder)
    try:
        return [_read(each) for each in orjson.loads(path.read_bytes())]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}. It contains costs of calls that are not booked yet: "
            "make it readable, or delete it and lose these costs"
        ) from error


def forget_aside(store: Path | None, holder: int) -> None:
    """Removes the file after its contents are booked."""
    if store is not None:
        with contextlib.suppress(OSError):  # its contents are booked only once, so it does no harm
            _path(store, holder).unlink(missing_ok=True)


def _path(store: Path, holder: int) -> Path:
    return store.with_name(f"{store.name}{SUFFIX}{holder:x}")


def _plain(ending: Unbooked) -> dict[str, object]:
    entry = None if ending.entry is None else asdict(ending.entry)
    if entry is not None and entry["cost"] is not None:
        entry["cost"] = str(entry["cost"])
    # Names may contain lone surrogates, which UTF-8 cannot encode.
    names = [_escape_text(name) for name in (ending.id, *ending.account)]
    return {"names": names, "entry": entry, "tokens": ending.tokens}


def _read(plain: dict[str, object]) -> Unbooked:
    names, entry, tokens = plain["names"], plain["entry"], plain.get("tokens", 0)
    if not (isinstance(names, list) and isinstance(tokens, int) and isinstance(entry, dict | None)):
        raise TypeError("Ullage did not write it")
    if entry is not None and entry["cost"] is not None:
        entry = {**entry, "cost": Decimal(entry["cost"])}
    name, *account = (each.encode().decode("unicode_escape") for each in names)
    return Unbooked(name, Account(*account), None if entry is None else LedgerEntry(**entry), tokens)


def _escape_text(text: str) -> str:
    return text.encode("unicode_escape").decode()
