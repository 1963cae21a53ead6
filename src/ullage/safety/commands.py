"""Classifies one simple command by its words."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ullage.safety import interpreters, targets, wrappers
from ullage.safety.lookup import look_up
from ullage.safety.rules import table
from ullage.safety.verdict import Verdict, worst

if TYPE_CHECKING:
    from ullage.safety.scene import Scene, Words

SYSTEM = re.compile(r"(?:/usr|/usr/local|/opt/homebrew|/opt/local)?/s?bin")
"""Directories of the system's programs: a program there does what its name says."""

_SUBSCRIPTED = re.compile(r"\w+\[(?!(?:\d+|[@*])\]).*\]", re.DOTALL)
"""The name of an element of an array, other than one with a number."""

HISTORY = re.compile(r"!(?![=\s(\"]|$)")
"""The start of a history expansion, in a text without the parts in which bash expands none."""

_NO_HISTORY = re.compile(r"'[^']*'|\\.|\[!(?=.*\])|\$\{!")
"""Quoted text, `[!a]` and `${!a}`."""


def command(words: Words, scene: Scene) -> Verdict:
    """Returns the class of a command; `words` are the words that the program will get."""
    head, rest = words[0], words[1:]
    if not head.fixed or head.glob or head.loose:
        scene.facts.runs = scene.facts.runs or head.text
        return _raise_class(rest, scene, scene.verdict("unknown", "the command is not known before it runs"))
    folder, name = posixpath.split(head.text)
    _note(name, rest, scene)
    found = [_classify_command(name, rest, scene)]
    if folder and not SYSTEM.fullmatch(posixpath.normpath(folder)):
        scene.facts.runs = scene.facts.runs or head.text
        found.append(scene.verdict("unknown", f"{head.text} is not a program of the system"))
    if name in table().evaluating:
        found += _check_names(name, rest, scene)
    if HISTORY.search(_NO_HISTORY.sub("", scene.part)):
        found.append(scene.verdict("unknown", "an argument may be replaced from the command history"))
    found += _spread(name, rest, scene)
    return worst(found)


def _spread(name: str, words: Words, scene: Scene) -> list[Verdict]:
    """Returns a verdict if a pattern matches a file whose name looks like an option."""
    rule = table().rules.get(name)
    if rule is not None and rule.open:
        return []
    for word in words:
        if word.text == "--":
            break
        if word.glob and word.text[:1] in ("*", "?", "[") and targets.has_dashed_names(scene.facts.folders):
            reason = (
                f"{word.text} matches a file whose name begins with a dash, which {name} reads as an option"
            )
            return [scene.verdict("unknown", reason)]
    return []


def _note(name: str, words: Words, scene: Scene) -> None:
    """Notes facts about this command that matter to other commands of the line."""
    facts = scene.facts
    if name in table().fetching:
        facts.fetches = facts.fetches or name
    if name in ("cd", "pushd", "popd"):
        facts.folders = targets.folders_after(facts.folders, words)
    if name in ("echo", "printf", "cat"):
        facts.texts.append(" ".join(word.text for word in words if not word.text.startswith("-")))
        facts.texts += [word.text.replace("\\n", "\n") for word in words]


def is_known(name: str) -> bool:
    """Returns True if the rules say something about a command of this name."""
    return name in HANDLERS or name in table().wrappers or name in table().rules or name in table().same


