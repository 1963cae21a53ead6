"""Kept texts: messages before and after a change, if the owner of the gateway asks for them.

By default nothing is kept. With `ullage serve --keep-bodies` the texts of the newest changed requests stay in
memory, shortened, and without anything that looks like a key.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.broker.refusals import hide_keys
from ullage.fitting.pieces import piece_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ullage.fitting.result import Fitted
    from ullage.messages import Message

MOST_REQUESTS = 50
MOST_CHANGES = 20
"""Most changes of one request whose texts are kept."""
MOST_CHARACTERS = 4_000
"""Most characters of one text: its head and its tail."""
LEAST_SECRET = 8
"""Fewest characters of a client's own key that are looked for in texts; shorter ones are ordinary words."""


@dataclass(frozen=True, slots=True)
class ChangedText:
    """One message before and after a change."""

    place: int
    """The place of the message in its history."""
    before: str
    after: str | None
    """None if the message was removed."""


class KeptTexts:
    """The texts of the newest changed requests."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[ChangedText, ...]] = OrderedDict()

    def add(
        self, number: int, fitted: Fitted[Any], places: Sequence[int], secrets: Collection[str] = ()
    ) -> None:
        """Keeps the texts at these places of a request; `secrets` never appear in them."""
        if not places:
            return
        wanted = list(dict.fromkeys(places))[:MOST_CHANGES]
        sent = dict(zip(fitted.sources, fitted.messages, strict=True))
        history = fitted.record.history
        self._kept[number] = tuple(
            ChangedText(
                place,
                _show_message(history[place], secrets),
                _show_message(sent[place], secrets) if place in sent else None,
            )
            for place in wanted
        )
        if len(self._kept) > MOST_REQUESTS:
            self._kept.popitem(last=False)

    def get(self, number: int) -> tuple[ChangedText, ...]:
        """Returns the texts of a request; nothing if they are no longer kept."""
        return self._kept.get(number, ())


def _show_message(message: Message, secrets: Collection[str]) -> str:
    """Returns the text of a message without keys, shortened in the middle."""
    text = piece_of(message)
    for secret in secrets:
        if len(secret) >= LEAST_SECRET:
            text = text.replace(secret, "[key]")
    text = hide_keys(text)
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters …]\n{text[-half:]}"
