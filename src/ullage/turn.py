"""The straight line: from a conversation to a model and back.

    context → fitted (or ContextOverflowError) → reserved (or BudgetExceeded) → streamed, event by event
            → reply appended → settled → observed

Whatever ends a turn, what arrived is kept, the reservation is ended, and the error says what happened.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ullage.broker.events import Event, Finished, Text, ToolCall, Used
from ullage.broker.provider import Ask
from ullage.classes import MAIN
from ullage.cost.ledger import Ledger
from ullage.cost.prices import cost_of, prices_of
from ullage.errors import ContextOverflowError, ProviderError, StreamBroken
from ullage.models import model_info
from ullage.tokens import Count
from ullage.tokens.calibration import Calibration
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from decimal import Decimal
    from typing import Any

    from ullage.broker.provider import Provider
    from ullage.context import Compress, Context
    from ullage.cost import Reservation
    from ullage.fitting import Fitted
    from ullage.messages import Message
    from ullage.usage import Crossed


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The end of a turn: what it used, what that cost, and what it is the first to have crossed."""

    usage: Usage
    told: bool
    """Whether the provider told the usage; else it is our own estimate."""
    cost: Decimal | None
    """In dollars; None where it is not known."""
    fitted: Fitted
    """The request as it was sent."""
    warnings: tuple[Crossed, ...] = ()


SMALLER = 0.9
"""How much of a request that was refused may be sent again, where nobody says how much is too much."""

TurnEvent: TypeAlias = Event | Settled


class Client:
    """Asks one provider, for as many conversations as there are."""

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
        self.provider = provider
        self.ledger = ledger or Ledger()
        self.calibration = calibration or Calibration()
        self.name = name or provider.model
        """What the bill calls the model, and its prices go by."""
        self.max_output = max_output
        self.local = local
        """Whether a call costs nothing, so that no cap stands against it."""
        self.options = dict(options or {})
        self.use_endpoint = use_endpoint
        """Whether the server is asked to count."""

    async def stream(
        self,
        context: Context,
        *,
        category: str = MAIN,
        system_prompt_override: str | None = None,
        compress: Compress | None = None,
    ) -> AsyncIterator[TurnEvent]:
        """One turn: sends what the context stands at, hands the answer on as it comes, and appends it.

        A provider that finds the request too long teaches calibration, and the turn is refitted once.
        """
        refused, limit = False, None
        while True:
            await context.ready()
            fitted = context.fitted(
                system_prompt_override=system_prompt_override, compress=compress, limit=limit
            )
            call = _Call(self, context, fitted, category)
            try:
                async with aclosing(self.provider.stream(call.ask)) as events:  # type: ignore[type-var]
                    async for event in events:
                        call.hear(event)
                        yield event
            except ContextOverflowError as error:
                call.withdraw()
                if refused or call.begun:
                    raise
                refused, limit = True, self._learn(context, fitted, error)
            except StreamBroken:
                call.end()
                raise
            except ProviderError:
                call.withdraw()
                raise
            except BaseException:  # cancelled, or nobody listens any more: it has been paid for all the same
                call.end()
                raise
            else:
                yield call.end()
                return

    async def count(self, context: Context) -> Count:
        """What the next request costs: by the server's own count where that is switched on and it can."""
        fitted = context.fitted()
        told = await self.provider.count(self._ask(context, fitted)) if self.use_endpoint else None
        return (
            fitted.count if told is None else Count(told, told, exact=True, breakdown=fitted.count.breakdown)
        )

    def longest_answer(self, context: Context) -> int | None:
        """The most tokens of an answer: as it is asked for, as the model is known for, or a window."""
        known = model_info(self.provider.model)
        return self.max_output or (known.max_output if known else None) or context.bounds.window

    def _learn(self, context: Context, fitted: Fitted, error: ContextOverflowError) -> int:
        """Takes a refusal for what it says, a larger count or a smaller window; gives the next limit."""
        factor = self.calibration.overflowed(*self._key, fitted.estimate, error.told)
        context.recalibrate(factor, at_once=True)
        room = error.limit - (self.max_output or 0)
        if room > 0:
            context.hold_to(room)
        return min(context.limit, factor.ceiling(int(fitted.estimate.ceiling * SMALLER)))

    @property
    def _key(self) -> tuple[str, str]:
        return self.provider.endpoint, self.provider.model

    def _ask(self, context: Context, fitted: Fitted) -> Ask:
        return Ask(
            messages=tuple(fitted.messages),
            tools=tuple(context.bounds.tools or ()),
            max_output=self.max_output,
            window=context.bounds.window,
            options=self.options,
        )


@dataclass(slots=True)
class _Call:
    """One request under way: what is held for it, and what has come back."""

    client: Client
    context: Context
    fitted: Fitted
    category: str
    ask: Ask = field(init=False)
    begun: bool = False
    _held: Reservation = field(init=False)
    _text: list[str] = field(default_factory=list)
    _calls: list[ToolCall] = field(default_factory=list)
    _usage: Usage | None = None
    _finished: bool = False

    def __post_init__(self) -> None:
        client = self.client
        self.ask = client._ask(self.context, self.fitted)  # noqa: SLF001 - the other half of one thing
        self._held = client.ledger.reserve(
            client.name,
            self.fitted.count.ceiling,
            client.longest_answer(self.context),
            category=self.category,
            local=client.local,
        )

    def hear(self, event: Event) -> None:
        """Notes what an event brings."""
        self.begun = True
        if isinstance(event, Text):
            self._text.append(event.text)
        elif isinstance(event, ToolCall):
            self._calls.append(event)
        elif isinstance(event, Used):
            self._usage = event.usage
        elif isinstance(event, Finished):
            self._finished = True

    def withdraw(self) -> None:
        """Nothing was answered and nothing is charged."""
        self.client.ledger.release(self._held)

    def end(self) -> Settled:
        """Appends what arrived, and settles with what is known."""
        client, context, estimate = self.client, self.context, self.fitted.count.tokens
        usage = self._usage or self._estimated()
        try:
            reply = self._reply()
            if reply is not None:
                context.append(reply)
        finally:
            client.ledger.settle(self._held, usage, estimate)
        if self._usage is not None and self._usage.prompt:
            client.calibration.observe(*client._key, self.fitted.estimate, self._usage.prompt)  # noqa: SLF001
            context.recalibrate(client.calibration.factor(*client._key))  # noqa: SLF001
        cost = None if client.local else cost_of(usage, prices_of(client.name, client.ledger.prices))
        warnings = context.add_usage(client.name, usage, self.category, cost=cost, estimate=estimate)
        return Settled(
            usage=usage, told=self._usage is not None, cost=cost, fitted=self.fitted, warnings=warnings
        )

    def _reply(self) -> Message | None:
        """The answer as a turn; of one that broke off its text, as a call may be without its end."""
        text = "".join(self._text)
        if self._calls and self._finished:
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self._calls
            ]
            return {"role": "assistant", "content": text or None, "tool_calls": calls}
        return {"role": "assistant", "content": text} if text or self._finished else None

    def _estimated(self) -> Usage:
        written = "".join([*self._text, *(call.arguments for call in self._calls)])
        completion = self.context.bounds.counter().text(written).tokens
        return Usage(prompt=self.fitted.count.tokens, completion=completion)
