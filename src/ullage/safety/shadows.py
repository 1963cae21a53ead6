"""Classifies commands whose name is an alias or a function in the user's bash."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ullage.safety.verdict import worst

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.safety.scene import Scene, Words
    from ullage.safety.verdict import Verdict


def classify_shadowed(
    words: Words, scene: Scene, found: Verdict, expand: Callable[[str, str], Verdict]
) -> Verdict:
    """Returns the class of a command, given the class that it would have without aliases and functions.

    A function is unknown. An alias has the class of its text with the words after it. If bash may not replace
    the alias, because its name is quoted or stands after another command, the worse class counts. `expand`
    classifies such a text, with the name of its alias.
    """
    name = words[0].text
    shadows = scene.facts.shadows
    if not words[0].fixed or name not in shadows or name in scene.functions:
        return found
    text = shadows[name]
    if text is None:
        return worst([found, scene.verdict("unknown", f"{name} is a function of your bash")])
    part = scene.part.strip()
    if part.startswith(name):
        return expand(name, f"{text} {part[len(name) :]}")
    return worst([found, expand(name, f"{text} {' '.join(shlex.quote(word.text) for word in words[1:])}")])
