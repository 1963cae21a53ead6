"""Learns the constant that a server charges beyond the texts it counted itself: framing and template.

`Calibration` learns a scale and a constant for our own estimates. The server's own counts of texts need no
scale. With a scale, a template of a hundred tokens in a short request would be expected many times over in a
long one.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import TYPE_CHECKING

from ullage.tokens.calibration import FEW, MOST, REFUSED, Factor

if TYPE_CHECKING:
    from ullage.tokens.counter import Cost

RECENT = 32
"""Number of requests in memory."""
SLACK, SHARE = 8, 8
"""The ceiling allows for `SLACK` more tokens of framing, or for the surplus divided by `SHARE` if that is
more. So the history need not be read again for each message that adds a token."""
BELIEVED = 3, 2_000
"""Highest usage that is accepted: our ceiling times the first number, plus the second number in tokens."""


class Surplus:
    """Learns from usage and refusals of one server and model; kept in memory."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=RECENT)
        """For each request, the usage minus our estimate and the usage minus our ceiling, in tokens."""

    def factor(self) -> Factor:
        """Returns the constants for the requests in memory."""
        seen = list(self._seen)  # Another thread may append at the same time.
        if not seen:
            return Factor()
        above_tokens, above_ceilings = zip(*seen, strict=True)
        surplus = max(above_ceilings)
        offset = round(statistics.median(above_tokens)) if len(seen) >= FEW else 0
        more = max(SLACK, surplus // SHARE)
        return Factor(offset=offset, ceiling_offset=surplus + more if surplus > 0 else 0)

    def observe(self, estimate: Cost, actual: int) -> None:
        """Learns the server's count of a request if it is possible; `estimate` is without any factor."""
        times, more = BELIEVED
        if type(actual) is int and 0 < actual <= min(MOST, times * estimate.ceiling + more):
            self._seen.append((actual - estimate.tokens, actual - estimate.ceiling))

    def overflowed(self, estimate: Cost, actual: int | None) -> Factor:
        """Learns that a request was too long; `actual` is the server's count, or None if it reports none."""
        before = self.factor().ceiling(estimate.ceiling)
        reached = actual if actual is not None and before < actual <= MOST else math.ceil(before * REFUSED[0])
        self._seen.append((reached - estimate.tokens, reached - estimate.ceiling))
        return self.factor()
