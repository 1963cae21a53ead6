"""The memory for the bodies of requests: the large ones under way share a fixed number of bytes.

A small body may become a large one when it is decompressed, so clients could fill the memory cheaply.
"""

from __future__ import annotations

from ullage.gateway.refusals import Refused

SMALL = 1024 * 1024
"""Bytes of a body up to which it is not counted."""
MOST_UNDER_WAY = 512 * 1024 * 1024
"""Most bytes of all larger bodies whose requests are under way."""


class BodyRoom:
    """The bytes of the large bodies under way."""

    def __init__(self) -> None:
        self.used = 0

    def change(self, held: int, size: int) -> int:
        """Returns what a request holds now that its body has `size` bytes; refuses it without room."""
        wanted = size if size > SMALL else 0
        if wanted > held and self.used + wanted - held > MOST_UNDER_WAY:
            raise Refused(
                "busy",
                f"large requests of {MOST_UNDER_WAY:,} bytes together are under way: try again in a moment",
            )
        self.used += wanted - held
        return wanted
