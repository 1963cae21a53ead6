"""Ends a test process that no longer runs Python code.

pytest-timeout needs the interpreter to end a test: it cannot end one in C code that holds the interpreter's
lock, or one whose event loop waits for a thread. The watchdog is a thread of C code. It prints the stack of
every thread and ends the process; pytest-xdist then names the test and runs the others in a new process.
"""

from __future__ import annotations

import faulthandler
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE = 60.0
"""Seconds that pytest-timeout has to end a test by itself."""

_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the real standard error, before the output of tests is captured."""
    config.stash[_stderr] = os.dup(2)
    config.add_cleanup(lambda: os.close(config.stash[_stderr]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watches a test and its fixtures from the beginning to the end."""
    seconds = _time_limit(item)
    if not seconds:
        return (yield)
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _time_limit(item: pytest.Item) -> float:
    """Returns the seconds that pytest-timeout gives the test; 0 if it sets no limit."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker and marker.args else item.config.getini("timeout") or 0)
