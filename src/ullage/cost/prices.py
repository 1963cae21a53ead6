"""What tokens cost, and what a call of so many does.

Cached tokens are a part of the prompt and reasoning is a part of the output: each part is charged once, at
its own price. Where a part has no price of its own it is charged as the whole it belongs to: cached input
as input, reasoning as output.
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
    """The prices of a model in US dollars a token; None is not known, 0 is free."""

    input: Decimal | None = None
    output: Decimal | None = None
    cached_read: Decimal | None = None
    """Input that is read from the provider's prompt cache; as other input where it is None."""
    cache_write: Decimal | None = None
    """Input that is written to the provider's prompt cache; as other input where it is None."""
    reasoning: Decimal | None = None
    """Output that is reasoning; as other output where it is None."""

    def __post_init__(self) -> None:
        for field in fields(self):
            price = getattr(self, field.name)
            if price is not None and not (isinstance(price, Decimal) and price.is_finite() and price >= 0):
                raise ConfigurationError(
                    f"the price {field.name} is a Decimal of dollars a token, {price!r} is not; "
                    "Prices.a_million(input=2.5, output=10) takes dollars a million tokens"
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
        """The prices as providers write them: dollars a million tokens."""

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
    """The prices of a model: from the caller's own table, else from the model table, else unknown."""
    name = model.strip().lower()
    for each, prices in (own or {}).items():
        if each.strip().lower() == name:
            return prices
    info = model_info(model)
    if info is None:
        return UNKNOWN
    return Prices(**{field.name: getattr(info, field.name) for field in fields(Prices)})


def cost_of(usage: Usage, prices: Prices) -> Decimal | None:
    """What the usage costs in dollars, exactly; None where a price that it takes is not known.

    What the provider says that it charged comes first.
    """
    told = read_usage(usage)
    if told.cost is not None:
        return told.cost
    plain = told.prompt - told.cached_read - told.cache_write
    if plain < 0:  # some tokens were written and then read, and are charged as both
        plain = told.prompt - max(told.cached_read, told.cache_write)
    return _sum(
        (plain, prices.input),
        (told.cached_read, _first_known(prices.cached_read, prices.input)),
        (told.cache_write, _first_known(prices.cache_write, prices.input)),
        (told.completion - told.reasoning, prices.output),
        (told.reasoning, _first_known(prices.reasoning, prices.output)),
    )


def worst_case(prices: Prices, prompt_ceiling: int, max_output: int) -> Decimal | None:
    """The most that a call of at most so many tokens can cost; None where that is not known."""
    return _sum(
        (max(0, prompt_ceiling), _dearest(prices.input, prices.cached_read, prices.cache_write)),
        (max(0, max_output), _dearest(prices.output, prices.reasoning)),
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


def _dearest(whole: Decimal | None, *parts: Decimal | None) -> Decimal | None:
    """The highest price; None where the whole has none, as any token may be charged as that."""
    return None if whole is None else max((whole, *(part for part in parts if part is not None)))
