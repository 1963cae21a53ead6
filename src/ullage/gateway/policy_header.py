"""The header `x-ullage-policy`: the rules of a trim for the conversation of this request.

x-ullage-policy: {"max_age": 3, "keep_first_user": false}
x-ullage-policy: max_age=3, keep_first_user=false
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.cost.keys import POLICY_FIELDS, check_policy
from ullage.errors import ConfigurationError
from ullage.fitting import FitPolicy
from ullage.gateway.fit_policy import POLICY
from ullage.gateway.refusals import Refused

if TYPE_CHECKING:
    from ullage.cost.keys import GatewayKey

HEADER = "x-ullage-policy"


class RequestPolicy(NamedTuple):
    """The policy of a request."""

    policy: FitPolicy
    name: str
    """Conversations with different names have windows of their own."""
    fields: tuple[str, ...]
    """The fields that the request sets."""


def policy_of(text: str, key: GatewayKey | None, *, recall: bool) -> tuple[FitPolicy, str]:
    """Returns the policy of a request and its name; raises KeyRefused if the key may not set it."""
    policy, name, fields = read_policy(text, recall=recall)
    if key is not None:
        check_policy(key, fields)
    return policy, name


@lru_cache(maxsize=256)
def read_policy(text: str, *, recall: bool) -> RequestPolicy:
    """Returns the policy of a request; refuses an unknown field, and a value that it cannot have."""
    given = _object(text.strip())
    for field in given:
        if field not in POLICY_FIELDS:
            raise Refused(
                "invalid",
                f"the header {HEADER} has the unknown field {field[:80]!r}: use one of "
                f"{', '.join(POLICY_FIELDS)}",
            )
    for field, value in given.items():
        try:
            FitPolicy(**{field: value})
        except (ConfigurationError, TypeError, ValueError) as error:
            raise Refused(
                "invalid", f"the header {HEADER} has a wrong value for {field!r}: {error}"
            ) from None
    name = orjson.dumps({**given, "recall": recall}, option=orjson.OPT_SORT_KEYS).decode()
    return RequestPolicy(replace(POLICY, **given, recall=recall), name, tuple(given))


def _object(text: str) -> dict[str, Any]:
    """Returns the fields of a JSON object, or of a list of names with values."""
    if not text:
        return {}
    if text.startswith("{"):
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise Refused("invalid", f"the header {HEADER} is no valid JSON: {error}") from None
        return dict(value)
    found: dict[str, Any] = {}
    for pair in text.split(","):
        name, equals, value = (each.strip() for each in pair.partition("="))
        if not equals:
            raise Refused("invalid", f"the header {HEADER} has {pair.strip()[:80]!r}: write name=value")
        try:
            found[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            found[name] = value
    return found
