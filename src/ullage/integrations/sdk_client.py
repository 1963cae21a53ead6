"""Clients of the OpenAI and Anthropic SDKs whose requests fit.

Both SDKs send every request through `post`, whether a call streams or parses its answer. A copy of the client
gets a `post` that fits the body first. So all methods return the SDK's own types.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.integrations.fitter import BodyFitter

C = TypeVar("C")
"""The class of the client."""


def wrap_client(client: C, fitters: Mapping[str, BodyFitter]) -> C:
    """Returns a copy of a client that fits the bodies for the paths in `fitters`.

    Other requests are not touched. The copies that `with_options` and `copy` make fit them as well.
    """
    given: Any = client
    copied = given.copy()
    send, copy = copied.post, copied.copy

    def fitted(path: str, body: Any) -> Any:
        fitter = fitters.get(path.partition("?")[0])
        return body if fitter is None or not isinstance(body, dict) else dict(fitter.fit(body).body)

    def post(path: str, *, body: Any = None, **options: Any) -> Any:
        return send(path, body=fitted(path, body), **options)

    async def post_async(path: str, *, body: Any = None, **options: Any) -> Any:
        # In a thread, because a long history that is new would hold up the event loop.
        return await send(path, body=await asyncio.to_thread(fitted, path, body), **options)

    def copy_fitted(**options: Any) -> Any:
        return wrap_client(copy(**options), fitters)

    copied.post = post_async if inspect.iscoroutinefunction(send) else post
    copied.copy = copied.with_options = copy_fitted
    made: C = copied
    return made
