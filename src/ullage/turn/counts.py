"""Counts the requests of a client: by our own rules, or by the server that they go to.

The server counts if that is enabled and it can. Calibration learns separately for our estimates and the
server's counts. `believable` compares a provider's usage with our own count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ullage.errors import ContextOverflowError
from ullage.patience import patiently
from ullage.tokens import texts_of
from ullage.tokens.calibration import Calibration
from ullage.usage import PARTS, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.broker.ask import Ask
    from ullage.broker.protocol import Provider
    from ullage.broker.tokenizer import ServerTokenizer
    from ullage.context import Compress, Context
    from ullage.fitting import Fitted
    from ullage.messages import Message, Tool
    from ullage.tokens.calibration import Factor

NEAR = 0.75
"""The share of the limit above which the server counts whole requests, if its counting is enabled."""
NEAR_BY_ESTIMATE = 0.3
"""The same share if the server has not counted the texts, because our sum is then less precise."""
REFITS = 5
"""Most times that a request is fitted again because the server counts more than the limit."""


class Counts:
    """Counts the requests to one provider, and learns from their actual counts."""

    def __init__(
        self,
        provider: Provider,
        calibration: Calibration | None,
        make_ask: Callable[[Context, Fitted[Message]], Ask],
        *,
        use_endpoint: bool,
    ) -> None:
        self.calibration = calibration or Calibration()
        self.use_endpoint = use_endpoint
        """True if the server counts: texts by its tokenizer, and requests near the limit as a whole."""
        self.tokenizer: ServerTokenizer | None = provider.tokenizer() if use_endpoint else None
        self._provider = provider
        self._make_ask = make_ask
        self._counted_tools: tuple[Tool, ...] | None = None
        """The tools of the last request that the server counted as a whole and found within the limit."""

    @property
    def current(self) -> tuple[ServerTokenizer | None, Factor]:
        """The server's tokenizer, if it counts, and the factor learned from usage.

        Factors are learned separately for the server's counts and for our own estimates.
        """
        tokenizer = self.tokenizer
        if tokenizer is None or not tokenizer.is_active:
            return None, self.calibration.factor(self._provider.target)
        return tokenizer, tokenizer.surplus.factor()

    def server_of(self, context: Context) -> ServerTokenizer | None:
        """Returns the server's tokenizer, if this conversation counts with it."""
        tokenizer = self.tokenizer
        return tokenizer if tokenizer is not None and context.bounds.tokenizer is tokenizer else None

    def learn_from(self, context: Context, fitted: Fitted[Message], actual: int) -> None:
        """Learns from the actual number of tokens of a request."""
        server = self.server_of(context)
        if server is None:
            self.calibration.observe(self._provider.target, fitted.estimate, actual)
        else:
            server.surplus.observe(fitted.estimate, actual)

    def recalibrate(self, context: Context, fitted: Fitted[Message], actual: int) -> None:
        """Gives the conversation the learned factor, for its next requests."""
        server = self.server_of(context)
        if server is None:
            context.recalibrate(self.calibration.factor(self._provider.target))
        else:
            # If a constant was missing, the next request lacks it too.
            context.recalibrate(server.surplus.factor(), at_once=actual > fitted.count.ceiling)

    def overflowed(self, context: Context, fitted: Fitted[Message], actual: int | None) -> Factor:
        """Learns that a request was too long, and applies the new factor at once."""
        server = self.server_of(context)
        if server is None:
            factor = self.calibration.overflowed(self._provider.target, fitted.estimate, actual)
        else:
            factor = server.surplus.overflowed(fitted.estimate, actual)
        context.recalibrate(factor, at_once=True)
        return factor

    async def count_ahead(
        self, context: Context, prompt: str | None = None, compress: Compress | None = None
    ) -> None:
        """Lets the server count the new texts of the conversation, if its counting is enabled and it can.

        After the first count the conversation counts with the server's tokenizer, unless it has another one.
        """
        tokenizer, used = self.tokenizer, context.bounds.tokenizer
        if tokenizer is None or used not in (None, tokenizer):
            return
        await context.learn(tokenizer, system_prompt_override=prompt, compress=compress)
        if used is None and tokenizer.is_active:
            context.use_tokenizer(tokenizer, tokenizer.surplus.factor())

    async def count_reply(self, context: Context, reply: Message | None) -> None:
        """Lets the server count an answer before it is appended, so that every reader finds its count."""
        if self.tokenizer is not None and reply is not None:
            await self.tokenizer.learn(texts_of(context.bounds.target, [reply]))

    async def fit(
        self, context: Context, prompt: str | None, compress: Compress | None, limit: int | None
    ) -> Fitted[Message]:
        """Returns the request to send; fits it again if the server's count is over the limit."""
        for _ in range(REFITS):
            await self.count_ahead(context, prompt, compress)
            await context.prepare(system_prompt_override=prompt)
            fitted = await patiently(
                partial(context.fitted, system_prompt_override=prompt, compress=compress, limit=limit)
            )
            if not self.use_endpoint:
                return fitted
            fitted = await self._recount_texts(context, fitted)
            if fitted.count.ceiling > fitted.limit:
                counted = fitted.count.ceiling
                continue
            counted = await self._count_at_server(context, fitted) or 0
            if counted > fitted.limit:
                await patiently(partial(self.overflowed, context, fitted, counted))
                continue
            if counted > fitted.count.ceiling:
                await patiently(partial(self.learn_from, context, fitted, counted))
                await patiently(partial(self.recalibrate, context, fitted, counted))
            return fitted
        raise ContextOverflowError(counted, fitted.limit, fitted.count.breakdown)

    async def _recount_texts(self, context: Context, fitted: Fitted[Message]) -> Fitted[Message]:
        """Returns the request with the server's counts of the texts that fitting has made."""
        server = self.server_of(context)
        if server is None:
            return fitted
        learned = await server.learn(texts_of(context.bounds.target, fitted.messages))
        return context.recounted(fitted) if learned else fitted

    async def _count_at_server(self, context: Context, fitted: Fitted[Message]) -> int | None:
        """Returns the server's count of the whole request; None if the server cannot count or is not asked.

        The server is asked near the limit, and for the first request with these tools, which shows the
        template's share of each request. After a request over the limit it is asked for the next one, too.
        """
        near = (NEAR_BY_ESTIMATE if self.server_of(context) is None else NEAR) * fitted.limit
        ask = self._make_ask(context, fitted)
        if fitted.count.ceiling < near and ask.tools == self._counted_tools:
            return None
        counted = await self._provider.count(ask)
        self._counted_tools = None if counted is not None and counted > fitted.limit else ask.tools
        return counted


