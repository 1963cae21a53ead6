"""Collects the output that background jobs print while no line runs, so that no job blocks."""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

from ullage.terminal.user_terminal import read

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_KEPT = 65_536  # most bytes kept between two command lines


class BackgroundOutput:
    """Reads from the terminals and pipes of jobs while it is on, and keeps the end of what they print."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._fds: set[int] = set()
        self._left: set[int] = set()
        """Outputs of a bash that has ended: they are closed when its last job has ended."""
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None
        self.tell: Callable[[], None] | None = None
        """Called in the reading thread after each new output."""

    def begin(self, fd: int) -> None:
        """Reads from this output, and from those that were left, until `pause` is called."""
        self._fds = {fd}
        self._wake = os.pipe()
        self._thread = threading.Thread(
            target=self._read, args=(self._wake[0],), name="ullage-jobs", daemon=True
        )
        self._thread.start()

    def pause(self) -> None:
        """Stops reading."""
        if self._thread is None or self._wake is None:
            return
        os.close(self._wake[1])
        self._thread.join()
        os.close(self._wake[0])
        self._thread = self._wake = None
        self._fds = set()

    def leave(self, fd: int) -> None:
        """Takes over the output of a bash that has ended."""
        self._left.add(fd)

    def keep(self, data: bytes) -> None:
        """Adds output that was read elsewhere."""
        with self._lock:
            self._kept += data
            del self._kept[:-_MOST_KEPT]

    def take_output(self) -> bytes:
        """Returns the output since the last call; only its end if it is long."""
        with self._lock:
            data, self._kept = bytes(self._kept), bytearray()
        return data

    def take_lines(self) -> bytes:
        """Returns the whole lines of the output since the last call; an unfinished line waits for its end."""
        with self._lock:
            end = self._kept.rfind(b"\n") + 1
            data = bytes(self._kept[:end])
            del self._kept[:end]
        return data

    def close(self) -> None:
        """Stops reading and closes what is open; a job that still writes to it gets an error."""
        self.pause()
        for fd in self._left:
            os.close(fd)
        self._left.clear()

    def _read(self, wake: int) -> None:
        poll = select.poll()
        for fd in (wake, *self._fds, *self._left):
            poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            for fd, event in ready.items():
                if fd == wake:
                    continue
                data = read(fd) if event & (select.POLLIN | select.POLLHUP) else b""
                self.keep(data)
                if data and self.tell is not None:
                    self.tell()
                if not data:
                    poll.unregister(fd)
                    if fd in self._left:
                        self._left.discard(fd)
                        os.close(fd)
            if wake in ready:
                return
