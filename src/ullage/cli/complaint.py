"""Prints messages on standard error, in order with the rest of the output."""

from __future__ import annotations

import sys


def complain(text: str) -> None:
    """Writes one line to standard error, after everything that was printed to standard output before.

    Standard output to a file or a pipe is written in blocks. Without the flush, a message would come before
    earlier output if both go to one file.
    """
    if sys.stdout is not None:  # the caller may have closed it
        sys.stdout.flush()
    sys.stderr.write(f"ullage: {text}\n")
