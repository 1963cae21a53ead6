"""The Anthropic SDK: a client whose messages fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ullage.errors import ConfigurationError, MissingHost
from ullage.intake import kind_of
from ullage.integrations.fitter import BodyFitter
from ullage.integrations.sdk_client import wrap_client

try:
    from anthropic import (
        Anthropic,
        AnthropicBedrock,
        AnthropicVertex,
        AsyncAnthropic,
        AsyncAnthropicBedrock,
        AsyncAnthropicVertex,
    )
except ImportError as error:
    raise MissingHost("the Anthropic SDK", "anthropic>=1", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.fitting import FitPolicy, Fitted
    from ullage.target import ModelLike

AnyClient = (
    Anthropic
    | AsyncAnthropic
    | AnthropicBedrock
    | AsyncAnthropicBedrock
    | AnthropicVertex
    | AsyncAnthropicVertex
)
C = TypeVar("C", bound=AnyClient)


def fit_client(
    client: C,
    *,
    model: ModelLike = None,
    limit: int | None = None,
    reserve: int | None = None,
    policy: FitPolicy | None = None,
    report: Callable[[Fitted[Any]], object] | None = None,
) -> C:
    """Returns a copy of the client whose requests fit in `limit` input tokens, less `reserve` if given too.

    Without a limit, the table of models has the window of each request's model. `model` counts instead of the
    request's own model. `report` is called with the result of each fit. The given client is not changed.
    """
    if not isinstance(client, AnyClient):
        raise ConfigurationError(f"client must be a client of the Anthropic SDK, not {kind_of(client)}")
    fitter = BodyFitter(
        "anthropic.messages", model=model, limit=limit, reserve=reserve, policy=policy, report=report
    )
    return wrap_client(client, {"/v1/messages": fitter})
