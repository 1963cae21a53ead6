"""Our counter as `accuracy.py` of ULLAGE_BENCH asks for it: `accuracy.py DATA bench.accuracy:count`."""

from __future__ import annotations

from typing import Any

from ullage import count_request


def count(request: dict[str, Any], api: str, model: str) -> tuple[int, int]:
    """The estimate and the ceiling of a recorded request."""
    counted = count_request(request, api, model)
    return counted.tokens, counted.ceiling
