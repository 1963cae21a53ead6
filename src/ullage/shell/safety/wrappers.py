"""Commands that run other commands: what they are is what they run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.shell.safety.rules import Wrapper, table
from ullage.shell.safety.verdict import KINDS, Verdict, worst
from ullage.shell.safety.words import UNSEEN, Word, join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.shell.safety.scene import Scene, Words

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")


def wrapped(name: str, words: Words, scene: Scene) -> Verdict:
    """The class of the command that a wrapper runs, and of the wrapper's own options."""
    wrapper = table().wrappers[name]
    inner, found = _strip(name, wrapper, words, scene)
    if KINDS.index(wrapper.least) > 0:
        found.append(scene.verdict(wrapper.least, f"{name} does more than run a command"))
    if not inner:
        alone = "only looks" if wrapper.alone == "read-only" else "runs what is not on the line"
        found.append(scene.verdict(wrapper.alone, f"{name} {alone}"))
    elif wrapper.joined:
        found.append(scene.code(join(inner), name))
    else:
        found.append(scene.words(inner))
    return worst(found)


def _strip(name: str, wrapper: Wrapper, words: Words, scene: Scene) -> tuple[Words, list[Verdict]]:
    """The words of the command that follows, and what the words before it mean."""
    found: list[Verdict] = []
    own = wrapper.own
    at = 0
    while at < len(words):
        text = words[at].text
        assignment = ASSIGNMENT.match(text)
        if words[at].loose:
            scene.facts.runs = scene.facts.runs or name
            found.append(scene.verdict("unknown", f"an argument of {name} is not known before it runs"))
            at += 1
        elif text == "--":
            at += 1 + own
            break
        elif text.startswith("-") and (text != "-" or text in wrapper.flags):
            at += _option(name, wrapper, text, found, scene)
        elif assignment and name in ("env", "sudo", "doas"):
            found += _assigned(assignment[1], scene)
            at += 1
        elif own:
            own -= 1
            at += 1
        else:
            break
    return words[at:], found


def _option(name: str, wrapper: Wrapper, text: str, found: list[Verdict], scene: Scene) -> int:
    """How many words an option takes; one that the rules do not know is noted."""
    flag = text.partition("=")[0]
    if text in wrapper.values:
        return 2
    if flag in wrapper.values or flag in wrapper.flags or re.fullmatch(r"-\d+", text):
        return 1
    letters = [f"-{letter}" for letter in text[1:]]
    for index, letter in enumerate(letters):
        if letter in wrapper.values and not text.startswith("--"):
            return 1 if index < len(letters) - 1 else 2
        if letter not in wrapper.flags:
            break
    else:
        return 1
    found.append(scene.verdict("unknown", f"the option {text} of {name} is not in the rules"))
    return 1


def _assigned(variable: str, scene: Scene) -> list[Verdict]:
    if not table().variables.fullmatch(variable):
        return []
    return [scene.verdict("unknown", f"{variable} changes what commands mean")]


def env(name: str, words: Words, scene: Scene) -> Verdict:
    """`env`, whose -S splits a text into words by itself."""
    for at, word in enumerate(words):
        match = re.match(r"(?:-\w*S|--split-string=?)(.*)", word.text, re.DOTALL)
        if match:
            text = join([Word(match[1], fixed=word.fixed), *words[at + 1 :]])
            return worst([scene.code(text, name), scene.verdict("unknown", "env -S makes words of a text")])
        if not word.text.startswith("-") and not ASSIGNMENT.match(word.text):
            break
    return wrapped(name, words, scene)


def command(name: str, words: Words, scene: Scene) -> Verdict:
    """`command`, which with -v only tells what a name is."""
    if words and words[0].text in ("-v", "-V", "-pv", "-pV"):
        return scene.verdict("read-only", "command -v only looks a name up")
    return wrapped(name, words, scene)


def xargs(name: str, words: Words, scene: Scene) -> Verdict:
    """`xargs`, which adds words that only it will see."""
    inner, found = _strip(name, table().wrappers[name], words, scene)
    if not inner:
        return worst([*found, scene.verdict("read-only", "xargs prints what it reads")])
    before = words[: len(words) - len(inner)]
    mark = _mark(before)
    if any(mark and mark in word.text for word in inner):
        inner = [
            Word(word.text.replace(mark, UNSEEN), fixed=False, loose=True) if mark in word.text else word
            for word in inner
        ]
        return worst([*found, scene.words(inner)])
    return worst([*found, scene.words([*inner, Word(UNSEEN, fixed=False, loose=True)])])


def _mark(options: Words) -> str:
    """The text that xargs replaces by what it reads."""
    for index, word in enumerate(options):
        match = re.match(r"(?:-\w*?[IJ]|--replace=?|-i)(.*)", word.text, re.DOTALL)
        if match:
            follows = options[index + 1].text if index + 1 < len(options) else ""
            return match[1] or (follows if word.text.endswith(("I", "J")) else "{}") or "{}"
    return ""


def parallel(name: str, words: Words, scene: Scene) -> Verdict:
    """`parallel`, whose arguments after `:::` are commands themselves where there is none before."""
    texts = [word.text for word in words]
    cut = next((at for at, text in enumerate(texts) if re.fullmatch(r"::::?\+?", text)), len(words))
    inner, found = _strip(name, table().wrappers[name], words[:cut], scene)
    given = [scene.line(word.text) for word in words[cut + 1 :]] if not inner else []
    run = [scene.code(join(inner), name)] if inner else []
    return worst([*found, *given, *run, scene.verdict("unknown", "parallel runs a command on each of many")])


def find(name: str, words: Words, scene: Scene) -> Verdict:
    """`find`, by its actions."""
    found = [scene.verdict("read-only", "find only looks")]
    at = 0
    while at < len(words):
        text = words[at].text
        at += 1
        if words[at - 1].loose:
            found.append(scene.verdict("unknown", f"an argument of {name} is not known before it runs"))
        elif text == "-delete":
            found.append(scene.verdict("destructive", "find -delete deletes files"))
        elif text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            found.append(scene.verdict("writes", f"find {text} writes a file"))
        elif text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at, len(words)) if words[i].text in (";", "+")), len(words))
            inner = [
                Word(word.text.replace("{}", "./" + UNSEEN), fixed=False) if "{}" in word.text else word
                for word in words[at:end]
            ]
            found.append(scene.words(inner) if inner else scene.verdict("unknown", f"find {text} of nothing"))
            at = end + 1
    return worst(found)


def fd(name: str, words: Words, scene: Scene) -> Verdict:
    """`fd`, whose -x and -X run what follows."""
    for at, word in enumerate(words):
        if re.fullmatch(r"-\w*[xX]|--exec|--exec-batch", word.text):
            inner = words[at + 1 :]
            return scene.words(inner) if inner else scene.verdict("unknown", "fd -x of nothing")
        if word.loose or re.match(r"-x|-X|--exec", word.text):
            return scene.verdict("unknown", f"an argument of {name} is not known before it runs")
    return scene.verdict("read-only", "fd only looks")


HANDLERS: Mapping[str, Callable[[str, Words, Scene], Verdict]] = {
    "env": env,
    "command": command,
    "xargs": xargs,
    "parallel": parallel,
    "find": find,
    "gfind": find,
    "fd": fd,
}
"""Wrappers that need more than their row in the table."""
