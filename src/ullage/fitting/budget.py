"""The budget: how many input tokens a model can take, and how many a conversation uses of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.models import model_info
from ullage.tokens import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.messages import Message, Tool


@dataclass(frozen=True, slots=True)
class Budget:
    """A context window and the part of it that is kept free for the answer."""

    context_window: int
    reserved_output: int | None = None
    """Tokens kept for the answer; None for a quarter of the window."""
    input_cap: int | None = None
    """The most input tokens, where the provider allows fewer than the window leaves."""

    def __post_init__(self) -> None:
        if self.context_window <= 0:
            raise ConfigurationError(f"a context window of {self.context_window} tokens holds nothing")
        if self.reserved_output is None:
            object.__setattr__(self, "reserved_output", self.context_window // 4)
        if not 0 <= self.reserve < self.context_window:
            raise ConfigurationError(
                f"reserved_output is {self.reserve} of a window of {self.context_window} tokens; "
                "it must leave room for the input"
            )

    @property
    def reserve(self) -> int:
        """The tokens kept for the answer."""
        return self.reserved_output or 0

    @property
    def max_input(self) -> int:
        """The most input tokens."""
        room = self.context_window - self.reserve
        return room if self.input_cap is None else min(room, self.input_cap)

    @classmethod
    def for_model(cls, model: str, reserve: int | None = None) -> Budget:
        """The budget of a known model; its reserve is the longest answer, at most a quarter of the window."""
        info = model_info(model)
        if info is None:
            raise ConfigurationError(
                f"the context window of {model!r} is not known; "
                "pass limit=, or teach it with ullage.register_model"
            )
        if reserve is None:
            quarter = info.window // 4
            reserve = min(info.max_output or quarter, quarter)
        return cls(info.window, reserve, info.max_input)


def limit_for(model: str, limit: int | None, reserve: int | None) -> int:
    """The most input tokens: as given, else from the table of models."""
    if limit is None:
        return Budget.for_model(model, reserve).max_input
    if limit <= 0:
        raise ConfigurationError(f"limit is {limit}; it is the most input tokens, at least 1")
    return limit


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """How a conversation stands against a budget; the figures are ceilings, as decisions are."""

    max_input_tokens: int
    current_tokens: int
    available_tokens: int
    within_budget: bool
    utilization_percent: float


def check_budget(
    messages: Sequence[Message],
    budget: Budget,
    model: str = "gpt-4o",
    tools: Sequence[Tool] | None = None,
) -> BudgetReport:
    """How much of `budget` these messages use."""
    current = count(messages, model, tools).ceiling
    most = budget.max_input
    return BudgetReport(
        max_input_tokens=most,
        current_tokens=current,
        available_tokens=max(0, most - current),
        within_budget=current <= most,
        utilization_percent=round(100 * current / most, 1),
    )
