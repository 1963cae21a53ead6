"""The upstream of each model name, and the window of each model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.broker.registry import endpoint_for
from ullage.broker.window_routes import Windows
from ullage.errors import ConfigurationError
from ullage.gateway.refusals import Refused
from ullage.gateway.upstream import PATIENT, Upstream, is_anthropic
from ullage.models import model_info
from ullage.session.endpoint import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ullage.broker.http import Transport
    from ullage.config import ModelSettings
    from ullage.target import ApiName

ANY = "*"
"""The name in the table that stands for all names without a row."""
MOST_LISTED = 20
"""Most names in the refusal of an unknown one."""
LONGEST_NAME = 500
"""Most characters of a model's name. What is remembered about a model is kept under its name."""


class Room(NamedTuple):
    """The limits of a model: its window, and the most input tokens if they are fewer."""

    window: int
    max_input: int | None = None


def any_model_at(
    url: str, window: int | None, environ: Mapping[str, str], api: ApiName | None = None
) -> dict[str, Upstream]:
    """Returns the table for `--upstream`: every name goes to this address, and the client's key with it.

    `api` is the only API that the server is asked in; None if it may have all three.
    """
    endpoint = endpoint_for(url, environ=environ)
    upstream = Upstream(
        endpoint=replace(endpoint, window=window, timeouts=PATIENT),
        api=api,
        binds_thinking=is_anthropic(endpoint.url),
    )
    return {ANY: upstream}


def read_configured_models(
    models: Iterable[ModelSettings], environ: Mapping[str, str]
) -> tuple[dict[str, Upstream], list[str]]:
    """Returns the table of configured models by their names, and a notice for each that cannot be served."""
    table: dict[str, Upstream] = {}
    notices: list[str] = []
    for model in models:
        try:
            endpoint = endpoint_of(model, environ)
        except ConfigurationError as error:
            notices.append(f"{model.name} is not served: {error}")
            continue
        table[model.name] = Upstream(
            endpoint=endpoint,
            renamed=endpoint.model != model.name,
            billed_as=model.name,
            api=model.api,
            binds_thinking=is_anthropic(endpoint.url),
        )
    return table, notices


class Upstreams:
    """The table of upstreams by model name."""

    def __init__(self, table: Mapping[str, Upstream], transport: Transport) -> None:
        if not table:
            raise ConfigurationError("the gateway has no model: name one with --model or --upstream")
        self.table = table
        self._transport = transport
        self._windows = Windows()

    def find(self, model: str) -> Upstream:
        """Returns the upstream of a model name; refuses an unknown name."""
        found = self.table.get(model) or self.table.get(ANY)
        if found is None:
            names = sorted(self.table)
            known = ", ".join(names[:MOST_LISTED]) + (", …" if len(names) > MOST_LISTED else "")
            raise Refused("model", f"The model {model[:100]!r} does not exist here. Available: {known}")
        return found

    def api_of(self, upstream: Upstream, model: str, api: ApiName) -> ApiName:
        """Returns the API that a request is sent in; refuses a model that has none of the gateway's."""
        found = upstream.api_for(api)
        if found is None:
            raise Refused(
                "model",
                f"{model[:100]!r} is a model of {upstream.endpoint.api}, which the gateway does not serve: "
                "choose another model",
            )
        return found

    async def room_of(self, upstream: Upstream, model: str) -> Room | None:
        """Returns the limits of a model: as configured, stated by its server, or in the table; or None."""
        name = upstream.endpoint.model if upstream.renamed else model
        endpoint = upstream.endpoint
        if endpoint.window is None and endpoint.model != name:  # the server is asked about this model
            endpoint = replace(endpoint, model=name)
        window = await self._windows.window_of(endpoint, self._transport)
        if window is not None:
            return Room(window)
        info = model_info(name)
        return None if info is None else Room(info.window, info.max_input)


def read_model_name(body: Mapping[str, Any]) -> str:
    """Returns the model that a request names; refuses a request without one, and a name that is too long."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused("invalid", "the request names no model: set the field 'model'")
    if len(model) > LONGEST_NAME:
        raise Refused("model", f"The name of the model has more than {LONGEST_NAME} characters: shorten it")
    return model
