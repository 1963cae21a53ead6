"""The options of a fold: how to count, the limit and the policy."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ullage.errors import ConfigurationError
from ullage.intake import kind_of
from ullage.messages import text_of
from ullage.tokens import Cost, counter_for, ready
from ullage.tokens.calibration import Factor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ullage.fitting.policy import FitPolicy
    from ullage.messages import Tool
    from ullage.target import Target
    from ullage.tokens import Counter, Tokenizer

SystemEnd: TypeAlias = str | Literal[False]
"""The end of the first system message: a letter if it ends in a word, else empty; False if there is no such
message. For some models it decides whether the tools that follow cost a token more."""
SYSTEM_ENDS: tuple[SystemEnd, ...] = (False, "", "a")
"""All values of SystemEnd. The tools are counted only once for each."""


def end_of(content: Any) -> SystemEnd:
    """Returns the SystemEnd of a system message with this content."""
    return "a" if text_of(content)[-1:].isalnum() else ""


class Extras(NamedTuple):
    """The parts of a request that cost tokens beside its messages, in the format of OpenAI's chat API."""

    tools: Sequence[Tool] | None = None
    response_format: Mapping[str, Any] | None = None
    tool_choice: Any = None
    thinking: bool = False
    """True if the request asks the model to think in a way that adds to the prompt."""


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The options of a window, and figures that are computed from them once."""

    target: Target
    """The model whose rules count, and the destination of its requests."""
    given_limit: int
    """The most input tokens, by the model's own count."""
    extras: Extras
    policy: FitPolicy
    tokenizer: Tokenizer | None
    factor: Factor
    counter: Counter
    limit: int
    """The same limit by our own count, before calibration; the fold uses this one."""
    framing: Callable[[SystemEnd], Cost]
    """Returns the cost of a request's framing, tools and schemas."""
    continued: int
    """Tokens of the ceiling if the last message is the assistant's, which makes a schema cost more."""
    once: int
    """The highest ceiling of the framing, tools and schemas, whatever the messages are."""
    empty_output: int
    """The tokens of a tool result without content."""

    def __reduce__(self) -> tuple[Callable[[], Options], tuple[()]]:
        """Copies and pickles have the options; the figures are computed again."""
        made = functools.partial(
            make_options,
            self.target,
            self.given_limit,
            extras=self.extras,
            policy=self.policy,
            tokenizer=self.tokenizer,
            factor=self.factor,
        )
        return made, ()

    def room(self, prompt: int) -> int:
        """Returns the tokens that a prompt of this cost leaves for the conversation and its digest."""
        return max(0, self.limit - self.once - prompt)

    def reserve(self, prompt: int, talk: float) -> int:
        """Returns the tokens that are kept free for recalled passages; `talk` is the share of talk."""
        return int(self.room(prompt) * self.policy.recall_share * talk)


def check_factor(factor: object) -> Factor:
    """Returns this factor; raises ConfigurationError for anything else."""
    if not isinstance(factor, Factor):
        raise ConfigurationError(f"factor must be a Factor, not {kind_of(factor)}")
    return factor


def make_options(
    target: Target,
    limit: int,
    *,
    extras: Extras,
    policy: FitPolicy,
    tokenizer: Tokenizer | None,
    factor: Factor,
) -> Options:
    """Returns the options of a fold; raises ConfigurationError if `factor` is not a Factor."""
    check_factor(factor)
    if tokenizer is None:
        ready(target.model)
    counter = counter_for(target, tokenizer)
    framing = functools.cache(functools.partial(_count_framing, counter, extras))
    continued = counter.family.margin_continued if extras.response_format else 0
    return Options(
        target=target,
        given_limit=limit,
        extras=extras,
        policy=policy,
        tokenizer=tokenizer,
        factor=factor,
        counter=counter,
        limit=factor.limit(limit),
        framing=framing,
        continued=continued,
        once=max(framing(end).ceiling for end in SYSTEM_ENDS) + continued,
        empty_output=counter.message({"role": "tool", "content": ""}).tokens,
    )


def remake_options(
    options: Options,
    *,
    target: Target | None = None,
    limit: int | None = None,
    extras: Extras | None = None,
    policy: FitPolicy | None = None,
    factor: Factor | None = None,
) -> Options:
    """Returns the options with some of them changed; None leaves one as it is."""
    return make_options(
        options.target if target is None else target,
        options.given_limit if limit is None else limit,
        extras=options.extras if extras is None else extras,
        policy=options.policy if policy is None else policy,
        tokenizer=options.tokenizer,
        factor=options.factor if factor is None else factor,
    )


def _count_framing(counter: Counter, extras: Extras, end: SystemEnd) -> Cost:
    tools, response_format, tool_choice, thinking = extras
    return counter.request(tools, response_format, system=end, tool_choice=tool_choice, thinking=thinking)
