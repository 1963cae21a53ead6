"""The user's saved choices: one row for each, with its name in the store and its type.

The store keeps JSON values. A value of another form, from a person or an older version, reads as the default.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ullage.store.settings import PreferenceStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Preference(Generic[T]):
    """One saved choice."""

    name: str
    default: T
    from_json: Callable[[Any], T]
    """Converts a stored value; returns the default if it has another form."""
    to_json: Callable[[T], Any]

    def get(self, preferences: PreferenceStore) -> T:
        """Returns the saved value, or the default."""
        stored = preferences.get(self.name)
        return self.default if stored is None else self.from_json(stored)

    def set(self, preferences: PreferenceStore, value: T) -> None:
        """Saves a value."""
        preferences.set(self.name, self.to_json(value))

    def update(self, preferences: PreferenceStore, change: Callable[[T], T]) -> T:
        """Replaces the saved value by `change(value)` as one transaction, and returns the new value."""

        def in_json(stored: Any) -> Any:
            return self.to_json(change(self.default if stored is None else self.from_json(stored)))

        return self.from_json(preferences.change(self.name, in_json))


@dataclass(frozen=True, slots=True)
class TreeChoice:
    """The last `:tree` command in a folder."""

    depth: int | None = None
    """None for the configured depth."""
    off: bool = False


class Allowance(NamedTuple):
    """One command or tool that runs without asking the user."""

    number: int
    """Its number in `:always forget NUMBER`; one more than the highest number in use."""
    kind: str
    """`allowances.COMMAND` or `allowances.TOOL`."""
    text: str
    """The command line, or the name of the tool."""
    origin: str
    """The folder of the command, or the command or address of the tool's server."""
    project: str = ""
    """The root of the repository that the folder belongs to, or the folder itself."""


def _text(stored: Any) -> str | None:
    return stored if isinstance(stored, str) else None


def _trees(stored: Any) -> Mapping[str, TreeChoice]:
    folders = stored if isinstance(stored, dict) else {}
    return {folder: _tree(choice) for folder, choice in folders.items() if isinstance(choice, dict)}


def _tree(choice: Mapping[str, Any]) -> TreeChoice:
    depth = choice.get("depth")
    return TreeChoice(depth if isinstance(depth, int) else None, bool(choice.get("off")))


def _allowances(stored: Any) -> tuple[Allowance, ...]:
    return tuple(
        Allowance(row[0], *map(str, row[1:]))
        for row in (stored if isinstance(stored, list) else ())
        if isinstance(row, list) and len(row) == len(Allowance._fields) and isinstance(row[0], int)
    )


def _folders(stored: Any) -> Mapping[str, str]:
    given = stored if isinstance(stored, dict) else {}
    return {session: folder for session, folder in given.items() if isinstance(folder, str)}


CHOSEN_MODEL: Preference[str | None] = Preference("model", None, _text, lambda name: name)
"""The model that was chosen last; None for the configured one."""
ROLLING_CONTEXT: Preference[bool | None] = Preference("rolling-context", None, bool, lambda on: on)
"""False if a request that does not fit is an error; None for the configured behaviour."""
PROJECT_TREES: Preference[Mapping[str, TreeChoice]] = Preference(
    "trees", {}, _trees, lambda trees: {folder: asdict(choice) for folder, choice in trees.items()}
)
"""The last `:tree` command, by folder."""
FOLDERS: Preference[Mapping[str, str]] = Preference("folders", {}, _folders, dict)
"""The folder in which a conversation was last continued, by its name; the latest is the last."""
ALLOWANCES: Preference[tuple[Allowance, ...]] = Preference(
    "always", (), _allowances, lambda rows: [list(row) for row in rows]
)
"""Commands and tools that run without asking the user."""


def make_trust_preference(path: Path) -> Preference[str | None]:
    """Returns the preference with the SHA-256 of a project file's trusted content; None if not trusted."""
    return Preference(f"trusted:{path}", None, _text, lambda sha256: sha256)
