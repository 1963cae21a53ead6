"""Our counter as `accuracy.py` of ULLAGE_BENCH asks for it: `accuracy.py DATA bench.accuracy:count`."""

from __future__ import annotations

from typing import Any

from ullage import count_request


def count(request: dict[str, Any], api: str, model: str) -> tuple[int, int]:
    """The estimate and the ceiling of a recorded request."""
    counted = count_request(request, api, model)
    return counted.tokens, counted.ceiling


def count_unnamed(request: dict[str, Any], api: str, model: str) -> tuple[int, int]:  # noqa: ARG001 - the scorer's
    """The same if nobody says which model will answer: only the API is known."""
    counted = count_request({key: value for key, value in request.items() if key not in NAMES}, api)
    return counted.tokens, counted.ceiling


NAMES = frozenset({"model", "modelId"})
"""The members of a body that name its model."""
