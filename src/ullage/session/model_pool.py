"""Open models: each configured model is opened once, and all are closed together."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ullage.broker.embedded_info import EMBEDDED
from ullage.broker.resolve import LOCAL_OUTPUT, Opened
from ullage.categories import MAIN
from ullage.context import Compress
from ullage.session.budget import budget_for
from ullage.session.endpoint import open_provider_of
from ullage.turn import Client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.endpoint_counter import EndpointCounter
    from ullage.config.settings import ModelSettings, Settings
    from ullage.cost import Ledger
    from ullage.target import Target
    from ullage.tokens import Tokenizer
    from ullage.tokens.calibration import Calibration, Factor

PROMPTS = {EMBEDDED: "You are a helpful assistant. Answer in a few short sentences."}
"""Model → its own system prompt. The usual one asks for commands, which misleads the embedded model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The limits of a conversation with one model, and the rules that count its texts."""

    target: Target
    token_budget: int | None
    """None for all that the window leaves."""
    window: int | None
    reserved_output: int | None
    """The part of the window that is kept for the answer."""
    tokenizer: Tokenizer | None
    """None for the tokenizer of the model's family."""
    factor: Factor


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """A model that can be asked through its client."""

    model: ModelSettings
    client: Client
    window: int | None
    token_budget: int | None
    """The configured budget; None for the budget that follows the model."""
    compress: Compress | None
    """The short form of the conversation that the model gets; None for the whole conversation."""
    prompt: str | None = None
    """The system prompt of its turns; None for the conversation's own."""
    counter: EndpointCounter | None = None
    """The counts that servers have returned in this session; None if no server counts."""

    @property
    def limits(self) -> ModelLimits:
        """The limits of a conversation with this model, as calibrated so far."""
        tokenizer, factor = self.client.counts.current
        target = self.client.provider.target
        return ModelLimits(
            target=target,
            token_budget=budget_for(self.token_budget, target, self.window),
            window=self.window,
            reserved_output=self.client.max_output,
            tokenizer=tokenizer,
            factor=factor,
        )

    async def close(self) -> None:
        """Closes the model."""
        await self.client.provider.close()


async def open_model_for(
    model: ModelSettings,
    settings: Settings,
    *,
    environ: Mapping[str, str],
    ledger: Ledger,
    calibration: Calibration,
    max_output: int | None = None,
    counter: EndpointCounter | None = None,
) -> OpenModel:
    """Opens a model and finds its window; raises the errors of `open_provider_of`.

    `counter` belongs to the session; None for the first model of a session.
    """
    counter = counter or _counter_of(settings)
    found = open_provider_of(model, environ, counter)
    try:
        open_model = await open_model_on(
            found, model, settings, ledger=ledger, calibration=calibration, max_output=max_output
        )
        return replace(open_model, counter=counter)
    except BaseException:
        await found.provider.close()
        raise


async def open_model_on(
    found: Opened,
    model: ModelSettings,
    settings: Settings,
    *,
    ledger: Ledger,
    calibration: Calibration,
    max_output: int | None = None,
) -> OpenModel:
    """Returns an open model with an open provider; `max_output` replaces the configured value."""
    provider = found.provider
    window = await found.window(model.window)
    reserved = max_output or settings.context.reserved_output
    if reserved is None and found.local and window is not None:
        reserved = min(LOCAL_OUTPUT, window // 4)
    client = Client(
        provider,
        ledger=ledger,
        calibration=calibration,
        name=model.name if model.name in settings.models else None,
        max_output=reserved,
        local=found.local,
        use_endpoint=settings.tokenize.use_endpoint,
    )
    return OpenModel(
        model=model,
        client=client,
        window=window,
        token_budget=settings.context.token_budget,
        compress=compress_of(settings, model),
        prompt=None if MAIN in settings.routing.system_prompts else PROMPTS.get(model.name),
    )


def compress_of(settings: Settings, model: ModelSettings) -> Compress | None:
    """Returns the short form of conversations for this model; None if it gets whole conversations."""
    short = settings.context.compress
    return Compress(short.keep_turns, short.max_turn_chars) if model.local_compress else None


def _counter_of(settings: Settings) -> EndpointCounter | None:
    """Returns a counter for a new session; None if servers are not configured to count."""
    if not settings.tokenize.use_endpoint:
        return None
    from ullage.broker.endpoint_counter import EndpointCounter  # noqa: PLC0415 - only needed if the setting is on

    return EndpointCounter(use_endpoint=True)


class ModelPool:
    """The open models by name: each is opened once, and all are closed together.

    They belong to one event loop. A model in this process is loaded once and may answer on other loops too.
    """

    def __init__(self, first: OpenModel, settings: Settings, environ: Mapping[str, str]) -> None:
        self.ledger = first.client.ledger
        """The ledger for models that are opened from now on."""
        self.calibration = first.client.counts.calibration
        self._counter = first.counter or _counter_of(settings)
        self._settings = settings
        self._environ = environ
        self._open = {first.model.name: first}
        self._loading = threading.Lock()
        self._loaded: dict[str, Opened] = {}
        if first.model.runs_here:
            self._loaded[first.model.name] = Opened(first.client.provider, first.client.local)

    async def get(self, model: ModelSettings) -> OpenModel:
        """Returns a model; opens it first if necessary."""
        if model.name not in self._open:
            self._open[model.name] = await self._open_model(model)
        return self._open[model.name]

    async def open_for_other_loop(self, model: ModelSettings, closing: AsyncExitStack) -> OpenModel:
        """Opens a model for another event loop with its own client; `closing` closes its connection."""
        open_model = await self._open_model(model)
        if not model.runs_here:
            closing.push_async_callback(open_model.close)
        return open_model

    async def close_unless_routed(self, open_model: OpenModel) -> None:
        """Closes a model, unless a category of questions is routed to it."""
        if open_model.model.name not in self._settings.routing.models.values():
            with self._loading:
                self._loaded.pop(open_model.model.name, None)
            del self._open[open_model.model.name]
            await open_model.close()

    def use_ledger(self, ledger: Ledger) -> None:
        """Books all calls from now on in this ledger."""
        self.ledger = ledger
        for open_model in self._open.values():
            open_model.client.ledger = ledger

    async def close(self) -> None:
        """Closes all models, even if one of them fails; raises the error of the last that failed."""
        with self._loading:
            providers = [found.provider for found in self._loaded.values()]
        providers += [open_model.client.provider for open_model in self._open.values()]
        async with AsyncExitStack() as closing:
            for provider in {id(each): each for each in providers}.values():
                closing.push_async_callback(provider.close)

    async def _open_model(self, model: ModelSettings) -> OpenModel:
        if not model.runs_here:
            return await open_model_for(
                model,
                self._settings,
                environ=self._environ,
                ledger=self.ledger,
                calibration=self.calibration,
                counter=self._counter,
            )
        with self._loading:
            found = self._loaded.get(model.name) or open_provider_of(model, self._environ)
            self._loaded[model.name] = found
        return await open_model_on(
            found, model, self._settings, ledger=self.ledger, calibration=self.calibration
        )
