"""The bounds of a conversation: the target, the limit and the trimming policy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting import Budget, FitPolicy, Window
from ullage.intake import kind_of, whole_number
from ullage.models import model_info
from ullage.tokens import Cost, counter_for
from ullage.tokens.calibration import NEUTRAL, Factor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.fitting import Fitted
    from ullage.messages import Message, Tool
    from ullage.target import Target
    from ullage.tokens import Count, Counter, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A target, a budget and a policy. Raises ConfigurationError if they cannot work together."""

    target: Target
    token_budget: int | None
    """The limit in input tokens, if the window does not leave fewer; None for no such limit."""
    window: int | None
    """The model's context window in tokens; None for the window in the table of models."""
    reserved_output: int | None
    """Tokens of the window that are kept free for the answer; None for the model's longest, at most a
    quarter."""
    tools: Sequence[Tool] | None
    policy: FitPolicy
    rolling: bool = True
    """True if requests are trimmed; False if a request that does not fit is an error."""
    tokenizer: Tokenizer | None = None
    """Counts the texts in place of the model's own tokenizer."""
    factor: Factor = NEUTRAL
    limit: int = field(init=False)
    """The limit in input tokens: the budget, or the room in the window if that is smaller."""

    def __post_init__(self) -> None:
        limits = [] if self.token_budget is None else [whole_number(self.token_budget, "token_budget", 1)]
        if not isinstance(self.factor, Factor):
            raise ConfigurationError(f"factor must be a Factor, not {kind_of(self.factor)}")
        if self.window is not None:
            limits.append(Budget(self.window, self.reserved_output).max_input)
        elif model_info(self.target.model) is not None or not limits:
            limits.append(Budget.for_model(self.target, self.reserved_output).max_input)
        object.__setattr__(self, "limit", min(limits))

    @property
    def applied(self) -> FitPolicy:
        """The policy that is applied: it removes nothing if `rolling` is False."""
        return self.policy if self.rolling else replace(self.policy, trim_strategy=(), max_turns=None)

    def counter(self) -> Counter:
        """Returns the counter of the model, or of the tokenizer that replaces the model's own."""
        return counter_for(self.target, self.tokenizer)

    def open_window(self) -> Window:
        """Returns an empty window with these bounds."""
        return Window(
            model=self.target,
            limit=self.limit,
            tools=self.tools,
            policy=self.applied,
            tokenizer=self.tokenizer,
            factor=self.factor,
        )

    def fit(self, messages: Iterable[Message], limit: int | None = None) -> Fitted[Message]:
        """Returns these messages made to fit; `limit` may lower the limit."""
        lowered = self if limit is None else replace(self, token_budget=limit)
        try:
            return _fill_window(lowered, messages).fitted()
        except ContextOverflowError as error:
            raise ContextOverflowError(
                error.tokens, error.limit, error.breakdown, trimmed=self.rolling
            ) from error

    def count(self, messages: Iterable[Message]) -> Count:
        """Returns the count of these messages, untrimmed."""
        return _fill_window(replace(self, rolling=False), messages).count()

    def recount_request(self, fitted: Fitted[Message]) -> Fitted[Message]:
        """Returns a request with a new count, after the tokenizer has learned texts that it had estimated."""
        own = replace(self, factor=NEUTRAL).count(fitted.messages)
        count = self.factor.count(own)
        return replace(fitted, count=count, tokens_after=count.tokens, estimate=Cost(own.tokens, own.ceiling))


def _fill_window(bounds: Bounds, messages: Iterable[Message]) -> Window:
    window = bounds.open_window()
    for message in messages:
        window.append(message)
    return window
