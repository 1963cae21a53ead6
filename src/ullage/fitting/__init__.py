"""Makes a conversation fit, without breaking it."""

from __future__ import annotations

from ullage.fitting.budget import Budget, BudgetReport, check_budget
from ullage.fitting.policy import FitPolicy
from ullage.fitting.result import Change, Fitted
from ullage.fitting.window import Window, enforce_context_limit, fit

__all__ = [
    "Budget",
    "BudgetReport",
    "Change",
    "FitPolicy",
    "Fitted",
    "Window",
    "check_budget",
    "enforce_context_limit",
    "fit",
]
