"""Calibration by target, and the user's preferences: JSON values under names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.store.connection import CALIBRATION, PREFERENCES
from ullage.store.values import column, encode_value, read, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.store.connection import Database
    from ullage.target import Target


class StoredShelf:
    """The figures that calibration learned, by target; each change builds on those of all processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def learned(self, target: Target) -> Mapping[str, Any] | None:
        """Returns the learned requests, or None if there are none."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT learned FROM calibration WHERE endpoint = ? AND model = ? AND api = ?", _key(target)
            ).fetchone()
            return None if row is None else dict(read(row[0]))

    def learn(
        self, target: Target, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Stores `change(stored value)` in one transaction, and returns the new value."""
        with self._database.writing(CALIBRATION) as connection:
            value = dict(change(self.learned(target)))
            connection.execute(
                "INSERT INTO calibration (endpoint, model, api, learned) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (endpoint, model, api) DO UPDATE SET learned = excluded.learned",
                (*_key(target), encode_value(value)),
            )
        return value


def _key(target: Target) -> tuple[Any, Any, Any]:
    """Returns the columns that name a target; an unknown name is empty."""
    return column(target.endpoint), column(target.model or ""), column(target.api or "")


class PreferenceStore:
    """The user's settings, by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the value of this name, or the default."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT value FROM preferences WHERE name = ?", (column(name),)
            ).fetchone()
            return default if row is None else read(row[0])

    def set(self, name: str, value: Any) -> None:
        """Stores a JSON value under the name."""
        row = (column(name), encode_value(value))
        with self._database.writing(PREFERENCES) as connection:
            connection.execute(
                "INSERT INTO preferences (name, value) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                row,
            )

    def change(self, name: str, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Stores `change(value or default)` in one transaction, and returns the new value."""
        with self._database.writing(PREFERENCES):
            value = change(self.get(name, default))
            self.set(name, value)
        return value

    def all(self) -> Mapping[str, Any]:
        """Returns all values, sorted by name."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name, value FROM preferences")
            kept = {text_of(name): read(value) for name, value in rows}
        return dict(sorted(kept.items()))
