"""Whether a line of input is a shell command or a question, by rules that a person can predict.

1. `!` in front runs the rest, `?` in front asks the rest.
2. `:name` and `/name` are meta commands; `/usr/bin/ls` is a path.
3. A line whose first word is a command, and that is whole shell grammar, runs.
4. Anything else is asked.

One exception to 3: where the line reads like a sentence, it is asked. It does, where it has no option and
nothing that only a shell would understand, and
- its first word is also an English one (`find`, `make`, `who`, …) and is followed by one that commands rarely
  get (`the`, `my`, `how`, …) or by a question mark at the end; or
- its second word says something about the first (`git is slow`).
Wherever the other reading was possible, the decision is ambiguous and its hint tells how to get that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ullage.shell.safety.parse import encoded, every, parse, parses
from ullage.shell.safety.words import read, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tree_sitter import Node

Way = Literal["shell", "ask", "meta", "nothing"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done with a line."""

    kind: Way
    text: str
    """The line without the mark that forced the decision; of a meta command, its name and the rest."""
    ambiguous: bool = False
    """Whether the other reading was possible too."""
    hint: str = ""
    """What was done and how to get the other reading; empty where nobody would ask."""


_ENGLISH = """
are at banner bind break builtin cal can case cat clear column combine comm command compare complete
continue convert copy could cut date declare diff dig disable display do does enable env eval exec exit
expand expect explain export file find fold for format free function group groups have head help history
host how if import info install is jobs join kill last less let link list local locate look mail make man
merge more mount move name nice open order parallel paste patch play point print read rename reset return
rev run say screen script select sensors service set shift should size sleep sort source split stat state
status strings sum suspend tail talk test then time times top touch trap tree true type unset until update
uptime users view wait watch what when where which while who why will write yes
"""
ENGLISH = frozenset(_ENGLISH.split())
"""Names of commands that may also begin an English sentence."""

_SMALL = """
a about all an and any are as because been between but by can could did do does each every from had has have
he her his how i i'm if in into is it its just me my not of on only or our out please should so some than
that the their them then there these they this those to us was we were what when where which who whose why
will with would you your
"""
SMALL = frozenset(_SMALL.split())
"""Words that sentences are made of and that commands rarely get."""

POINTING = frozenset(("it", "this", "that", "me", "us", "them", "everything", "something", "please"))
"""Words that make a sentence of two: `make it`, `explain this`."""

_SAYING = "is are was were does did has can can't could should would will won't isn't doesn't says keeps vs"
SAYING = frozenset(_SAYING.split())
"""Second words that say something about the first."""

TALKERS = frozenset(("echo", "printf", "say", "espeak", "figlet", "cowsay", "wall", "banner", "git"))
"""Commands that are given sentences."""

_META = re.compile(r"[:/]([a-zA-Z][\w-]*)(?=\s|$)")
_SHELLISH = re.compile(r"(?:^|\s)--?\w|[|<>$`*~=\\{}\[\]]|&&|;\s*\w|&\s*$|(?:^|\s)\.{0,2}/|['\"]")
_COMPOUND = frozenset(
    (
        "if_statement",
        "for_statement",
        "while_statement",
        "case_statement",
        "c_style_for_statement",
        "test_command",
        "variable_assignment",
        "variable_assignments",
        "function_definition",
    )
)


def decide(line: str, *, resolves: Callable[[str], bool], metas: Container[str] | None = None) -> Decision:
    """What to do with a line; `resolves` tells whether a word is a program, builtin, alias or function.

    With `metas`, a `/name` that is none of them and resolves is a path and runs.
    """
    text = line.strip()
    if not text.strip("!?"):
        return Decision("nothing", "", hint="! runs what follows it, ? asks it" if text else "")
    if text[0] in "!?":
        return Decision("shell" if text[0] == "!" else "ask", text[1:].strip())
    meta = _META.match(text)
    if meta and not (text[0] == "/" and metas is not None and meta[1] not in metas and resolves(meta[0])):
        return Decision("meta", text[1:])
    return _free(text, resolves)


def _free(text: str, resolves: Callable[[str], bool]) -> Decision:
    """The decision about a line that carries no mark."""
    first = text.split(maxsplit=1)[0]
    if not parses(text):
        why = f"this begins with the command {first} but is not whole shell grammar"
        return _asked(text, why) if resolves(first) else Decision("ask", text)
    with reading(encoded(text)):
        word = _first_word(parse(text))
    if word is None:
        return Decision("shell" if re.match(r"[\w(\[{$\"'<>]", text) else "ask", text)
    if not resolves(word):
        typo = "/" in word or _SHELLISH.search(text.removeprefix(word))
        return _asked(text, f"there is no command {word}") if typo else Decision("ask", text)
    if _sentence(text, word):
        return _asked(text, f"{word} is a command, but this reads like a sentence")
    near = _near(text, word)
    hint = f"ran this as a command; to ask it, put ? in front: ?{text}" if near else ""
    return Decision("shell", text, near, hint)


def _asked(text: str, why: str) -> Decision:
    return Decision("ask", text, True, f"{why}: asked; to run it, put ! in front: !{text}")


def _first_word(root: Node) -> str | None:
    """The first command's name; None where the line begins with something that only a shell has."""
    for node in every(root):
        if node.type in _COMPOUND:
            return None
        if node.type in ("declaration_command", "unset_command"):
            return node.children[0].type
        if node.type == "command_name":
            word = read(node)
            return word.text if word.fixed else None
    return None


def _words(text: str) -> list[str]:
    return [word.lower().strip(".,:!?") for word in text.split()]


def _sentence(text: str, word: str) -> bool:
    """Whether a line whose first word is a command reads like a sentence all the same."""
    words = _words(text)
    if word in TALKERS - {"git"} or len(words) < 2 or _SHELLISH.search(text):
        return False
    if words[1] in SAYING and len(words) > 2:
        return True
    if word.lower() not in ENGLISH:
        return False
    return text.endswith("?") or words[1] in POINTING or (len(words) > 2 and not SMALL.isdisjoint(words[1:]))


def _near(text: str, word: str) -> bool:
    """Whether a line that runs might have been meant as a sentence."""
    words = _words(text)
    if word in TALKERS:
        return False
    small = sum(each in SMALL for each in words[1:])
    return small > 1 or (word.lower() in ENGLISH and len(words) > 2 and not re.search(r"[^\w\s]", text))
