"""Writes tool calls and their results as the text that a provider puts into the prompt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def compact(arguments: str) -> str:
    """Returns JSON without spaces between its tokens; any other text unchanged."""
    if '": ' not in arguments and ", " not in arguments and "\n" not in arguments:
        return arguments
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments


def arguments_in(arguments: str) -> int:
    """Returns the number of arguments of a call; 0 if the arguments are not a JSON object."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return 0
    return len(found) if isinstance(found, dict) else 0


def wrapped(calls: Iterable[tuple[str, str]]) -> str:
    """Returns parallel calls (name, arguments) as the single call that OpenAI makes of them."""
    uses = (
        f'{{"recipient_name":"functions.{name}","parameters":{compact(arguments)}}}'
        for name, arguments in calls
    )
    return f'{{"tool_uses":[{",".join(uses)}]}}'


def quoted(result: str) -> str:
    """Returns a result as the list of parallel results has it: JSON as JSON, text as a JSON string."""
    if result.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(result))
        except (ValueError, RecursionError):
            pass
    return json.dumps(result)
