"""Clients of the OpenAI and Anthropic SDKs whose requests fit.

Both SDKs send every request through the client's `request`, whether a call streams or parses its answer. A
copy of the client gets a `request` that fits the body first. So all methods return the SDK's own types.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ullage.integrations.fitter import run_aside

if TYPE_CHECKING:
    from ullage.integrations.fitter import BodyFitter

C = TypeVar("C")
"""The class of the client."""


def wrap_client(client: C, fitters: Mapping[str, BodyFitter], omitted: tuple[type, ...]) -> C:
    """Returns a copy of a client that fits the bodies for the paths in `fitters`.

    Other requests are not touched. The copies that `with_options` and `copy` make fit them as well. `omitted`
    are the SDK's types for options that were not given.
    """
    given: Any = client
    copied = given.copy()
    send, copy = copied.request, copied.copy

    def fit_body(options: Any) -> None:
        fitter = fitters.get(options.url.partition("?")[0]) if options.method == "post" else None
        if fitter is not None and isinstance(options.json_data, dict):
            body = {name: _make_list(value) for name, value in options.json_data.items()}
            named = {name: value for name, value in body.items() if not isinstance(value, omitted)}
            options.json_data = dict(fitter.fit(named).body)

    def request(cast_to: Any, options: Any, **more: Any) -> Any:
        fit_body(options)
        return send(cast_to, options, **more)

    async def request_async(cast_to: Any, options: Any, **more: Any) -> Any:
        # A long history that is new would hold up the event loop.
        await run_aside(fit_body, options)
        return await send(cast_to, options, **more)

    def copy_fitted(**options: Any) -> Any:
        return wrap_client(copy(**options), fitters, omitted)

    copied.request = request_async if inspect.iscoroutinefunction(send) else request
    copied.copy = copied.with_options = copy_fitted
    made: C = copied
    return made


def _make_list(value: Any) -> Any:
    """Returns a list for a generator or another collection, which the SDKs accept in place of a list."""
    if isinstance(value, str | Mapping) or hasattr(value, "model_dump") or not isinstance(value, Iterable):
        return value
    return value if isinstance(value, list) else list(value)
