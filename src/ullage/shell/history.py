"""The history of input lines, in a file that only its owner can read and that several shells can share."""

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
"""The most hundredths of a second to wait for another shell's lock; then the file is written without it."""

_ENTRY = re.compile(rb"^\+.*(?:\n\+.*)*", re.MULTILINE)


def secure(path: Path) -> None:
    """Creates a file and its folder for the owner alone; an existing file loses the rights of others."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def remembering(path: Path | None, most: int, failed: Callable[[OSError], None]) -> History:
    """Returns a history that is stored in a file, or only in memory if `path` is None.

    It loads the newest `most` inputs. If an input cannot be stored, `failed` is called with the error.
    """
    from prompt_toolkit.history import History  # noqa: PLC0415 - only a terminal pays for it

    class Remembering(History):
        """Remembers every input that does not begin with a blank, as bash can do."""

        def load_history_strings(self) -> Iterable[str]:
            return () if path is None else newest(path, most)

        def append_string(self, string: str) -> None:
            if not string.startswith(" "):
                super().append_string(string)

        def store_string(self, string: str) -> None:
            if path is not None:
                try:
                    keep(path, string)
                except OSError as error:  # the input must run even if the disk is full
                    failed(error)

    return Remembering()


def newest(path: Path, most: int) -> Sequence[str]:
    """Returns the newest `most` inputs of a history, the latest first.

    If the file has over a quarter more inputs than that, it is shortened.
    """
    try:
        entries = _ENTRY.findall(path.read_bytes())
    except OSError:  # the file existed a moment ago; the shell works without it
        return []
    if len(entries) > most + most // 4:
        with suppress(OSError):  # on a full disk the file keeps its length
            _cut(path, most)
    return [_decode_entry(each) for each in reversed(entries[-most:])]


def keep(path: Path, text: str) -> None:
    """Appends an input to a history in one write; safe if another shell shortens the file meanwhile."""
    from datetime import datetime  # noqa: PLC0415 - not needed without a terminal

    lines = "".join(f"+{line}\n" for line in text.split("\n"))
    with _locked(path) as (handle, _):
        os.write(handle, f"\n# {datetime.now()}\n{lines}".encode(errors="replace"))


def _decode_entry(entry: bytes) -> str:
    return entry.decode(errors="replace")[1:].replace("\n+", "\n")


def _cut(path: Path, most: int) -> None:
    """Shortens a history to its newest `most` inputs; does nothing if the file cannot be locked."""
    import tempfile  # noqa: PLC0415 - rarely needed
    from pathlib import Path  # noqa: PLC0415 - rarely needed

    with _locked(path) as (_, is_locked):
        data = path.read_bytes()
        ends = [each.end() for each in _ENTRY.finditer(data)]
        if not is_locked or len(ends) <= most:
            return
        new, name = tempfile.mkstemp(prefix=".history-", dir=path.parent)  # readable by its owner only
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
    """Yields the descriptor of the file, opened to append, and True if this shell holds the lock.

    If another shell replaced the file during the wait, the new file is opened.
    """
    while True:
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            is_locked = _lock(handle)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                yield handle, is_locked
                return
        finally:
            os.close(handle)


def _lock(handle: int) -> bool:
    """Locks a file; returns False if another shell keeps its lock, for example a suspended one."""
    import fcntl  # noqa: PLC0415 - not needed without a terminal
    import time  # noqa: PLC0415 - not needed without a terminal

    for _ in range(LOCKED):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # the file system has no locks: only one shell at a time can use it safely
            return True
        else:
            return True
    return False
