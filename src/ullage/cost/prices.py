"""Prices of tokens, and the cost of a call.

Cached tokens are part of the prompt, and reasoning is part of the output. Each part is charged once, at its
own price. A part without a price is charged like its total: cached input as input, reasoning as output.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.models import model_info
from ullage.usage import MONEY, dollars, read_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.usage import Usage

MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a model in US dollars per token; None is unknown, 0 is free."""

    input: Decimal | None = None
    output: Decimal | None = None
    cached_read: Decimal | None = None
    """Price of input read from the provider's prompt cache; None means the input price."""
    cache_write: Decimal | None = None
    """Price of input written to the provider's prompt cache; None means the input price."""
    reasoning: Decimal | None = None
    """Price of reasoning output; None means the output price."""

    def __post_init__(self) -> None:
        for field in fields(self):
            price = getattr(self, field.name)
            if price is not None and not (isinstance(price, Decimal) and price.is_finite() and price >= 0):
                raise ConfigurationError(
                    f"the price {field.name} must be a Decimal in dollars per token, not {price!r}; "
                    "Prices.a_million(input=2.5, output=10) takes dollars per million tokens"
                )

    @classmethod
    def a_million(
        cls,
        *,
        input: Decimal | float | str | None = None,  # noqa: A002 - the field's name
        output: Decimal | float | str | None = None,
        cached_read: Decimal | float | str | None = None,
        cache_write: Decimal | float | str | None = None,
        reasoning: Decimal | float | str | None = None,
    ) -> Prices:
        """Returns Prices from dollars per million tokens, as providers publish them."""

        def a_token(price: Decimal | float | str | None, name: str) -> Decimal | None:
            return None if price is None else MONEY.divide(dollars(price, f"the price {name}"), MILLION)

        return cls(
            input=a_token(input, "input"),
            output=a_token(output, "output"),
            cached_read=a_token(cached_read, "cached_read"),
            cache_write=a_token(cache_write, "cache_write"),
            reasoning=a_token(reasoning, "reasoning"),
        )


UNKNOWN = Prices()


def prices_of(model: str, own: Mapping[str, Prices] | None = None) -> Prices:
    """Returns a model's prices from the caller's table, else from the model table, else unknown prices."""
    name = model.strip().lower()
    for each, prices in (own or {}).items():
        if each.strip().lower() == name:
            return prices
    info = model_info(model)
    if info is None:
        return UNKNOWN
    return Prices(**{field.name: getattr(info, field.name) for field in fields(Prices)})


def cost_of(usage: Usage, prices: Prices) -> Decimal | None:
    """Returns the exact cost of the usage in dollars; None if a needed price is unknown.

    If the provider reports a cost, that cost is returned.
    """
    used = read_usage(usage)
    if used.cost is not None:
        return used.cost
    plain = used.prompt - used.cached_read - used.cache_write
    if plain < 0:  # some tokens were first written and then read, and are charged as both
        plain = used.prompt - max(used.cached_read, used.cache_write)
    return _sum(
        (plain, prices.input),
        (used.cached_read, _first_known(prices.cached_read, prices.input)),
        (used.cache_write, _first_known(prices.cache_write, prices.input)),
        (used.completion - used.reasoning, prices.output),
        (used.reasoning, _first_known(prices.reasoning, prices.output)),
    )


def worst_case(prices: Prices, prompt_ceiling: int, max_output: int) -> Decimal | None:
    """Returns the highest possible cost of a call with at most this many tokens; None if unknown."""
    return _sum(
        (max(0, prompt_ceiling), _highest(prices.input, prices.cached_read, prices.cache_write)),
        (max(0, max_output), _highest(prices.output, prices.reasoning)),
    )


def _sum(*parts: tuple[int, Decimal | None]) -> Decimal | None:
    total = Decimal(0)
    for tokens, price in parts:
        if not tokens:
            continue
        if price is None:
            return None
        total = MONEY.add(total, MONEY.multiply(Decimal(tokens), price))
    return total


def _first_known(*prices: Decimal | None) -> Decimal | None:
    return next((price for price in prices if price is not None), None)


def _highest(whole: Decimal | None, *parts: Decimal | None) -> Decimal | None:
    """Returns the highest price; None if the total has no price, since any token may be charged at it."""
    return None if whole is None else max((whole, *(part for part in parts if part is not None)))
