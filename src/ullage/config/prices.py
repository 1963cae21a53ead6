"""The prices of configured models: from the settings, else from the table of models."""
# ruff: noqa: PLC0415 - a configuration without prices loads neither the table nor the providers

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from ullage.config.settings import ModelSettings, Settings
    from ullage.cost import Prices


def prices_by_name(settings: Settings) -> dict[str, Prices]:
    """Returns the prices of all configured models, by their names in the settings."""
    from ullage.cost.prices import Prices, prices_of

    return {
        name: Prices.a_million(**asdict(model.prices)) if model.prices.is_given else prices_of(model.spec)
        for name, model in settings.models.items()
    }


def is_free(model: ModelSettings) -> bool:
    """Returns True if calls cost nothing: the model runs in this process, or on this machine unpriced."""
    if model.runs_here:
        return True
    from ullage.broker.registry import endpoint_for

    try:
        found = endpoint_for(
            model.endpoint or model.spec,
            model=None if model.endpoint is None else model.spec,
            api=model.api,
            environ={},
        )
    except ConfigurationError:  # a provider that needs a key
        return False
    return found.local and not model.prices.is_given
