"""Tool calls and their results as the text that a provider puts into the prompt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def compact(arguments: str) -> str:
    """JSON without spaces between its tokens; anything else as it is."""
    if '": ' not in arguments and ", " not in arguments and "\n" not in arguments:
        return arguments
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments


def arguments_in(arguments: str) -> int:
    """How many arguments a call has; 0 where they are no object."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return 0
    return len(found) if isinstance(found, dict) else 0


def wrapped(calls: Iterable[tuple[str, str]]) -> str:
    """Parallel calls, each a name and its arguments, as the one call that OpenAI makes of them."""
    uses = (
        f'{{"recipient_name":"functions.{name}","parameters":{compact(arguments)}}}'
        for name, arguments in calls
    )
    return f'{{"tool_uses":[{",".join(uses)}]}}'


def quoted(result: str) -> str:
    """A result as it stands among those of parallel calls: JSON stays JSON, text becomes a JSON string."""
    if result.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(result))
        except (ValueError, RecursionError):
            pass
    return json.dumps(result)
