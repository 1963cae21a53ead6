"""Makes a conversation fit, without breaking it."""

from __future__ import annotations

from ullage.fitting.body import FittedRequest, RequestWindow, fit_request
from ullage.fitting.budget import Budget, BudgetReport, check_budget
from ullage.fitting.draft import Draft, Edit
from ullage.fitting.policy import FitPolicy, Pass
from ullage.fitting.result import Change, Fitted
from ullage.fitting.window import Window, enforce_context_limit, fit

__all__ = [
    "Budget",
    "BudgetReport",
    "Change",
    "Draft",
    "Edit",
    "FitPolicy",
    "Fitted",
    "FittedRequest",
    "Pass",
    "RequestWindow",
    "Window",
    "check_budget",
    "enforce_context_limit",
    "fit",
    "fit_request",
]
