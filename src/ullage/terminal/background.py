"""Collects the output that background jobs print after their command line has ended."""

from __future__ import annotations

import os
import select
import threading

from ullage.terminal.child import read

_TICK = 250  # milliseconds between two checks whether reading has been stopped
_MOST_KEPT = 65_536  # most bytes kept between two command lines


class BackgroundOutput:
    """Reads on from terminals and pipes that background jobs write to, so that no job blocks or fails."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._closed = False

    def add(self, fd: int) -> None:
        """Reads a file descriptor to its end, and then closes it."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        # Nothing has it open, which is the usual case
        if any(event & select.POLLHUP for _, event in poll.poll(0)):
            os.close(fd)
            return
        threading.Thread(target=self._read, args=(fd,), name="ullage-jobs", daemon=True).start()

    def printed(self) -> bytes:
        """Returns the output of background jobs since the last call; only its end if it is long."""
        with self._lock:
            data, self._kept = bytes(self._kept), bytearray()
        return data

    def close(self) -> None:
        """Stops reading; a job that still writes to the terminal gets an error."""
        self._closed = True

    def _read(self, fd: int) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while not self._closed:
            if not poll.poll(_TICK):
                continue
            data = read(fd)
            if not data:
                break
            with self._lock:
                self._kept += data
                del self._kept[:-_MOST_KEPT]
        os.close(fd)
