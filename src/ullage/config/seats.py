"""A seat: a model of the configuration, opened, and what a conversation is held to while it answers."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.broker.opening import LOCAL_OUTPUT, Opened
from ullage.config.using import compress_of, opened, runs_here
from ullage.turn import Client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.config.settings import ModelSettings, Settings
    from ullage.context import Compress
    from ullage.cost import Ledger
    from ullage.tokens.calibration import Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Whoever answers: a model, asked through its client."""

    model: ModelSettings
    client: Client
    window: int | None
    compress: Compress | None
    """The short form that it gets; None for the whole conversation."""
    prompt: str | None = None
    """In the place of the conversation's own; None for that."""

    @property
    def held(self) -> Mapping[str, Any]:
        """What `Context.use_model` takes: name, window, room for an answer, and what was learned by now."""
        provider = self.client.provider
        return {
            "model": provider.model,
            "window": self.window,
            "reserved_output": self.client.max_output,
            "factor": self.client.calibration.factor(provider.endpoint, provider.model),
        }

    async def close(self) -> None:
        """Lets go of the model."""
        await self.client.provider.close()


async def seat_for(
    model: ModelSettings,
    settings: Settings,
    *,
    environ: Mapping[str, str],
    ledger: Ledger,
    calibration: Calibration,
    max_output: int | None = None,
) -> Seat:
    """Opens a model and asks it for its window; raises as `opened` does, and leaves nothing open then."""
    found = opened(model, environ)
    try:
        return await seated(
            found, model, settings, ledger=ledger, calibration=calibration, max_output=max_output
        )
    except BaseException:
        await found.provider.close()
        raise


async def seated(
    found: Opened,
    model: ModelSettings,
    settings: Settings,
    *,
    ledger: Ledger,
    calibration: Calibration,
    max_output: int | None = None,
) -> Seat:
    """A seat for a provider that is open; `max_output` goes before what is configured."""
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
    return Seat(model=model, client=client, window=window, compress=compress_of(settings, model))


class Seats:
    """The models that are open, by name: each is opened once, and all are let go of together.

    They live on one loop. A model that runs in this process may answer on others too: it is loaded once.
    """

    def __init__(self, first: Seat, settings: Settings, environ: Mapping[str, str]) -> None:
        self.ledger = first.client.ledger
        """The bill of those that are opened from now on."""
        self.calibration = first.client.calibration
        self._settings = settings
        self._environ = environ
        self._open = {first.model.name: first}
        self._loading = threading.Lock()
        self._loaded: dict[str, Opened] = {}
        if runs_here(first.model):
            self._loaded[first.model.name] = Opened(first.client.provider, first.client.local)

    async def get(self, model: ModelSettings) -> Seat:
        """The seat of a model, opened where it is not open yet."""
        if model.name not in self._open:
            self._open[model.name] = await self._opened(model)
        return self._open[model.name]

    async def elsewhere(self, model: ModelSettings, closing: AsyncExitStack) -> Seat:
        """A seat for another loop, with a client of its own; a connection is ended with `closing`."""
        seat = await self._opened(model)
        if not runs_here(model):
            closing.push_async_callback(seat.close)
        return seat

    async def let_go(self, seat: Seat) -> None:
        """Closes a model that no class of turns has."""
        if seat.model.name not in self._settings.routing.models.values():
            with self._loading:
                self._loaded.pop(seat.model.name, None)
            del self._open[seat.model.name]
            await seat.close()

    def bill(self, ledger: Ledger) -> None:
        """From now on all that is asked is on this bill."""
        self.ledger = ledger
        for seat in self._open.values():
            seat.client.ledger = ledger

    async def close(self) -> None:
        """Lets go of all of them, whatever one of them does; raises what the last that failed did."""
        with self._loading:
            providers = [found.provider for found in self._loaded.values()]
        providers += [seat.client.provider for seat in self._open.values()]
        async with AsyncExitStack() as closing:
            for provider in {id(each): each for each in providers}.values():
                closing.push_async_callback(provider.close)

    async def _opened(self, model: ModelSettings) -> Seat:
        settings = self._settings
        asked: Any = {"ledger": self.ledger, "calibration": self.calibration}
        if not runs_here(model):
            return await seat_for(model, settings, environ=self._environ, **asked)
        with self._loading:
            found = self._loaded.get(model.name) or opened(model, self._environ)
            self._loaded[model.name] = found
        return await seated(found, model, settings, **asked)
