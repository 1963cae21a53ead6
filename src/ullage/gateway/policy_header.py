"""The header `x-ullage-policy`: the rules of a trim for the conversation of this request.

x-ullage-policy: {"max_age": 3, "keep_first_user": false}
x-ullage-policy: max_age=3, keep_first_user=false
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson

from ullage.errors import ConfigurationError
from ullage.fitting import FitPolicy
from ullage.gateway.fit_policy import POLICY
from ullage.gateway.refusals import Refused

HEADER = "x-ullage-policy"
KNOBS = (
    "max_age",
    "max_tokens_per_output",
    "preserve_errors",
    "preserve_small_outputs",
    "small_output_threshold",
    "preserve_recent_turns",
    "keep_first_user",
    "digest_share",
    "recall_share",
    "low_water",
    "max_turns",
)
"""The fields of `FitPolicy` that a request may set. The others name single messages or run code."""


@lru_cache(maxsize=256)
def read_policy(text: str, *, recall: bool) -> tuple[FitPolicy, str]:
    """Returns the policy of a request and its name; refuses an unknown knob, and a value that it cannot have.

    Conversations with different names have windows of their own.
    """
    given = _object(text.strip())
    for knob in given:
        if knob not in KNOBS:
            raise Refused(
                "invalid",
                f"the header {HEADER} has the unknown knob {knob[:80]!r}: use one of {', '.join(KNOBS)}",
            )
    for knob, value in given.items():
        try:
            FitPolicy(**{knob: value})
        except (ConfigurationError, TypeError, ValueError) as error:
            raise Refused("invalid", f"the header {HEADER} has a wrong value for {knob!r}: {error}") from None
    name = orjson.dumps({**given, "recall": recall}, option=orjson.OPT_SORT_KEYS).decode()
    return replace(POLICY, **given, recall=recall), name


def _object(text: str) -> dict[str, Any]:
    """Returns the knobs of a JSON object, or of a list of names with values."""
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
