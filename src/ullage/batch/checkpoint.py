"""The checkpoint of a run: how far it has come, on disk, so that a killed run can go on."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.batch.chunk import START, InputPosition
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.batch.job import Job
    from ullage.batch.source import Source


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The results up to `position` are on disk."""

    key: str
    """Identifies the job, its input and this version; a run goes on only if all of them are the same."""
    position: InputPosition = START
    size: int = 0
    """Bytes of the results of the current file."""
    requests: int = 0
    problems: Mapping[str, int] = field(default_factory=dict)
    """Number of bad requests, by class of error."""

    def after(self, position: InputPosition, size: int, problems: Sequence[str], requests: int) -> Checkpoint:
        """Returns the checkpoint after more requests, some of them with problems."""
        counted = dict(self.problems)
        for problem in problems:
            counted[problem] = counted.get(problem, 0) + 1
        return replace(
            self, position=position, size=size, requests=self.requests + requests, problems=counted
        )


def key_of(job: Job, sources: Sequence[Source]) -> str:
    """Returns the key of a job on these files; a changed file has another key."""
    files = [(source.path, source.size, Path(source.path).stat().st_mtime_ns) for source in sources]
    options: dict[str, Any] = asdict(job)
    text = json.dumps([version("ullage"), options, files], sort_keys=True, default=_as_text)
    return hashlib.sha256(text.encode()).hexdigest()


def _as_text(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset | set) else repr(value)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replaces the checkpoint on disk, as a whole."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w", encoding="utf-8") as stream:
        json.dump(asdict(checkpoint), stream)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(path)


def load_checkpoint(path: Path, key: str) -> Checkpoint | None:
    """Returns the checkpoint of an unfinished run; None if there is none.

    Raises ConfigurationError if it belongs to another job or to other files.
    """
    try:
        saved = json.loads(path.read_text("utf-8"))
        found = Checkpoint(**{**saved, "position": InputPosition(*saved["position"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise ConfigurationError(f"{path} is damaged. Delete it to start from the beginning") from None
    if found.key != key:
        raise ConfigurationError(
            f"{path} belongs to a run with other options, other files or another version. "
            "Repeat that run, or delete the checkpoint to start from the beginning"
        )
    return found
