"""The Anthropic SDK: a client whose messages fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

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
        NotGiven,
        Omit,
    )
except ImportError as error:
    raise MissingHost("the Anthropic SDK", "anthropic>=1", str(error)) from error

if TYPE_CHECKING:
    from typing import Unpack

    from ullage.integrations.fitter import FitterOptions

AnyClient = (
    Anthropic
    | AsyncAnthropic
    | AnthropicBedrock
    | AsyncAnthropicBedrock
    | AnthropicVertex
    | AsyncAnthropicVertex
)
C = TypeVar("C", bound=AnyClient)


def fit_client(client: C, **options: Unpack[FitterOptions]) -> C:
    """Returns a copy of the client whose requests fit in `limit` input tokens, less `reserve` if given too.

    Without a limit, the table of models has the window of each request's model. The given client is
    not changed; the copy shares its connections.
    """
    if not isinstance(client, AnyClient):
        raise ConfigurationError(f"client must be a client of the Anthropic SDK, not {kind_of(client)}")
    fitter = BodyFitter("anthropic.messages", **options)
    return wrap_client(client, {"/v1/messages": fitter}, (NotGiven, Omit))
