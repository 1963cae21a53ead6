"""The OpenAI SDK: a client whose chat completions and responses fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ullage.errors import ConfigurationError, MissingHost
from ullage.intake import kind_of
from ullage.integrations.fitter import BodyFitter
from ullage.integrations.sdk_client import wrap_client

try:
    from openai import AsyncOpenAI, NotGiven, Omit, OpenAI
except ImportError as error:
    raise MissingHost("the OpenAI SDK", "openai>=2", str(error)) from error

if TYPE_CHECKING:
    from typing import Unpack

    from ullage.integrations.fitter import FitterOptions

C = TypeVar("C", bound=OpenAI | AsyncOpenAI)


def fit_client(client: C, **options: Unpack[FitterOptions]) -> C:
    """Returns a copy of the client whose requests fit in `limit` input tokens, less `reserve` if given too.

    Without a limit, the table of models has the window of each request's model. The given client is
    not changed; the copy shares its connections.
    """
    if not isinstance(client, OpenAI | AsyncOpenAI):
        raise ConfigurationError(f"client must be an OpenAI or AsyncOpenAI client, not {kind_of(client)}")
    chat, responses = (BodyFitter(api, **options) for api in ("openai.chat", "openai.responses"))
    return wrap_client(client, {"/chat/completions": chat, "/responses": responses}, (NotGiven, Omit))
