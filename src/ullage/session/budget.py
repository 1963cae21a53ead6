"""The token budget of a conversation: as configured, or as large as the model's window allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.fitting import Budget
from ullage.models import model_info

if TYPE_CHECKING:
    from ullage.context.bounds import Bounds
    from ullage.target import Target

UNKNOWN_WINDOW = 4_096
"""The budget in input tokens for a model whose window is not known."""


def budget_for(configured: int | None, target: Target, window: int | None) -> int | None:
    """Returns the budget in input tokens; None for all that the model's window leaves.

    Without a configured budget it follows the model. If neither `window` nor the table of models states the
    model's window, the budget is `UNKNOWN_WINDOW`.
    """
    if configured is None and not is_window_known(target, window):
        return UNKNOWN_WINDOW
    return configured


def is_window_known(target: Target, window: int | None) -> bool:
    """Returns True if the server, the settings or the table of models state the model's window."""
    return window is not None or model_info(target.model) is not None


def describe_limit(bounds: Bounds, configured: int | None) -> str:
    """Returns the reason for the limit of a conversation, and the setting that changes it."""
    if not is_window_known(bounds.target, bounds.window):
        if bounds.limit == (configured or UNKNOWN_WINDOW):
            return _without_window(bounds, configured)
        return _describe_lowered_limit(bounds)
    budget = _budget_of(bounds)
    if bounds.limit == configured:
        window = f"a window of {budget.context_window:,} tokens"
        return f"limit: context.token_budget = {configured:,}, in {window}"
    if bounds.limit < budget.max_input:
        return _describe_lowered_limit(bounds)
    if budget.max_input < budget.context_window - budget.reserve:
        return f"limit: the most input tokens of a window of {budget.context_window:,}"
    return f"limit: a window of {budget.context_window:,} tokens less {budget.reserve:,} for the answer"


def _budget_of(bounds: Bounds) -> Budget:
    if bounds.window is not None:
        return Budget(bounds.window, bounds.reserved_output)
    return Budget.for_model(bounds.target, bounds.reserved_output)


def _without_window(bounds: Bounds, configured: int | None) -> str:
    name = bounds.target.model or "this model"
    if configured is not None:
        return f"limit: context.token_budget = {configured:,}; the window of {name} is not known"
    return (
        f"limit: the window of {name} is not known. Set the window of the model in [models], "
        "or context.token_budget"
    )


def _describe_lowered_limit(bounds: Bounds) -> str:
    return f"limit: {bounds.limit:,} tokens, lowered when the server refused a longer request"
