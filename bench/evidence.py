"""Our fit as `evidence.py` of ULLAGE_BENCH asks for it: `evidence.py CONVERSATIONS bench.evidence:fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ullage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.messages import Message


def fit(messages: list[dict[str, Any]], limit: int, tools: object = None) -> Sequence[Message]:  # noqa: ARG001
    """The messages to send; the scorer's limit has no share for the tools, so they are left out."""
    return ullage.fit(messages, model="gpt-4o", limit=limit).messages
