"""Signed thinking after a cut: newer models of Anthropic bind each block to the exact text before it.

Fitting leaves out the thinking of finished turns. The tool loop under way keeps its own, because the API
wants it back. Some of its blocks may be bound to text that was cut since. Anthropic's server is asked to
leave out those instead of refusing the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.wire.anthropic_reader import thinks

if TYPE_CHECKING:
    from collections.abc import Mapping

BETA = "thinking-binding-controls-2026-08-01"
"""The value of `anthropic-beta` that the field needs."""
BINDING = "block_binding"


def drop_unbound(body: dict[str, Any]) -> dict[str, Any]:
    """Returns a body that asks to leave out thinking whose prefix changed; the same object if it has no say.

    A client that sets the field itself keeps its own choice.
    """
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or not thinks(thinking) or thinking.get(BINDING) is not None:
        return body
    return {**body, "thinking": {**thinking, BINDING: {"prefix_mismatch_behavior": "drop_block"}}}


def with_beta(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns headers that allow the field."""
    given = headers.get("anthropic-beta", "")
    if BETA in given:
        return dict(headers)
    return {**headers, "anthropic-beta": f"{given},{BETA}" if given else BETA}
