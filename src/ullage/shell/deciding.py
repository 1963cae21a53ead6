"""Whether a line of input is a shell command or a question, by rules that a person can predict.

1. `!` in front runs the rest, `?` in front asks the rest.
2. `:name` and `/name` are meta commands; `/usr/bin/ls` is a path.
3. A line whose first word is a command, and that is whole shell grammar, runs.
4. Anything else is asked.

One exception to 3: where the line reads like a sentence, it is asked. It does, where it has no option and
nothing that only a shell would understand, and
- its first word is also an English one (`find`, `make`, `who`, …) and is followed by one that commands rarely
  get (`the`, `my`, `how`, …) or by a question mark at the end; or
- its second word says something about the first (`git is slow`), or its third that the two fail; or
- it has two words that commands rarely get, and a comma or a question mark at the end; or
- it is one word that people say, and that does nothing useful alone (`yes`, `wait`).
Commands that are given sentences (`echo`) or words to look for (`grep`) run all the same.

Wherever the other reading was possible, the decision is ambiguous and its hint tells how to get that. A short
line that is asked because its first word is a slip of a command (`gti status`) says so, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ullage.shell.safety.parse import encoded, every, parse, parses
from ullage.shell.safety.words import read, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

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
a about all an and any are as at because been between but by can could did do does each every from had has
have he her his how i i'm if in into is it its just me my not of on only or our out please should so some
than that the their them then there these they this those to us was we were what when where which who whose
why will with would you your
"""
SMALL = frozenset(_SMALL.split())
"""Words that sentences are made of and that commands rarely get."""

POINTING = frozenset(("it", "this", "that", "me", "us", "them", "everything", "something", "please"))
"""Words that make a sentence of two: `make it`, `explain this`."""

_FAILING = "breaks crashes fails freezes hangs"
FAILING = frozenset(_FAILING.split())
"""Third words that say something about the two before them: `npm install fails`."""

_SAYING = """
are broke can can't could crashed did does doesn't fail failed has hung is isn't keeps says should vs was were
will won't would
"""
SAYING = FAILING | frozenset(_SAYING.split())
"""Second words that say something about the first."""

_SAID = """
break continue expand false fold join let look more nice paste read return say shift sleep split sum test true
wait watch write yes
"""
SAID = frozenset(_SAID.split())
"""Whole lines that people say, and that as commands do nothing useful without an argument, or no good."""

TALKERS = frozenset(("echo", "printf", "say", "espeak", "figlet", "cowsay", "wall", "banner"))
"""Commands that are given sentences."""

SEARCHERS = frozenset(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "apropos", "pgrep", "pkill"))
"""Commands that are given words to look for."""

_EVERYDAY = """
cargo chmod chown curl docker grep kubectl mkdir python python3 rsync rmdir sudo systemctl wget
"""
EVERYDAY = frozenset(_EVERYDAY.split())
"""Names that a wrong, missing or additional letter is noticed in: of others, that is too often a word."""

_META = re.compile(r"[:/]([a-zA-Z][\w-]*)(?=\s|$)")
_SHELLISH = re.compile(r"(?:^|\s)--?\w|[|<>$`*~=\\{}\[\]]|&&|;\s*\w|&\s*$|(?:^|\s)\.{0,2}/|['\"]")
_NO_TEXT = re.compile("[\ud800-\udfff]")
_SHORT = 4  # words of a line that may be a command with a slip in it
_IN_LOOPS = frozenset(("a", "i", "in"))
_LEADING = frozenset(("if", "until", "while"))
_KEYWORDS = _LEADING | frozenset(("case", "for", "function", "select"))
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


def decide(
    line: str,
    *,
    resolves: Callable[[str], bool],
    metas: Container[str] | None = None,
    names: Callable[[], Iterable[str]] | None = None,
) -> Decision:
    """What to do with a line; `resolves` tells whether a word is a program, builtin, alias or function.

    With `metas`, a `/name` that is none of them and resolves is a path and runs. With `names`, which gives
    what commands may be called, a slip in such a name is told. Bytes that are no text become U+FFFD.
    """
    text = _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", line).strip()
    if not text.strip("!?"):
        return Decision("nothing", "", hint="! runs what follows it, ? asks it" if text else "")
    if text[0] in "!?":
        return Decision("shell" if text[0] == "!" else "ask", text[1:].strip())
    meta = _META.match(text)
    if meta and not (text[0] == "/" and metas is not None and meta[1] not in metas and resolves(meta[0])):
        return Decision("meta", text[1:])
    return _free(text, resolves, names)


def _free(text: str, resolves: Callable[[str], bool], names: Callable[[], Iterable[str]] | None) -> Decision:
    """The decision about a line that carries no mark."""
    first = text.split(maxsplit=1)[0]
    if not parses(text):
        why = f"this begins with the command {first} but is not whole shell grammar"
        meant = resolves(first) and (first not in _KEYWORDS or _begins_command(text, resolves))
        return _asked(text, why) if meant else Decision("ask", text)
    with reading(encoded(text)):
        word = _first_word(parse(text))
    if word is None:
        return Decision("shell" if re.match(r"[\w(\[{$\"'<>]", text) else "ask", text)
    if not resolves(word):
        return _unknown(text, word, resolves, names)
    if _sentence(text, word):
        return _asked(text, f"{word} is a command, but this reads like a sentence")
    near = _near(text, word)
    hint = f"ran this as a command; to ask it, put ? in front: ?{_begun(text)}" if near else ""
    return Decision("shell", text, near, hint)


