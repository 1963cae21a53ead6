"""What was typed, kept for the next time in a file that only its owner can read; shells may share it."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from prompt_toolkit.history import History

LOCKED = 100
"""Hundredths of a second until a file that another shell holds is written to all the same."""

_ENTRY = re.compile(rb"^\+.*(?:\n\+.*)*", re.MULTILINE)


def secure(path: Path) -> None:
    """Makes a file that only its owner may read, and its folder; one that is there already is tightened."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def remembering(path: Path | None, most: int, failed: Callable[[OSError], None]) -> History:
    """What was typed, in a file or only for as long as the shell is open; `failed` hears what is not kept."""
    from prompt_toolkit.history import History  # noqa: PLC0415 - only a terminal pays for it

    class Remembering(History):
        """Remembers what does not begin with a blank, as shells do."""

        def load_history_strings(self) -> Iterable[str]:
            return () if path is None else newest(path, most)

        def append_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().append_string(string)

        def store_string(self, string: str) -> None:
            if path is not None:
                try:
                    keep(path, string)
                except OSError as error:  # a full disk is no reason to lose what was typed
                    failed(error)

    return Remembering()


def newest(path: Path, most: int) -> Sequence[str]:
    """The last inputs in a history, the latest first; a file that is a quarter too long is cut to them."""
    try:
        entries = _ENTRY.findall(path.read_bytes())
    except OSError:  # it was there a moment ago; one can type without it
        return []
    if len(entries) > most + most // 4:
        with suppress(OSError):  # on a full disk it stays as long as it is
            _cut(path, most)
    return [_typed(each) for each in reversed(entries[-most:])]


def keep(path: Path, text: str) -> None:
    """Adds an input to a history, as one piece, also where another shell is just cutting the file."""
    from datetime import datetime  # noqa: PLC0415 - a pipe does without

    lines = "".join(f"+{line}\n" for line in text.split("\n"))
    with _locked(path) as (handle, _):
        os.write(handle, f"\n# {datetime.now()}\n{lines}".encode(errors="replace"))


def _typed(entry: bytes) -> str:
    return entry.decode(errors="replace")[1:].replace("\n+", "\n")


def _cut(path: Path, most: int) -> None:
    import tempfile  # noqa: PLC0415 - hardly ever needed
    from pathlib import Path  # noqa: PLC0415 - the same

    with _locked(path) as (_, held):
        data = path.read_bytes()
        ends = [each.end() for each in _ENTRY.finditer(data)]
        if not held or len(ends) <= most:
            return
        new, name = tempfile.mkstemp(prefix=".history-", dir=path.parent)  # for its owner only
        made = Path(name)
        try:
            with os.fdopen(new, "wb") as file:
                file.write(data[ends[-most - 1] :])
                file.flush()
                os.fsync(new)
            made.replace(path)
        except BaseException:
            made.unlink()
            raise


@contextmanager
def _locked(path: Path) -> Iterator[tuple[int, bool]]:
    """The file, to be added to, and whether other shells wait meanwhile.

    One that waited for a shell that put another file in its place opens that one.
    """
    while True:
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            held = _is_held(handle)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                yield handle, held
                return
        finally:
            os.close(handle)


def _is_held(handle: int) -> bool:
    """Locks a file; False where another shell keeps it locked, such as one that was stopped just then."""
    import fcntl  # noqa: PLC0415 - a pipe does without
    import time  # noqa: PLC0415 - the same

    for _ in range(LOCKED):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # a file system without locks: one shell at a time is all that it is safe for
            return True
        else:
            return True
    return False
