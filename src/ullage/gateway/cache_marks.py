"""Cache marks of a request, which clients move from message to message.

They say what a provider should keep in its cache. A message is the same with and without one.
"""

from __future__ import annotations

from typing import Any

from ullage.gateway.request import write_json

MARK = b'"cache_control"'


def write_unmarked(value: Any) -> bytes:
    """Returns a client's value as JSON, without its cache marks."""
    data = write_json(value)
    return write_json(_remove_marks(value)) if MARK in data else data


def _remove_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _remove_marks(each) for name, each in value.items() if name != "cache_control"}
    return [_remove_marks(each) for each in value] if isinstance(value, list) else value
