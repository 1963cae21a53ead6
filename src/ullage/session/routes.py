"""Finds the category of a question: the one that it names, or the first one with a phrase in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ullage.categories import MAIN
from ullage.config.keys import FIXED_CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.config.settings import RoutingSettings

_NAMED = re.compile(r"@([\w-]+)\s+(?=\S)")


class Routed(NamedTuple):
    """A question and its category, which decides its model and its system prompt."""

    category: str
    question: str
    """The question without the `@name` of the category."""
    hint: str = ""
    """The reason for the category and the way to choose another; empty if the user named it."""


def categories(routing: RoutingSettings) -> Sequence[str]:
    """Returns the categories that a question may name."""
    configured = {*routing.models, *routing.system_prompts, *routing.rules}
    return (MAIN, *sorted(configured - FIXED_CATEGORIES.keys()))


def route(question: str, routing: RoutingSettings) -> Routed:
    """Returns a question with its category: from `@name` in front, else from the first rule, else `main`."""
    named = _NAMED.match(question)
    if named and named[1] in categories(routing):
        return Routed(named[1], question[named.end() :])
    for category, phrases in routing.rules.items():
        for phrase in phrases:
            if _stands_in(phrase, question):
                hint = f"category {category}, because it contains “{phrase}”; @{MAIN} in front asks as usual"
                return Routed(category, question, hint)
    hint = ""
    if named and len(categories(routing)) > 1:
        hint = f"no category {named[1]}: sent unchanged. Categories: {', '.join(categories(routing))}"
    return Routed(MAIN, question, hint)


def _stands_in(phrase: str, question: str) -> bool:
    words = r"\s+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){words}(?!\w)", question, re.IGNORECASE) is not None
