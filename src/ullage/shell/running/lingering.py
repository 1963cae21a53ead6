"""What background jobs print after their line has ended."""

from __future__ import annotations

import os
import select
import threading

from ullage.shell.running.terminal import read

_TICK = 250  # milliseconds between two looks at whether it is over
_MOST_KEPT = 65_536  # bytes of what is printed between two lines


class Lingering:
    """Terminals and pipes that background jobs still write to: read on, so that no job blocks or fails."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._closed = False

    def add(self, fd: int) -> None:
        """Read a descriptor to its end, which closes it."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if any(event & select.POLLHUP for _, event in poll.poll(0)):  # nothing has it open: the usual case
            os.close(fd)
            return
        threading.Thread(target=self._read, args=(fd,), name="ullage-jobs", daemon=True).start()

    def printed(self) -> bytes:
        """What background jobs have printed since it was last asked, its end if it is much."""
        with self._lock:
            data, self._kept = bytes(self._kept), bytearray()
        return data

    def close(self) -> None:
        """Stop reading; jobs that go on writing to the terminal get an error."""
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