# The usage that a provider reports ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRange:
    """The range in which a provider's figure is plausible, relative to our own count of the same text."""

    share: float
    """Least figure, as a share of our own count."""
    times: float
    """Greatest figure, as a multiple of the compared figure."""
    slack: int
    """Tokens added to the greatest figure."""


RANGES: Mapping[str, FigureRange] = {
    # Tokenizers differ by a factor of three at most, and providers may add prompts of their own. A count far
    # below ours leaves out a part, mostly cached tokens.
    "prompt": FigureRange(share=0.05, times=4.0, slack=20_000),
    # An answer is compared with the requested maximum. Thinking counts and is not always shown, so the figure
    # may be far above the visible text.
    "completion": FigureRange(share=0.05, times=2.0, slack=1_000),
}
SMALL = 200
"""Below this many tokens of our own count, the least figure is 1, because shares of short texts vary
widely."""
MOST_OUTPUT = 1_000_000
"""Longest answer in tokens if no limit is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCount:
    """Our own counts for a request and its answer, in tokens."""

    prompt: int
    ceiling: int
    """Upper bound of the prompt by our own count."""
    completion: int
    max_output: int | None
    """Longest answer that was requested, or that the model can give; None if unknown."""


def believable(reported: Usage | None, own: OwnCount) -> tuple[Usage, tuple[str, ...]]:
    """Replaces each impossible figure by our own count; returns the usage and the names of these figures."""
    usage = Usage() if reported is None else reported
    longest = MOST_OUTPUT if own.max_output is None else own.max_output
    wrong: tuple[str, ...] = ()
    if reported is None or not _is_possible(usage.prompt, own.prompt, own.ceiling, RANGES["prompt"]):
        wrong += ("prompt",)
    most = max(longest, own.completion)
    if reported is None or not _is_possible(usage.completion, own.completion, most, RANGES["completion"]):
        wrong += ("completion",)
    if not wrong:
        return usage, ()
    ours = {"prompt": own.prompt, "completion": own.completion}
    corrected = {name: ours[name] for name in wrong}
    corrected |= {part: 0 for name in wrong for part in PARTS[name]}  # the parts of a wrong total are unknown
    return replace(usage, **corrected, cost=None), wrong  # the cost was computed from the wrong figures


def _is_possible(figure: int, ours: int, compared: int, bounds: FigureRange) -> bool:
    least = ours * bounds.share if ours >= SMALL else min(ours, 1)
    return least <= figure <= compared * bounds.times + bounds.slack
