"""Which class of turns a question belongs to: the one that it names, or the first whose words stand in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ullage.classes import MAIN
from ullage.config.keys import FIXED_CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.config.settings import RoutingSettings

_NAMED = re.compile(r"@([\w-]+)\s+(?=\S)")


class Routed(NamedTuple):
    """A question and where it goes."""

    kind: str
    question: str
    """Without the mark that named the class."""
    hint: str = ""
    """What was done and how to get the other; empty where the user said it."""


def classes(routing: RoutingSettings) -> Sequence[str]:
    """The classes that a question may name."""
    configured = {*routing.models, *routing.system_prompts, *routing.rules}
    return (MAIN, *sorted(configured - FIXED_CLASSES.keys()))


def route(question: str, routing: RoutingSettings) -> Routed:
    """Where a question goes: `@name` in front says so, else the rules in their order, else it is usual."""
    named = _NAMED.match(question)
    if named and named[1] in classes(routing):
        return Routed(named[1], question[named.end() :])
    for kind, phrases in routing.rules.items():
        for phrase in phrases:
            if _stands_in(phrase, question):
                hint = f"{kind}, as it says “{phrase}”; to ask as usual, put @{MAIN} in front"
                return Routed(kind, question, hint)
    hint = ""
    if named and len(classes(routing)) > 1:
        hint = f"no class is called {named[1]}, only {', '.join(classes(routing))}: asked as it stands"
    return Routed(MAIN, question, hint)


def _stands_in(phrase: str, question: str) -> bool:
    words = r"\s+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){words}(?!\w)", question, re.IGNORECASE) is not None