def _classify_command(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies a command by its handler, its row among the wrappers, or its rule."""
    name = VERSIONED.sub(r"\1\2", RENAMED.get(name, name))
    if words and all(word.text in table().shows.get(name, ()) for word in words):
        return scene.verdict("read-only", f"{name} {words[0].text} only shows something")
    handler = HANDLERS.get(name) or (wrappers.classify_wrapped if name in table().wrappers else None)
    if handler:
        if [word.text for word in words] in (["--help"], ["--version"]) and name not in UNHELPFUL:
            return scene.verdict("read-only", f"{name} prints its help or version")
        return handler(name, words, scene)
    found = look_up(name, words, lambda text: targets.exists(text, scene.facts.folders))
    if found is None:
        return _classify_unlisted(name, words, scene)
    verdict = _raise_class(words, scene, scene.verdict(found.kind, found.reason))
    if verdict.kind not in ("writes", "sends"):
        return verdict
    return worst([verdict, *targets.classify_targets(name, found.rule, found.arguments, scene)])


def _classify_unlisted(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies a command that has no rule; some file systems ignore case, so `RM` is also read as `rm`."""
    if name in scene.functions:
        return scene.verdict("read-only", f"{name} is defined on this line")
    if name in table().helping and [word.text for word in words] in (["--version"], ["--help"], ["-V"]):
        return scene.verdict("read-only", f"{name} prints its help or version")
    found = _raise_class(words, scene, scene.verdict("unknown", f"{name} is not in the rules"))
    return worst([found, _classify_command(name.lower(), words, scene)]) if name.lower() != name else found


RENAMED = {"gsed": "sed", "fdfind": "fd", "gfind": "find"}
VERSIONED = re.compile(r"^(python|perl|ruby|lua|php|pip|node)-?\d[\d.]*$|^(mkfs)\..*$")
HANDLERS = {**wrappers.HANDLERS, **interpreters.HANDLERS}
UNHELPFUL = frozenset((".", "source", "eval", "exec", "trap", "alias", "su", "xargs", "busybox", "toybox"))
"""Commands that do not take `--help` as a question for their help, or not everywhere."""


def _raise_class(words: Words, scene: Scene, found: Verdict) -> Verdict:
    """Raises the class if an unknown program is given a word that shows its purpose."""
    if found.kind != "unknown":
        return found
    for word in words:
        if word.fixed and posixpath.basename(word.text) in table().telling:
            return worst(
                [found, scene.verdict("destructive", f"an unknown program gets the word {word.text}")]
            )
        if word.fixed and re.search(r"\brm\s+-\w*[rf]|\bmkfs\b|\bof=/dev/", word.text):
            return worst(
                [found, scene.verdict("destructive", f"an unknown program gets the text {word.text}")]
            )
    return found


def _check_names(name: str, words: Words, scene: Scene) -> list[Verdict]:
    """Returns a verdict on each argument that runs a subscript or sets a variable with a special meaning.

    Builtins that take names of variables evaluate the subscripts of these names.
    """
    found = []
    tests = name in ("test", "[", "[[")
    for word in words:
        label = word.text.partition("=")[0].partition("[")[0]
        if re.search(r"\$\(|`", word.text) and name != "printf":
            found.append(scene.verdict("unknown", f"{name} may run code in {word.text}"))
        elif table().special.fullmatch(label) and not tests and name != "printf":
            found.append(scene.verdict("unknown", f"{label} changes what commands mean"))
        elif _SUBSCRIPTED.fullmatch(word.text) and name != "printf":
            found.append(scene.verdict("unknown", f"{name} may run code in {word.text}"))
        elif word.loose and not tests and name != "printf":
            found.append(
                scene.verdict("unknown", f"{name} may run code in a name that is not known before it runs")
            )
    if name == "printf" and _sets(words):
        found.append(scene.verdict("unknown", "printf may set a variable"))
    if tests and any(word.text in ("-v", "-R") for word in words) and not all(word.fixed for word in words):
        found.append(
            scene.verdict("unknown", f"{name} -v may run code in a name that is not known before it runs")
        )
    return found


def _sets(words: Words) -> bool:
    """Returns True if `printf` may set a variable: by -v, or by `%n` with the name of the variable."""
    given = words[1:] if words[:1] and words[0].text == "--" else words
    if not given or given[0].text.startswith("-v") or given[0].splits:
        return bool(given)
    names = [word.text for word in given[1:]]
    if not names or ("%n" not in given[0].text and given[0].fixed):
        return False
    risky = any("[" in name or table().special.fullmatch(name) for name in names)
    return given[0].loose or "%n" in given[0].text or risky
