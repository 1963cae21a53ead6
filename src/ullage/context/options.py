"""The options of `Context`, from which its signature, its defaults and its documentation are made."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ullage.context.blocks import DEFAULT_PROMPT
from ullage.context.bounds import Bounds
from ullage.context.summary import Summaries, Summarizer
from ullage.fitting.policy import check_fit_policy
from ullage.intake import check_function, check_member, check_share, read_tools, whole_number
from ullage.target import target_of
from ullage.tokens.calibration import NEUTRAL
from ullage.tokens.vocabularies import check_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ullage.context.journal import Journal
    from ullage.context.summary import Summarize
    from ullage.fitting import FitPolicy
    from ullage.target import ModelLike
    from ullage.tokens import Tokenizer
    from ullage.tokens.calibration import Factor
    from ullage.usage import Meter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContextOptions:
    """The keyword arguments of `Context`. The defaults suit a shell."""

    model: ModelLike = None
    """The model whose rules count, by its name or as a `Target`; None for an unknown model."""
    system_prompt: str = DEFAULT_PROMPT
    tools: Iterable[Any] | None = None
    """The tools that are sent with each request; their schemas are counted."""
    max_turns: int | None = 40
    """The most messages after the system prompt; None for no such limit."""
    token_budget: int | None = 4_096
    """The limit in input tokens, if the window does not leave fewer; None for all that the window leaves."""
    window: int | None = None
    """The model's context window in tokens; None for the window in the table of models."""
    reserved_output: int | None = None
    """Tokens of the window that are kept free for the answer; None for the model's longest, at most a
    quarter."""
    policy: FitPolicy | None = None
    """The rules for trimming; `max_turns` above replaces the policy's own."""
    tokenizer: Tokenizer | None = None
    """Counts the texts instead of the model's own tokenizer."""
    factor: Factor = NEUTRAL
    """The calibration of the counts."""
    use_tool_role: bool = True
    """False for models whose templates reject `role: tool`: calls and results are then sent as texts."""
    summarize: Summarize | Summarizer | None = None
    """Writes summaries of evicted turns; None for no summaries."""
    summarizer_model: ModelLike = None
    """The model that `summarize` asks; None for the conversation's own model."""
    summarize_at: float = 0.8
    """The used share of the window at which the next summary is started."""
    max_summary_chars: int = 2_000
    memory_max_chars: int = 2_000
    """The most characters of remembered items in the prompt."""
    journal: Journal | None = None
    """Keeps the conversation; None for a journal in memory."""
    session: str | None = None
    """The name of the conversation in its journal; None for a new name."""
    meter: Meter | None = None
    """Sums the usage of requests; None for a new meter."""
    clock: Callable[[], float] = time.time
    """Returns the time in seconds since the epoch."""

    def __post_init__(self) -> None:
        whole_number(self.max_summary_chars, "max_summary_chars", 1)
        check_share(self.summarize_at, "summarize_at")
        if self.reserved_output is not None:
            whole_number(self.reserved_output, "reserved_output")
        if self.tokenizer is not None:
            check_tokenizer(self.tokenizer)
        if self.meter is not None:
            check_member(self.meter, "meter", "a Meter", "add_usage", "pop_warnings")
        check_function(self.clock, "clock")
        if self.summarize is not None and not isinstance(self.summarize, Summarizer):
            check_function(self.summarize, "summarize")
        target_of(self.summarizer_model)

    def bounds(self) -> Bounds:
        """Returns the target, limit and policy; raises ConfigurationError if they cannot work together."""
        return Bounds(
            target=target_of(self.model),
            token_budget=self.token_budget,
            window=self.window,
            reserved_output=self.reserved_output,
            tools=read_tools(self.tools),
            policy=replace(check_fit_policy(self.policy), max_turns=self.max_turns),
            tokenizer=self.tokenizer,
            factor=self.factor,
        )

    def summaries(self, limit: int) -> Summaries | None:
        """Returns the summaries of a conversation; `limit` is used if the summarizer's own is unknown."""
        summarizer = self.summarize
        if summarizer is None:
            return None
        if not isinstance(summarizer, Summarizer):
            writer = self.summarizer_model or target_of(self.model)
            summarizer = Summarizer.for_model(summarizer, self.max_summary_chars, writer, limit)
        return Summaries(summarizer, self.summarize_at)


S = TypeVar("S")
P = ParamSpec("P")


def takes_options(
    make: Callable[P, ContextOptions],
) -> Callable[[Callable[[S, ContextOptions], None]], Callable[Concatenate[S, P], None]]:
    """Decorates an `__init__` that takes options, so that it can be called with their keyword arguments."""

    def decorate(init: Callable[[S, ContextOptions], None]) -> Callable[Concatenate[S, P], None]:
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, make(*args, **kwargs))

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        parameters = [own, *inspect.signature(make).parameters.values()]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # `help` shows it
        return call

    return decorate
