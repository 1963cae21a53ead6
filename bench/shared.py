"""Where the scorers and the recorded data are, and what to say where they are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


class AbsentError(Exception):
    """Something outside the repository that a table needs is not there."""


def scorer(name: str) -> Path:
    """A script of ULLAGE_BENCH."""
    return _found("ULLAGE_BENCH", name)


def data(name: str) -> Path:
    """A file of ULLAGE_DATA."""
    return _found("ULLAGE_DATA", name)


def run(*command: object, **environment: str) -> str:
    """What a script prints, run by this Python from the repository's root."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parent.parent,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _found(variable: str, name: str) -> Path:
    folder = os.environ.get(variable)
    if not folder:
        raise AbsentError(f"{variable} is not set: it names the folder that has {name}")
    path = Path(folder, name).resolve()
    if not path.exists():
        raise AbsentError(f"{path.name} is not in {variable}")
    return path
