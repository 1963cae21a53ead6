"""Trust in a project's `.ullage.toml`: its content is read only after the user has approved it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.config import load
from ullage.session.preferences import make_trust_preference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ullage.config import Settings
    from ullage.store.settings import PreferenceStore


def trust_in(preferences: PreferenceStore) -> Callable[[Path, str], bool]:
    """Returns a function for `load` that returns True if a file with this content is trusted."""
    return lambda path, sha256: make_trust_preference(path).get(preferences) == sha256


def trust(preferences: PreferenceStore, path: Path, sha256: str | None) -> None:
    """Saves that a file with this content is trusted; None withdraws the trust."""
    make_trust_preference(path).set(preferences, sha256)


def load_trusted(
    path: str | Path | None, preferences: PreferenceStore, environ: Mapping[str, str], cwd: Path
) -> Settings:
    """Returns the settings for a folder, with the project's file if the user trusts it."""
    return load(path, environ=environ, cwd=cwd, trusted=trust_in(preferences))
