"""Classifies commands that run other commands by the commands that they run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.safety import targets
from ullage.safety.lookup import read_rule_arguments
from ullage.safety.options import NEXT, NONE
from ullage.safety.rules import Wrapper, table
from ullage.safety.verdict import KINDS, Verdict, worst
from ullage.safety.words import UNSEEN, Word, join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.safety.scene import Scene, Words

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")


def classify_wrapped(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies the command that a wrapper runs, and the wrapper's own options."""
    wrapper = table().wrappers[name]
    inner, found = _strip(name, wrapper, words, scene)
    if KINDS.index(wrapper.least) > 0:
        more = "runs it on another machine" if wrapper.least == "sends" else "does more than run a command"
        found.append(scene.verdict(wrapper.least, f"{name} {more}"))
    if not inner:
        alone = "only reads" if wrapper.alone == "read-only" else "runs something that is not on the line"
        found.append(scene.verdict(wrapper.alone, f"{name} {alone}"))
    elif wrapper.joined:
        found.append(scene.code(join(inner), name))
    else:
        found.append(scene.words(inner))
    return worst(found)


def _strip(name: str, wrapper: Wrapper, words: Words, scene: Scene) -> tuple[Words, list[Verdict]]:
    """Returns the words of the command that follows, and verdicts on the words before it."""
    found: list[Verdict] = []
    own = wrapper.own
    at = 0
    while at < len(words):
        text = words[at].text
        assignment = ASSIGNMENT.match(text)
        if words[at].loose or words[at].splits:
            scene.facts.runs = scene.facts.runs or name
            found.append(scene.verdict("unknown", f"an argument of {name} is not known before it runs"))
            at += 1
        elif text == "--":
            at += 1 + own
            break
        elif text.startswith("-") and (text != "-" or wrapper.options.taking("-") is not None):
            taken = _option(name, wrapper, words[at], found, scene)
            if any(word.splits for word in words[at + 1 : at + taken]):
                found.append(scene.verdict("unknown", f"the value of {text} may be several words"))
            at += taken
        elif assignment and name in ("env", "sudo", "doas"):
            found += _check_assignment(assignment[1], scene)
            at += 1
        elif own:
            own -= 1
            at += 1
        else:
            break
    return words[at:], found


def _option(name: str, wrapper: Wrapper, word: Word, found: list[Verdict], scene: Scene) -> int:
    """Returns the number of words that an option takes; an unknown option is added to `found`."""
    text, options = word.text, wrapper.options
    flag, equals, _ = text.partition("=")
    if text == "-" or (re.fullmatch(r"-\d+", text) and options.taking("-#") is not None):
        return 1
    if text.startswith("--"):
        taking = options.taking(flag)
        if taking is not None and not (equals and taking == NONE) and UNSEEN not in flag:
            return 2 if taking == NEXT and not equals else 1
    else:
        for place, letter in enumerate(text[1:]):
            taking = options.taking(f"-{letter}")
            if taking is None or letter == UNSEEN:
                break
            if taking != NONE:
                return 2 if taking == NEXT and place == len(text) - 2 else 1
        else:
            return 1
    found.append(scene.verdict("unknown", f"the option {text} of {name} is not in the rules"))
    return 1


def _check_assignment(variable: str, scene: Scene) -> list[Verdict]:
    if table().harmless.fullmatch(variable):
        return []
    return [scene.verdict("unknown", f"{variable} changes what commands mean")]


