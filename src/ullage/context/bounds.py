"""What a conversation is held to: the model that counts, the limit, and how it is kept within that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ullage.errors import ContextOverflowError
from ullage.fitting import Budget, FitPolicy, Window
from ullage.models import model_info
from ullage.tokens import counter_for, counter_with
from ullage.tokens.calibration import NEUTRAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.fitting import Fitted
    from ullage.messages import Message, Tool
    from ullage.tokens import Count, Counter, Tokenizer
    from ullage.tokens.calibration import Factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A model, a budget and a policy; raises ConfigurationError where they cannot work together."""

    model: str
    token_budget: int | None
    """The most input tokens, where the window does not leave fewer."""
    window: int | None
    """The model's context window; None for what the table of models says."""
    reserved_output: int | None
    """What of the window is kept for the answer; None for the model's longest, at most a quarter."""
    tools: Sequence[Tool] | None
    policy: FitPolicy
    rolling: bool = True
    """Whether what does not fit is trimmed; off, a request that is over is an error."""
    tokenizer: Tokenizer | None = None
    """Counts the texts in the place of the model's own."""
    factor: Factor = NEUTRAL
    limit: int = field(init=False)
    """The most input tokens: the budget, or what the window leaves where that is less."""

    def __post_init__(self) -> None:
        limits = [] if self.token_budget is None else [self.token_budget]
        if self.window is not None:
            limits.append(Budget(self.window, self.reserved_output).max_input)
        elif model_info(self.model) is not None or not limits:
            limits.append(Budget.for_model(self.model, self.reserved_output).max_input)
        object.__setattr__(self, "limit", min(limits))

    @property
    def applied(self) -> FitPolicy:
        """The policy as it is applied: nothing is taken out while `rolling` is off."""
        return self.policy if self.rolling else replace(self.policy, trim_strategy=(), max_turns=None)

    def counter(self) -> Counter:
        """What prices the pieces of a request."""
        return counter_for(self.model) if self.tokenizer is None else counter_with(self.model, self.tokenizer)

    def open_window(self) -> Window:
        """A window on a conversation that has not begun."""
        return Window(
            model=self.model,
            limit=self.limit,
            tools=self.tools,
            policy=self.applied,
            tokenizer=self.tokenizer,
            factor=self.factor,
        )

    def fit(self, messages: Iterable[Message], limit: int | None = None) -> Fitted:
        """These messages made to fit, by a lower limit where one is given."""
        held = self if limit is None else replace(self, token_budget=limit)
        try:
            return _filled(held, messages).fitted()
        except ContextOverflowError as error:
            raise ContextOverflowError(
                error.tokens, error.limit, error.breakdown, trimmed=self.rolling
            ) from error

    def count(self, messages: Iterable[Message]) -> Count:
        """What these messages cost as they are."""
        return _filled(replace(self, rolling=False), messages).count()


def _filled(bounds: Bounds, messages: Iterable[Message]) -> Window:
    window = bounds.open_window()
    for message in messages:
        window.append(message)
    return window
