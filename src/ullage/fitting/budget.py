"""The budget: how many input tokens a model can take, and how many a conversation uses of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError
from ullage.intake import kind_of, whole_number
from ullage.models import model_info
from ullage.target import target_of
from ullage.tokens import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.target import ModelLike


@dataclass(frozen=True, slots=True)
class Budget:
    """A context window and the part of it that is kept free for the answer."""

    context_window: int
    reserved_output: int | None = None
    """Tokens kept for the answer; None for a quarter of the window."""
    input_cap: int | None = None
    """The most input tokens, if the provider allows fewer than the window leaves."""

    def __post_init__(self) -> None:
        whole_number(self.context_window, "context_window", 1)
        if self.input_cap is not None:
            whole_number(self.input_cap, "input_cap", 1)
        if self.reserved_output is not None:
            whole_number(self.reserved_output, "reserved_output")
        else:
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
    def for_model(cls, model: ModelLike, reserve: int | None = None) -> Budget:
        """Returns the budget of a known model. It reserves the longest answer, at most a quarter."""
        name = target_of(model).model
        info = model_info(name)
        if info is None:
            whose = "an unnamed model" if name is None else repr(name)
            raise ConfigurationError(
                f"the context window of {whose} is not known: "
                "give limit=, or name a model that is known or was added with ullage.register_model"
            )
        if reserve is None:
            quarter = info.window // 4
            reserve = min(info.max_output or quarter, quarter)
        return cls(info.window, reserve, info.max_input)


def limit_for(model: ModelLike, limit: int | None, reserve: int | None) -> int:
    """Returns the most input tokens: `limit`, or else the window in the table of models, less `reserve`."""
    if limit is None:
        return Budget.for_model(model, reserve).max_input
    most = whole_number(limit, "limit", 1)
    if reserve is None:
        return most
    kept = whole_number(reserve, "reserve")
    if kept >= most:
        raise ConfigurationError(
            f"reserve is {kept} of a limit of {most} tokens; it must leave room for the input"
        )
    return most - kept


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """The use of a budget by a conversation. All figures are ceilings, because ceilings decide."""

    max_input_tokens: int
    current_tokens: int
    available_tokens: int
    within_budget: bool
    utilization_percent: float


def check_budget(
    messages: Iterable[Any],
    budget: Budget,
    model: ModelLike = None,
    tools: Iterable[Any] | None = None,
) -> BudgetReport:
    """Returns how much of `budget` these messages use."""
    if not isinstance(budget, Budget):
        raise ConfigurationError(f"budget must be a Budget, not {kind_of(budget)}")
    current = count(messages, model, tools).ceiling
    most = budget.max_input
    return BudgetReport(
        max_input_tokens=most,
        current_tokens=current,
        available_tokens=max(0, most - current),
        within_budget=current <= most,
        utilization_percent=round(100 * current / most, 1),
    )
