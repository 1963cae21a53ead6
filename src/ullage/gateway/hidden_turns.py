"""Hidden turns: the recall calls of a model and their results, which the client never saw.

They are put back at their places in later requests, so that the model's requests begin with the same bytes
and the model knows what it has read. They are kept in memory. If they are lost, the model can recall again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.gateway.cache_marks import write_unmarked

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 1_000
"""Most conversations whose hidden turns are kept; the one that was used longest ago is forgotten first."""
MOST_TURNS = 200
"""Most hidden turns of a conversation; the oldest are forgotten first."""


class HiddenTurn(NamedTuple):
    """The items of one round, and their place in the history of the client."""

    place: int
    digest: bytes
    """The hash of the items before it, so that it is put into no other history."""
    items: tuple[Any, ...]


class HiddenTurns:
    """The hidden turns of all conversations."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[str, list[HiddenTurn]] = OrderedDict()

    def remember(self, name: str, before: Sequence[Any], items: Sequence[Any]) -> None:
        """Keeps the hidden items that follow the client's items `before`."""
        turns = self._known.setdefault(name, [])
        turns.append(HiddenTurn(len(before), _digests(before)[-1], tuple(items)))
        del turns[:-MOST_TURNS]
        self._known.move_to_end(name)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def replay(self, name: str, items: Sequence[Any]) -> list[Any]:
        """Returns the client's items with the hidden ones at their places."""
        turns = self._known.get(name, ())
        made: list[Any] = []
        done = 0
        digests = _digests(items[: max((turn.place for turn in turns), default=0)])
        for turn in turns:
            if done <= turn.place < len(digests) and digests[turn.place] == turn.digest:
                made += items[done : turn.place]
                made += turn.items
                done = turn.place
        return [*made, *items[done:]]


def _digests(items: Sequence[Any]) -> list[bytes]:
    """Returns the hash of each beginning of the items, from the empty one on; cache marks do not count."""
    digests = [b""]
    for item in items:
        digests.append(hashlib.blake2b(digests[-1] + write_unmarked(item), digest_size=16).digest())
    return digests
