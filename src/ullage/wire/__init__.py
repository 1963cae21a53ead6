"""Reads every provider's request bodies into one format, and writes them back.

    request = wire.read(body, "anthropic.messages")
    body = wire.write(request, "openai.chat")
    counts = wire.usage_counts(answer["usage"], "anthropic.messages")

Reading never changes the body, and accepts SDK objects inside it. An invalid body raises InvalidRequest,
which names the API and the field. The pairing of calls and results is not checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.errors import InvalidRequest
from ullage.intake import NotPlain, kind_of, plain
from ullage.wire import conversion
from ullage.wire.api import APIS, MODULES, Api, api_of
from ullage.wire.fields import BodyField
from ullage.wire.foreign import check_format
from ullage.wire.original import restore_original
from ullage.wire.request import Request

if TYPE_CHECKING:
    from ullage.target import ApiName


def read(body: Any, api: ApiName) -> Request:
    """Reads a request body of this API; raises InvalidRequest, which names the field, if it is invalid."""
    known = api_of(api)
    place = BodyField(plain_body(body, api), known.name)
    check_format(place.object(), known.name)
    return _read(place, known)


def plain_body(body: Any, api: ApiName) -> Any:
    """Returns a body as dicts, lists and leaves; raises InvalidRequest if no JSON can hold it."""
    try:
        return plain(body)
    except NotPlain as error:
        raise InvalidRequest(str(error), api=api) from None


def _read(body: BodyField, api: Api) -> Request:
    return replace(api.read(body), original=body.value)


def write(request: Request, api: ApiName) -> dict[str, Any]:
    """Writes a request as a body of this API; raises InvalidRequest if a part has no equivalent there.

    On the API that it was read from, everything that was not changed is written as it was.
    """
    known = api_of(api)
    if not isinstance(request, Request):
        raise InvalidRequest(
            f"wire.write needs a Request, as wire.read returns it, not {kind_of(request)}", api=api
        )
    body = known.write(conversion.prepare(request, known.name))
    if request.api == api and request.original is not None:
        before = known.write(_read(BodyField(request.original, api), known))
        return restore_original(request.original, before, body)
    if known.members is not None and request.api != api:
        return {name: value for name, value in body.items() if name in known.members}
    return body


def usage_counts(reported: Any, api: ApiName) -> dict[str, int] | None:
    """Returns the figures in a usage object of this API; None if there is none. Never raises."""
    if (
        not isinstance(reported, (dict, Mapping)) or api not in MODULES
    ):  # most are dicts, which is seen at once
        return None
    return api_of(api).usage_counts(reported)


__all__ = [
    "APIS",
    "Api",
    "InvalidRequest",
    "Request",
    "api_of",
    "plain_body",
    "read",
    "usage_counts",
    "write",
]
