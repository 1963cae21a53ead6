"""The destination of a request: its address, model and API.

Two APIs of one model charge for the same request by different rules, and two servers run one model with
different templates. So counters, windows, conversations and calibration take a `Target`. Public functions
also accept a model's name alone; the address and the API are then unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ullage.errors import ConfigurationError

ApiName: TypeAlias = Literal[
    "openai.chat",
    "openai.responses",
    "openai.responses.input_tokens",
    "anthropic.messages",
    "anthropic.count_tokens",
    "gemini",
    "gemini.count_tokens",
    "bedrock.converse",
    "bedrock.invoke",
    "ollama.chat",
    "cohere.chat.v1",
    "cohere.chat.v2",
]
"""The name of an API whose requests Ullage reads; `ullage.wire` has an object for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One model behind one API at one address."""

    model: str | None = None
    """Name of the model; None if unknown: then only an estimate for any model is possible."""
    api: ApiName | None = None
    """Name of the API; None if unknown."""
    endpoint: str = ""
    """Address without credentials; empty if unknown."""

    def __post_init__(self) -> None:
        for name, value in (("model", self.model), ("api", self.api), ("endpoint", self.endpoint)):
            if not isinstance(value, str) and (value is not None or name == "endpoint"):
                raise ConfigurationError(f"{name} of a Target must be a string, not {type(value).__name__}")


ModelLike: TypeAlias = str | Target | None
"""A model's name or target; None for an unknown model."""


def target_of(model: ModelLike) -> Target:
    """Returns the target; raises ConfigurationError for anything but a name, a Target or None."""
    if isinstance(model, Target):
        return model
    if model is None or (isinstance(model, str) and model):
        return Target(model=model)
    given = "an empty text" if model == "" else f"a value of type {type(model).__name__}"
    raise ConfigurationError(f"model must be a model's name or a Target, not {given}")
