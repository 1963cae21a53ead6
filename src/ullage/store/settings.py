"""What was learned about endpoints, and what the user prefers: JSON values under names, in SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.store.values import column, read, text_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.store.database import Database


class SqliteShelf:
    """What was learned by (endpoint, model); a change sees what every process before it has learned."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def learned(self, endpoint: str, model: str) -> Mapping[str, Any] | None:
        """What is known; None where nothing is."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT learned FROM calibration WHERE endpoint = ? AND model = ?",
                (column(endpoint), column(model)),
            ).fetchone()
            return None if row is None else dict(read(row[0]))

    def learn(
        self,
        endpoint: str,
        model: str,
        change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """Replaces what is known by `change(what is known)`, as one transaction; gives the new."""
        with self._database.writing() as connection:
            value = dict(change(self.learned(endpoint, model)))
            connection.execute(
                "INSERT OR REPLACE INTO calibration VALUES (?, ?, ?)",
                (column(endpoint), column(model), written(value)),
            )
        return value


class Preferences:
    """What the user set, by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str, default: Any = None) -> Any:
        """What was set, or the default."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT value FROM preferences WHERE name = ?", (column(name),)
            ).fetchone()
            return default if row is None else read(row[0])

    def set(self, name: str, value: Any) -> None:
        """Keeps a JSON value under the name."""
        row = (column(name), written(value))
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO preferences VALUES (?, ?)", row)

    def change(self, name: str, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Replaces what was set, or the default, by `change(it)`, as one transaction; gives the new."""
        with self._database.writing():
            value = change(self.get(name, default))
            self.set(name, value)
        return value

    def all(self) -> Mapping[str, Any]:
        """Everything that was set, in the order of names."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT name, value FROM preferences")
            kept = {text_of(name): read(value) for name, value in rows}
        return dict(sorted(kept.items()))
