"""The class of one simple command, by its words."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ullage.shell.safety import interpreters, targets, wrappers
from ullage.shell.safety.rules import look_up, table
from ullage.shell.safety.verdict import Verdict, worst

if TYPE_CHECKING:
    from ullage.shell.safety.scene import Scene, Words

SYSTEM = re.compile(r"(?:/usr|/usr/local|/opt/homebrew|/opt/local)?/s?bin")
"""Directories whose programs are what their names say."""


def command(words: Words, scene: Scene) -> Verdict:
    """The class of a command; its words are those that the program will get."""
    head, rest = words[0], words[1:]
    if not head.fixed or head.glob or head.loose:
        scene.facts.runs = scene.facts.runs or head.text
        return _given_away(rest, scene, scene.verdict("unknown", "the command is not known before it runs"))
    folder, name = posixpath.split(head.text)
    _note(name, rest, scene)
    found = [_known(name, rest, scene)]
    if folder and not SYSTEM.fullmatch(posixpath.normpath(folder)):
        scene.facts.runs = scene.facts.runs or head.text
        found.append(scene.verdict("unknown", f"{head.text} is a program of its own"))
    if name in table().evaluating:
        found += _evaluated(name, rest, scene)
    if any(re.match(r"!(?!=)|.*!!", word.text) for word in rest if word.glob or word.fixed) and _bare(scene):
        found.append(scene.verdict("unknown", "an argument may stand for an earlier command"))
    return worst(found)


def _bare(scene: Scene) -> bool:
    """Whether a history expansion stands outside quotes."""
    return bool(re.search(r"!", re.sub(r"'[^']*'|\"[^\"]*\"|\\.", "", scene.part)))


def _note(name: str, words: Words, scene: Scene) -> None:
    """Remember what matters beside other commands of the line."""
    facts = scene.facts
    if name in table().fetching:
        facts.fetches = facts.fetches or name
    if name in ("echo", "printf", "cat"):
        facts.texts.append(" ".join(word.text for word in words if not word.text.startswith("-")))
        facts.texts += [word.text.replace("\\n", "\n") for word in words]


def _known(name: str, words: Words, scene: Scene) -> Verdict:
    """The class by whatever knows the command: a handler, a wrapper's row, a rule."""
    name = VERSIONED.sub(r"\1\2", RENAMED.get(name, name))
    handler = HANDLERS.get(name) or (wrappers.wrapped if name in table().wrappers else None)
    if handler:
        return _touching(name, words, scene, handler(name, words, scene))
    answer = look_up(name, words)
    if answer is None:
        return _unlisted(name, words, scene)
    return _touching(name, words, scene, _given_away(words, scene, scene.verdict(*answer)))


def _unlisted(name: str, words: Words, scene: Scene) -> Verdict:
    """A command that no rule knows; its name in small letters may be one, on some file systems."""
    if name in scene.facts.functions:
        return scene.verdict("read-only", f"{name} is defined on this line")
    found = _given_away(words, scene, scene.verdict("unknown", f"{name} is not in the rules"))
    return worst([found, _known(name.lower(), words, scene)]) if name.lower() != name else found


RENAMED = {"gsed": "sed", "fdfind": "fd", "gfind": "find"}
VERSIONED = re.compile(r"^(python|perl|ruby|lua|php|pip|node)-?\d[\d.]*$|^(mkfs)\..*$")
HANDLERS = {**wrappers.HANDLERS, **interpreters.HANDLERS}


def _touching(name: str, words: Words, scene: Scene, found: Verdict) -> Verdict:
    """Worse, where a writing command writes into a file that matters."""
    if found.kind != "writes":
        return found
    touched = targets.arguments(name, words, scene.part)
    return worst([found, touched]) if touched else found


def _given_away(words: Words, scene: Scene, found: Verdict) -> Verdict:
    """Worse, where a program that nobody knows is given a word that tells what it will do."""
    if found.kind != "unknown":
        return found
    for word in words:
        if word.fixed and posixpath.basename(word.text) in table().telling:
            return worst([found, scene.verdict("destructive", f"a program is given the word {word.text}")])
        if word.fixed and re.search(r"\brm\s+-\w*[rf]|\bmkfs\b|\bof=/dev/", word.text):
            return worst([found, scene.verdict("destructive", f"a program is given the text {word.text}")])
    return found


def _evaluated(name: str, words: Words, scene: Scene) -> list[Verdict]:
    """Builtins that take names of variables run what stands in a subscript, and may set any variable."""
    found = []
    for word in words:
        label = word.text.partition("=")[0].partition("[")[0]
        if re.search(r"\$\(|`", word.text) and name != "printf":
            found.append(scene.verdict("unknown", f"{name} may run what stands in {word.text}"))
        elif table().variables.fullmatch(label) and name not in ("test", "[", "[["):
            found.append(scene.verdict("unknown", f"{label} changes what commands mean"))
    if name == "printf" and any(word.text.startswith("-v") for word in words):
        found.append(scene.verdict("unknown", "printf -v sets a variable"))
    return found
