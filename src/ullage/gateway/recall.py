"""Recall for the model: the gateway offers a tool that finds text which it removed, and answers its calls.

The tool is offered from the first request of a conversation on, so that the tools stay the same. The client
sees neither the calls nor the results.
"""

from __future__ import annotations

import asyncio
from types import NoneType
from typing import TYPE_CHECKING, Any

from ullage.context import RECALL_TOOL, answer_recall
from ullage.context.journal import MemoryJournal
from ullage.context.recall import MOST_TOKENS, WINDOW_SHARE
from ullage.fitting.pieces import piece_of
from ullage.gateway.answer_filter import FILTERS
from ullage.gateway.answer_filter.shared import RECALL
from ullage.gateway.conversations import MESSAGES
from ullage.gateway.hidden_turns import HiddenTurns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.fitting.body import FittedRequest
    from ullage.gateway.answer_filter.shared import RecallCall
    from ullage.gateway.conversations import Identity
    from ullage.gateway.gate import Caller
    from ullage.target import ApiName

MOST_ROUNDS = 4
"""Most requests to the model for one request of a client."""
SESSION = "removed"
"""The name of the only session in the journal that is searched."""
KINDS: Mapping[str, tuple[type, ...]] = {
    "messages": (list, NoneType),
    "input": (list, str, NoneType),
    "tools": (list, NoneType),
}
"""The types of the fields that the tool and the hidden turns are added to; each may be missing."""
NOTHING = "error: nothing was removed from this conversation: all of it is in view"


class GatewayRecall:
    """Offers the recall tool to the callers that may use it."""

    def __init__(self, *, is_open: bool = False) -> None:
        """Takes the parts; `is_open` offers the tool to callers without a key too."""
        self._is_open = is_open
        self._turns = HiddenTurns()

    def is_offered(self, caller: Caller, body: Mapping[str, Any]) -> bool:
        """Returns True if the tool is added to a request.

        A client with a tool of that name keeps its own, and a request for several answers gets none. Neither
        does one whose history or tools are no lists: the upstream refuses it in its own words.
        """
        may = self._is_open if caller.key is None else caller.key.may_recall
        return (
            may
            and body.get("n") in (None, 1)
            and all(isinstance(body.get(name), kinds) for name, kinds in KINDS.items())
            and not any(map(_is_named_recall, _tools(body)))
        )

    def extend(self, body: Mapping[str, Any], api: ApiName, identity: Identity) -> dict[str, Any]:
        """Returns a body with the tool, and with the hidden turns at their places."""
        tools = [*_tools(body), FILTERS[api].tool(RECALL_TOOL)]
        items = self._turns.replay(_name(identity), _items(body, api))
        return {**body, "tools": tools, MESSAGES[api]: items}

    async def answer(
        self,
        body: Mapping[str, Any],
        api: ApiName,
        identity: Identity,
        fitted: FittedRequest | None,
        calls: Sequence[RecallCall],
    ) -> None:
        """Answers the calls that ended a request, and remembers them as a hidden turn after it."""
        results = await asyncio.to_thread(_answers, fitted, calls, identity.limit)
        items = FILTERS[api].make_hidden_turn(calls, results)
        self._turns.remember(_name(identity), _items(body, api), items)


def _answers(fitted: FittedRequest | None, calls: Sequence[RecallCall], limit: int) -> list[str]:
    """Returns the result of each call: a search over the texts that were removed or shortened."""
    changes = () if fitted is None else fitted.changes
    if fitted is None or not changes:
        return [NOTHING for _ in calls]
    history = fitted.fitted.record.history
    journal = MemoryJournal()
    journal.keep(SESSION, [piece_of(history[change.index]) for change in changes])
    room = max(1, min(MOST_TOKENS, limit // WINDOW_SHARE) // len(calls))
    return [answer_recall(journal, SESSION, call.values(), room=room) for call in calls]


def _name(identity: Identity) -> str:
    return f"{identity.caller}/{identity.name}"


def _tools(body: Mapping[str, Any]) -> list[Any]:
    tools = body.get("tools")
    return tools if isinstance(tools, list) else []


def _is_named_recall(tool: Any) -> bool:
    described = tool.get("function", tool) if isinstance(tool, dict) else None
    return isinstance(described, dict) and described.get("name") == RECALL


def _items(body: Mapping[str, Any], api: ApiName) -> list[Any]:
    """Returns the history of a body as a list; a single text is a message of the user."""
    given = body.get(MESSAGES[api])
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())
