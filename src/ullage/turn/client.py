"""The straight line of one turn, from a conversation to a model and back.

    context → counted by the server, if that is enabled → fitted (or ContextOverflowError)
            → reserved (or BudgetExceeded) → streamed, event by event
            → reply appended → settled → observed

However a turn ends, the text that arrived is kept, the reservation is settled or released, and an error says
what happened. While another process locks the store, the event loop goes on, and the turn can be cancelled.
"""

from __future__ import annotations

from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ullage.broker.ask import Ask
from ullage.broker.events import Event
from ullage.categories import MAIN
from ullage.cost.ledger import Ledger
from ullage.errors import (
    ContextOverflowError,
    ProviderError,
    StreamBroken,
)
from ullage.intake import check_member
from ullage.models import model_info
from ullage.patience import GRACE, limit_waiting, patiently, to_the_end
from ullage.tokens import Count
from ullage.turn.call import AnswerShortened, Call, Settled
from ullage.turn.counts import Counts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from typing import Any

    from ullage.broker.protocol import Provider
    from ullage.context import Compress, Context
    from ullage.fitting import Fitted
    from ullage.tokens.calibration import Calibration


SMALLER = 0.9
"""The share of a refused request that is sent again, if the provider states no limit."""

TurnEvent: TypeAlias = Event | Settled | AnswerShortened


class Client:
    """Sends the turns of any number of conversations to one provider."""

    def __init__(
        self,
        provider: Provider,
        *,
        ledger: Ledger | None = None,
        calibration: Calibration | None = None,
        name: str | None = None,
        max_output: int | None = None,
        local: bool = False,
        options: Mapping[str, Any] | None = None,
        use_endpoint: bool = False,
    ) -> None:
        self.provider: Provider = check_member(
            provider, "provider", "a Provider", "stream", "window", "count"
        )
        known = model_info(provider.target.model)
        self._longest = max_output or (known.max_output if known else None)
        self.ledger = (
            Ledger() if ledger is None else check_member(ledger, "ledger", "a Ledger", "reserve", "settle")
        )
        self.name = name or provider.target.model or "?"
        """The name of the model on the bill, which also finds its prices."""
        self.max_output = max_output
        self.local = local
        """True if a call costs nothing, so that no cap applies."""
        self.options = dict(options or {})
        self.counts = Counts(provider, calibration, self._ask, use_endpoint=use_endpoint)

    async def stream(
        self,
        context: Context,
        *,
        category: str = MAIN,
        system_prompt_override: str | None = None,
        compress: Compress | None = None,
        max_output: int | None = None,
        tell_retries: bool = False,
    ) -> AsyncIterator[TurnEvent]:
        """Runs one turn: sends the request, yields the events of the answer, and appends the answer.

        `max_output` lowers the longest answer for this turn. If a cap has no room for the longest answer, the
        first event is an AnswerShortened, and the model is asked for an answer that fits the cap. With
        `tell_retries`, a Retrying comes before each further try.

        If the provider finds the request too long, calibration learns from it, and the request is fitted
        again once. If the store cannot take the answer or its cost, NotSaved is raised after the last event.
        Nothing of the answer is lost: the missing part is written as soon as the store can be written.
        """
        refused, limit = False, None
        while True:
            fitted = await self.counts.fit(context, system_prompt_override, compress, limit)
            call = await patiently(partial(self._call, context, fitted, category, max_output))
            asked = call.longest if call.is_shortened else _lower(self.max_output, max_output)
            if call.is_shortened and call.longest is not None:
                with _withdrawn_if_stopped(call):
                    yield AnswerShortened(call.longest)
            try:
                ask = replace(self._ask(context, fitted, asked), tell_retries=tell_retries)
                async with aclosing(self.provider.stream(ask)) as events:  # type: ignore[type-var]
                    async for event in events:
                        call.hear(event)
                        yield event
            except ContextOverflowError as error:
                await to_the_end(call.withdraw)
                if refused or call.begun:
                    raise
                refused, limit = True, await patiently(partial(self._learn, context, fitted, error))
            except StreamBroken as error:
                await to_the_end(call.end)
                call.check_saved(error)
                raise
            except ProviderError as error:
                # A request that was given up without an answer may be charged, as after a cancellation.
                await to_the_end(call.end if error.sent else call.withdraw)
                raise
            except BaseException:  # cancelled, or the caller stopped reading: the call is paid for
                with limit_waiting(GRACE):
                    call.end()
                raise
            else:
                try:
                    await self.counts.count_reply(context, call.reply())
                finally:
                    settled = await to_the_end(call.end)
                yield settled
                call.check_saved()
                return

    async def count(self, context: Context) -> Count:
        """Returns the tokens of the next request; the server counts if that is enabled and it can."""
        await self.counts.count_ahead(context)
        fitted = context.fitted()
        counted = await self.provider.count(self._ask(context, fitted)) if self.counts.use_endpoint else None
        return (
            fitted.count
            if counted is None
            else Count(counted, counted, exact=True, breakdown=fitted.count.breakdown)
        )

    def longest_answer(self, context: Context) -> int | None:
        """Returns the most tokens of an answer: the requested limit, the model's own limit, or the window."""
        return self._longest or context.bounds.window

    def _learn(self, context: Context, fitted: Fitted[Any], error: ContextOverflowError) -> int:
        """Learns from a refusal, which shows a larger count or a smaller window; returns the next limit."""
        factor = self.counts.overflowed(context, fitted, error.reported)
        room = error.limit - (self.max_output or 0)
        if room > 0:
            context.lower_limit(room)
        return min(context.limit, factor.ceiling(int(fitted.estimate.ceiling * SMALLER)))

    def _call(self, context: Context, fitted: Fitted[Any], category: str, most: int | None) -> Call:
        """Returns the call, with its worst case reserved."""
        return Call(
            context=context,
            fitted=fitted,
            ledger=self.ledger,
            counts=self.counts,
            name=self.name,
            category=category,
            longest=_lower(self.longest_answer(context), most),
            local=self.local,
        )

    def _ask(self, context: Context, fitted: Fitted[Any], most: int | None = None) -> Ask:
        return Ask(
            messages=tuple(fitted.messages),
            tools=tuple(context.bounds.tools or ()),
            max_output=self.max_output if most is None else most,
            window=context.bounds.window,
            options=self.options,
        )


@contextmanager
def _withdrawn_if_stopped(call: Call) -> Iterator[None]:
    """Withdraws the call if the caller stops before anything was sent."""
    try:
        yield
    except BaseException:
        call.withdraw()
        raise


def _lower(first: int | None, second: int | None) -> int | None:
    """Returns the lower of two limits; None stands for no limit."""
    return min((each for each in (first, second) if each is not None), default=None)