def env(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `env`, whose -S splits a text into words."""
    for at, word in enumerate(words):
        match = re.match(r"(?:-\w*S|--split-string=?)(.*)", word.text, re.DOTALL)
        if match:
            text = join([Word(match[1], fixed=word.fixed), *words[at + 1 :]])
            return worst(
                [scene.code(text, name), scene.verdict("unknown", "env -S splits a text into words")]
            )
        if not word.text.startswith("-") and not ASSIGNMENT.match(word.text):
            break
    return classify_wrapped(name, words, scene)


def command(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `command`, which with -v only looks up a name."""
    if words and words[0].text in ("-v", "-V", "-pv", "-pV"):
        return scene.verdict("read-only", "command -v only looks a name up")
    return classify_wrapped(name, words, scene)


def xargs(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `xargs`, which adds words from its input to the command."""
    inner, found = _strip(name, table().wrappers[name], words, scene)
    if not inner:
        return worst([*found, scene.verdict("read-only", "xargs prints its input")])
    before = words[: len(words) - len(inner)]
    mark = _mark(before)
    if any(mark and mark in word.text for word in inner):
        inner = [
            Word(word.text.replace(mark, UNSEEN), fixed=False, loose=True) if mark in word.text else word
            for word in inner
        ]
        return worst([*found, scene.words(inner)])
    return worst([*found, scene.words([*inner, Word(UNSEEN, fixed=False, loose=True, splits=True)])])


def _mark(options: Words) -> str:
    """Returns the text that xargs replaces by its input."""
    for index, word in enumerate(options):
        match = re.match(r"(?:-\w*?[IJ]|--replace=?|-i)(.*)", word.text, re.DOTALL)
        if match:
            follows = options[index + 1].text if index + 1 < len(options) else ""
            return match[1] or (follows if word.text.endswith(("I", "J")) else "{}") or "{}"
    return ""


def parallel(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `parallel`, whose arguments after `:::` are commands if no command stands before them."""
    texts = [word.text for word in words]
    cut = next((at for at, text in enumerate(texts) if re.fullmatch(r"::::?\+?", text)), len(words))
    inner, found = _strip(name, table().wrappers[name], words[:cut], scene)
    given = [scene.line(word.text) for word in words[cut + 1 :]] if not inner else []
    run = [scene.code(join(inner), name)] if inner else []
    return worst([*found, *given, *run, scene.verdict("unknown", "parallel runs a command on each of many")])


def find(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `find` by its actions; a test that is not in the tables makes the line unknown."""
    known = table().find_tests
    found = [scene.verdict("read-only", "find only reads")]
    at = 0
    while at < len(words):
        word = words[at]
        text = word.text
        at += 1
        if word.loose or word.splits or (text.startswith("-") and UNSEEN in text):
            found.append(scene.verdict("unknown", f"an argument of {name} is not known before it runs"))
        elif text == "-delete":
            found.append(scene.verdict("destructive", "find -delete deletes files"))
        elif text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            found.append(scene.verdict("writes", f"find {text} writes a file"))
            found += targets.classify_changes(words[at : at + 1], name, scene)
            at += 1
        elif text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at, len(words)) if words[i].text in (";", "+")), len(words))
            found.append(_classify_exec(text, words[at:end], scene))
            at = end + 1
        elif known.taking(text) == NEXT:
            found += [
                scene.verdict("unknown", f"an argument of {name} is not known before it runs")
                for value in words[at : at + 1]
                if value.splits
            ]
            at += 1
        elif text.startswith("-") and known.taking(text) is None:
            found.append(scene.verdict("unknown", f"{text} of find is not in the rules"))
    return worst(found)


def _classify_exec(action: str, words: Words, scene: Scene) -> Verdict:
    """Classifies the command of `find -exec`; -execdir runs it in a folder that is not known."""
    inner = [
        Word(word.text.replace("{}", targets.FOUND), fixed=False) if "{}" in word.text else word
        for word in words
    ]
    if not inner:
        return scene.verdict("unknown", f"find {action} has no command")
    if words[0].text == "{}":
        return scene.verdict("unknown", f"find {action} runs the files that it finds")
    return scene.words(inner)


def fd(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `fd`, whose -x and -X run the command that follows."""
    known = table().rules["fd"]
    for at, word in enumerate(words):
        if re.fullmatch(r"-\w*[xX]|--exec|--exec-batch", word.text):
            inner = words[at + 1 :]
            return scene.words(inner) if inner else scene.verdict("unknown", "fd -x has no command")
        if word.loose or re.match(r"-x|-X|--exec", word.text):
            return scene.verdict("unknown", f"an argument of {name} is not known before it runs")
    unknown = read_rule_arguments(known, words).unknown
    if unknown:
        return scene.verdict("unknown", f"the option {unknown[0]} of fd is not in the rules")
    return scene.verdict("read-only", "fd only reads")


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
