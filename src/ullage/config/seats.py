"""A seat: a model of the configuration, opened, and what a conversation is held to while it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.broker.opening import LOCAL_OUTPUT
from ullage.config.using import compress_of, opened
from ullage.turn import Client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.broker.opening import Opened
    from ullage.config.settings import ModelSettings, Settings
    from ullage.context import Compress
    from ullage.cost import Ledger
    from ullage.tokens.calibration import Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Whoever answers: a model, asked through its client."""

    model: ModelSettings
    client: Client
    held: Mapping[str, Any]
    """Its name, window, room for an answer and calibration, as `Context.use_model` takes them."""
    compress: Compress | None
    """The short form that it gets; None for the whole conversation."""
    prompt: str | None = None
    """In the place of the conversation's own; None for that."""

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
    held = {
        "model": provider.model,
        "window": window,
        "reserved_output": reserved,
        "factor": calibration.factor(provider.endpoint, provider.model),
    }
    return Seat(model=model, client=client, held=held, compress=compress_of(settings, model))
