"""Ullage keeps LLM conversations inside the model's context window.

The names below are the public API; each is loaded when it is first used, so that importing
`ullage` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what typing says, without the price of importing it
if TYPE_CHECKING:
    from typing import Any

    from ullage.context import Compress, Context
    from ullage.cost import Ledger
    from ullage.errors import (
        BudgetExceeded,
        ConfigurationError,
        Conflict,
        ContextOverflowError,
        InvalidConversation,
        InvalidRequest,
        LocalModelError,
        ProviderError,
        StoreError,
        StreamBroken,
        UllageError,
    )
    from ullage.fitting import (
        Budget,
        BudgetReport,
        Change,
        Draft,
        Edit,
        FitPolicy,
        Fitted,
        FittedRequest,
        Pass,
        RequestWindow,
        Window,
        check_budget,
        enforce_context_limit,
        fit,
        fit_request,
    )
    from ullage.models import ModelInfo, model_info, register_model
    from ullage.target import Target
    from ullage.tokens import Count, Tokenizer, count, count_request, get_tokenizer, register_tokenizer
    from ullage.tokens.calibration import Calibration
    from ullage.turn import Client
    from ullage.usage import Meter, Usage

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetExceeded",
    "BudgetReport",
    "Calibration",
    "Change",
    "Client",
    "Compress",
    "ConfigurationError",
    "Conflict",
    "Context",
    "ContextOverflowError",
    "Count",
    "Draft",
    "Edit",
    "FitPolicy",
    "Fitted",
    "FittedRequest",
    "InvalidConversation",
    "InvalidRequest",
    "Ledger",
    "LocalModelError",
    "Meter",
    "ModelInfo",
    "Pass",
    "ProviderError",
    "RequestWindow",
    "StoreError",
    "StreamBroken",
    "Target",
    "Tokenizer",
    "UllageError",
    "Usage",
    "Window",
    "__version__",
    "check_budget",
    "count",
    "count_request",
    "enforce_context_limit",
    "fit",
    "fit_request",
    "get_tokenizer",
    "model_info",
    "register_model",
    "register_tokenizer",
]

# The modules that define those names, looked through in this order.
_HOMES = (
    "ullage.errors",
    "ullage.target",
    "ullage.models",
    "ullage.usage",
    "ullage.tokens",
    "ullage.fitting",
    "ullage.tokens.calibration",
    "ullage.context",
    "ullage.cost",
    "ullage.turn",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if name in vars(module):
                value = globals()[name] = vars(module)[name]
                return value
    raise AttributeError(f"module 'ullage' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
