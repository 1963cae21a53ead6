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
