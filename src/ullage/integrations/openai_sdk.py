"""The OpenAI SDK: a client whose chat completions and responses fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ullage.errors import ConfigurationError, MissingHost
from ullage.intake import kind_of
from ullage.integrations.fitter import BodyFitter
from ullage.integrations.sdk_client import wrap_client

try:
    from openai import AsyncOpenAI, OpenAI
except ImportError as error:
    raise MissingHost("the OpenAI SDK", "openai>=2", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.fitting import FitPolicy, Fitted
    from ullage.target import ModelLike

C = TypeVar("C", bound=OpenAI | AsyncOpenAI)


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
    if not isinstance(client, OpenAI | AsyncOpenAI):
        raise ConfigurationError(f"client must be an OpenAI or AsyncOpenAI client, not {kind_of(client)}")
    chat, responses = (
        BodyFitter(api, model=model, limit=limit, reserve=reserve, policy=policy, report=report)
        for api in ("openai.chat", "openai.responses")
    )
    return wrap_client(client, {"/chat/completions": chat, "/responses": responses})