def _asked(text: str, why: str) -> Decision:
    return Decision("ask", text, True, f"{why}: asked; to run it, put ! in front: !{_begun(text)}")


def _begun(text: str) -> str:
    """A text as far as a hint has room for it."""
    line, _, rest = text.partition("\n")
    return f"{line} …" if rest else line


def _unknown(
    text: str, word: str, resolves: Callable[[str], bool], names: Callable[[], Iterable[str]] | None
) -> Decision:
    """The decision about a line whose first word is no command: asked, with a word where it is a slip."""
    if re.search("['\"]", text.split(maxsplit=1)[0]):  # `it's` is no name of a command
        return Decision("ask", text)
    shellish = "/" in word or _SHELLISH.search(text.removeprefix(word))
    words = _words(text)
    if names is not None and (shellish or (len(words) <= _SHORT and SMALL.isdisjoint(words))):
        slips = (name for name in names() if _is_slip(word, name) and resolves(name))
        if meant := min(slips, default=""):
            better = _begun(text.replace(word, meant, 1))
            told = f"there is no command {word} ({meant}?): asked; to run it: {better}"
            return Decision("ask", text, True, told)
    return _asked(text, f"there is no command {word}") if shellish else Decision("ask", text)


def _is_slip(word: str, name: str) -> bool:
    """Whether a word is a name with two letters swapped, or an everyday name with one letter wrong."""
    if abs(len(word) - len(name)) > 1 or word == name or name in _KEYWORDS:
        return False
    short, long = sorted((word, name), key=len)
    at = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return name in EVERYDAY and at > 0 and long[at + 1 :] == short[at:]
    if word[at : at + 2] == name[at : at + 2][::-1] and word[at + 2 :] == name[at + 2 :]:
        return True
    return name in EVERYDAY and at > 0 and word[at + 1 :] == name[at + 1 :]


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
    if len(words) == 1:
        return text in SAID
    if word in TALKERS | SEARCHERS or _SHELLISH.search(text):
        return False
    if len(words) > 2 and (words[1] in SAYING or words[2] in FAILING):
        return True
    small = sum(each in SMALL for each in words[1:])
    if small > 1 and (text.endswith("?") or ", " in text):
        return True
    if word.lower() not in ENGLISH:
        return False
    return text.endswith("?") or words[1] in POINTING or (len(words) > 2 and small > 0)


def _near(text: str, word: str) -> bool:
    """Whether a line that runs might have been meant as a sentence."""
    words = _words(text)
    if word in TALKERS or "\n" in text or (word == "git" and _SHELLISH.search(text)):
        return False
    small = sum(each in SMALL for each in words[1:])
    return small > 1 or (word.lower() in ENGLISH and len(words) > 2 and not re.search(r"[^\w\s]", text))


# Lines that go on -------------------------------------------------------------------------------------------

_MAY_BE_OPEN = re.compile(r"[\"'`(){}\[<|&\\]|^(?:for|select|while|until|if|case)\b")
_BEGINS_OPEN = re.compile(r"\(\(|\$[({]|[\w.-]+\s*\(\)|\w+(?:\[[^]]*\])?\+?=")
_NAMED = re.compile(r"(?:for|select)\s+(?:\(\(|\w+\s+in\b|\w+\s*[;\n])|case\s+\S+|function\s+\S+\s*[({]")
_LED = re.compile(r"(?:(?:if|while|until|time|coproc|!|\{)\s+|\(\s*)*(?P<word>[^\s;|&<>()]+)")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


def is_unfinished(text: str, *, resolves: Callable[[str], bool], reads_on: Callable[[str], bool]) -> bool:
    """Whether a text begins a command line that bash would go on reading; `reads_on` asks bash.

    It is asked only about what begins as a command does and has something that may be open: an apostrophe is
    no quotation mark, and a sentence that begins with a keyword is none.
    """
    text = text.lstrip()
    is_forced = text.startswith("!")
    text = text[is_forced:].lstrip()
    if not _MAY_BE_OPEN.search(text) or not (is_forced or _begins_command(text, resolves)):
        return False
    plain = _APOSTROPHE.sub("", text)
    return reads_on(text) and (plain == text or reads_on(plain))


def _begins_command(text: str, resolves: Callable[[str], bool]) -> bool:
    """Whether a text begins as only commands do, or with the name of a command and not as a sentence does."""
    if text[0] == "?" or _META.match(text):
        return False
    if _BEGINS_OPEN.match(text):
        return True
    first, *words = _words(text)
    is_talk = not (SMALL - _IN_LOOPS | SAYING).isdisjoint(words) and not re.search(r"[;\n]", text)
    if first in _KEYWORDS - _LEADING:
        return _NAMED.match(text) is not None and not (is_talk and not _SHELLISH.search(text))
    led = _LED.match(text)
    if led is None or not resolves(led["word"]):
        return False
    if led.start("word"):
        return not is_talk or _SHELLISH.search(text) is not None
    return not (first in ENGLISH and words and words[0] in SMALL)
