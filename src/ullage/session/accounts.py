"""The ledger and the meter of a session, with the caps and the warnings of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.config.prices import prices_by_name
from ullage.cost import Ledger
from ullage.usage import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from ullage.config import Settings
    from ullage.cost import Prices
    from ullage.cost.keys import GatewayKey
    from ullage.store import Store


def ledger_for(
    settings: Settings,
    kept: Store,
    session: str,
    project: str,
    *,
    cap_at_dollars: Decimal | str | None = None,
    key: GatewayKey | None = None,
    prices: Mapping[str, Prices] | None = None,
) -> Ledger:
    """Returns the ledger of a session; `cap_at_dollars` replaces the configured cap of a session.

    With a gateway key, the caps of the key apply too. `prices` are those of the settings, if the caller has
    them already.
    """
    cost = settings.cost
    return Ledger(
        book=kept.book,
        session=session,
        project=project,
        prices=prices_by_name(settings) if prices is None else prices,
        cap_at_dollars=cost.cap_at_dollars if cap_at_dollars is None else cap_at_dollars,
        cap_at_dollars_a_day=cost.cap_at_dollars_a_day,
        cap_at_dollars_a_project=cost.cap_at_dollars_a_project,
        key=key,
    )


def meter_for(settings: Settings) -> Meter:
    """Returns a meter that warns at the configured cost and number of tokens."""
    return Meter(warn_at_dollars=settings.cost.warn_at_dollars, warn_at_tokens=settings.cost.warn_at_tokens)
