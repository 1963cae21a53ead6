"""Decides if a line of input is a shell command or a question, by rules that a person can predict.

1. `!` in front runs the rest as a command, `?` in front asks the rest as a question.
2. `:name` and `/name` are meta commands; `/usr/bin/ls` is a path.
3. A line that is complete shell syntax and whose first word is a command runs.
4. Any other line is a question.

Rule 3 has one exception: a line that reads like a sentence is a question. A line reads like a sentence if it
has no option and no syntax that only a shell understands, and
- its first word is also an English word (`find`, `make`, `who`, …), and it has a word that commands rarely
  get (`how`, `with`, …) or ends with a question mark; or
- it has an article or a possessive before another word (`rm the old files`), or its second word points at
  something (`rm it`); or
- its second word makes a statement about the first (`git is slow`), or a later word about those before it
  (`git push is rejected`, `npm install fails`, `which file defines main`); or
- it says `I`, or has another alphabet in the place of a subcommand (`git` with a Japanese sentence); or
- it has words after a command that takes none (`clear everything`, `true story`), or ends as sentences do
  (`… please`); or
- it has three words that commands rarely get, or two in a long line or with a comma or a question mark; or
- it is a word or two that people say and that do nothing useful as a command (`yes`, `wait`, `go ahead`).
Commands that take sentences (`echo`) or search words (`grep`) run, unless a search ends with `please` or has
several small words in the place of its files.

If the other reading was possible, the decision is ambiguous, and its hint says how to get it. A short line
whose first word is a misspelled command (`gti status`) is a question, and its hint names the command.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ullage.safety.parse import encode_line, every, parse, parses
from ullage.safety.words import read, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from tree_sitter import Node

InputKind = Literal["shell", "ask", "meta", "nothing"]


@dataclass(frozen=True, slots=True)
class InputDecision:
    """The decision about a line of input."""

    kind: InputKind
    text: str
    """The line without the mark that forced the decision; for a meta command, its name and arguments."""
    ambiguous: bool = False
    """True if the other reading was possible too."""
    hint: str = ""
    """A message with the decision and the way to get the other reading; empty if the decision is obvious."""


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
"""Common words of sentences that commands rarely get as arguments."""

POINTING = frozenset(("it", "this", "that", "me", "us", "them", "everything", "something", "please"))
"""Second words that turn a command's name into a sentence: `make it`, `explain this`."""

_DETERMINERS = """
the my these those your our their every each some any
das den dem der die diese dieser dieses ein eine einen meine meinen
les une mes ces cette los las mis estos det
"""
DETERMINERS = frozenset(_DETERMINERS.split())
"""Words that stand before a noun and are not names of files: `rm the old files`."""

_FILES = """
cat cmp column comm cut diff expand file fold head join less more paste rev sort split tail touch uniq wc
"""
FILES = frozenset(_FILES.split())
"""Commands whose arguments are files, which people call `a`, `b` or `i`."""

NAMES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(FILES, frozenset(("a", "i"))),
    "make": frozenset(("all",)),
}
"""Command → words that are arguments of it, though they are common in sentences."""

BEFORE = frozenset(("time", "nice", "watch", "sudo"))
"""Commands that are followed by a command: the rest of the line decides."""
_PHRASES = """
cd there,declare victory,go ahead,go on,head over heels,last commit,look for,look up,nice try,wait what,
watch out,which one
"""
PHRASES = frozenset(_PHRASES.replace("\n", "").split(","))
"""Short sentences that begin with a command."""

_BARE = "arch clear date exit false free history jobs kill logout nproc pwd top true tty uptime whoami"
BARE = frozenset(_BARE.split())
"""Commands that take no plain words: `clear everything` and `true story` are sentences."""

CLOSING = frozenset(("do", "done", "elif", "else", "esac", "fi", "in", "then"))
"""Keywords that begin no command."""

LAST = frozenset(("compared", "explained", "ideas", "nicht", "please"))
"""Last words of sentences."""

RUNS = frozenset(("who am i", "who mom likes"))
"""Sentences that are commands."""

_FAILING = "breaks crashes fails freezes hangs"
FAILING = frozenset(_FAILING.split())
"""Third words that make a statement about the first two: `npm install fails`."""

_SAYING = """
are asks broke can can't complains could crashed did does doesn't fail failed gives has hung is isn't keeps
prints reports returns says should shows stops takes throws vs wants was were will won't would
"""
SAYING = FAILING | frozenset(_SAYING.split())
"""Second words that make a statement about the first."""

STATING = frozenset(
    (
        "are",
        "called",
        "does",
        "doesn't",
        "don't",
        "gives",
        "has",
        "is",
        "isn't",
        "named",
        "says",
        "shows",
        "was",
        "won't",
    )
)
"""Words that make a statement wherever they stand before the last one: `git push is rejected`."""

_ACTING = "changed contains defines depends handles holds listens needs owns provides serves uses"
ACTING = frozenset(_ACTING.split())
"""Third words of questions: `which process uses port 80`."""

_PARTED = """
apt aws az brew cargo conda docker dotnet flatpak gcloud gem gh git go helm journalctl kubectl npm pip pip3
pnpm podman poetry rustup snap systemctl terraform uv yarn
"""
PARTED = frozenset(_PARTED.split())
"""Commands whose second word is the name of a subcommand, in letters of ASCII."""

_SAID = """
break continue expand fold join let look more nice paste read return say shift sleep split sum test wait watch
write yes
"""
SAID = frozenset(_SAID.split())
"""Words that people say as a whole line; as commands without arguments, they do nothing useful."""

TALKERS = frozenset(("echo", "printf", "say", "espeak", "figlet", "cowsay", "wall", "banner"))
"""Commands that take sentences as arguments."""

SEARCHERS = frozenset(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "apropos", "pgrep", "pkill"))
"""Commands that take search words as arguments."""

_EVERYDAY = """
cargo chmod chown curl docker grep kubectl mkdir python python3 rsync rmdir sudo systemctl wget
"""
EVERYDAY = frozenset(_EVERYDAY.split())
"""Commands whose names are checked for a wrong, missing or extra letter; other names are too like words."""

_META = re.compile(r"[:/]([a-zA-Z][\w-]*)(?=\s|$)")
_SHELLISH = re.compile(r"(?:^|\s)-(?:-?\w|-\s)|[|<>$`*~=\\{}\[\]]|&&|;\s*\w|&\s*$|(?:^|\s)\.{0,2}/|['\"]")
_FIRST_PERSON = re.compile(r" I [a-z]")
_NO_TEXT = re.compile("[\ud800-\udfff]")
_SHORT = 4  # most words of a line that is checked for a misspelled command
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


def classify_input(
    line: str,
    *,
    resolves: Callable[[str], bool],
    metas: Container[str] | None = None,
    names: Callable[[], Iterable[str]] | None = None,
) -> InputDecision:
    """Decides what to do with a line.

    `resolves` returns True if a word is a program, builtin, alias or function. With `metas`, a `/name` that
    is not among them but resolves is a path and runs. With `names`, the names of commands, the hint names the
    command that a misspelled first word may mean. Bytes that are not text become U+FFFD.
    """
    text = _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", line).strip()
    if not text.strip("!?"):
        return InputDecision(
            "nothing", "", hint="Type a command after !, or a question after ?" if text else ""
        )
    if text[0] in "!?":
        return InputDecision("shell" if text[0] == "!" else "ask", text[1:].strip())
    meta = _META.match(text)
    if meta and not (text[0] == "/" and metas is not None and meta[1] not in metas and resolves(meta[0])):
        return InputDecision("meta", text[1:])
    return _free(text, resolves, names)


def _free(
    text: str, resolves: Callable[[str], bool], names: Callable[[], Iterable[str]] | None
) -> InputDecision:
    """Decides about a line without a mark."""
    first = text.split(maxsplit=1)[0]
    if not parses(text):
        why = f"{first} is a command, but this is not complete shell syntax"
        meant = resolves(first) and (first not in _KEYWORDS or _begins_command(text, resolves))
        return _ask_with_hint(text, why) if meant else InputDecision("ask", text)
    with reading(encode_line(text)):
        word = _first_word(parse(text))
    if word is None:
        return InputDecision("shell" if re.match(r"[\w(\[{$\"'<>]", text) else "ask", text)
    if word in CLOSING:
        return InputDecision("ask", text)
    if not resolves(word):
        return _unknown(text, word, resolves, names)
    if _sentence(text, word, resolves):
        return _ask_with_hint(text, f"{word} is a command, but this reads like a sentence")
    near = _near(text, word)
    hint = f"Ran as a command. To ask it, put ? in front: ?{_shorten_text(text)}" if near else ""
    return InputDecision("shell", text, near, hint)


def _ask_with_hint(text: str, why: str) -> InputDecision:
    return InputDecision(
        "ask", text, True, f"{why}: sent as a question. To run it, put ! in front: !{_shorten_text(text)}"
    )


def _shorten_text(text: str) -> str:
    """Returns the part of a text that a hint has room for."""
    line, _, rest = text.partition("\n")
    return f"{line} …" if rest else line


def _unknown(
    text: str, word: str, resolves: Callable[[str], bool], names: Callable[[], Iterable[str]] | None
) -> InputDecision:
    """Takes a line without a command as a question, with a hint if its first word looks misspelled."""
    # The name of a command has no quotation mark: `it's` begins a sentence.
    if re.search("['\"]", text.split(maxsplit=1)[0]):
        return InputDecision("ask", text)
    shellish = "/" in word or _SHELLISH.search(text.removeprefix(word))
    words = _words(text)
    if names is not None and (shellish or (len(words) <= _SHORT and SMALL.isdisjoint(words))):
        slips = (name for name in names() if _is_slip(word, name) and resolves(name))
        if meant := min(slips, default=""):
            better = _shorten_text(text.replace(word, meant, 1))
            hint = f"Unknown command {word} (did you mean {meant}?): sent as a question. To run it: {better}"
            return InputDecision("ask", text, True, hint)
    return _ask_with_hint(text, f"Unknown command {word}") if shellish else InputDecision("ask", text)


def _is_slip(word: str, name: str) -> bool:
    """Returns True if a word is a name with two letters swapped, or an everyday name with a wrong letter."""
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
    """Returns the name of the first command; None if the line begins with syntax that only a shell has."""
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


def _sentence(text: str, word: str, resolves: Callable[[str], bool]) -> bool:
    """Returns True if a line whose first word is a command reads like a sentence."""
    words = _words(text)
    if len(words) == 1:
        return text in SAID
    if word in TALKERS or _SHELLISH.search(text) or text.lower() in RUNS:
        return False
    if word in SEARCHERS:
        return len(words) > 2 and (words[-1] in LAST or _count_small(word, words[2:]) > 1)
    if _is_idiom(word, words) or _says(word, words) or _FIRST_PERSON.search(text):
        return True
    if word in BEFORE and words[1].isalpha() and words[1] not in SMALL:
        found = word == "sudo" or resolves(words[1])
        return not found or _sentence(text.split(maxsplit=1)[1], words[1], resolves)
    small = _count_small(word, words[1:])
    asks = word.lower() in ENGLISH and (text.endswith("?") or (len(words) > 2 and small > 0))
    return asks or small > 2 or (small > 1 and (len(words) > 4 or text.endswith("?") or ", " in text))


def _is_idiom(word: str, words: list[str]) -> bool:
    """Returns True if a line begins or ends as commands do not."""
    if words[1] in POINTING or not PHRASES.isdisjoint((" ".join(words[:2]), " ".join(words))):
        return True
    keyword = word in BEFORE and words[1] in _KEYWORDS | CLOSING
    bare = word in BARE and any(each.isalpha() for each in words[1:])
    foreign = word in PARTED and not words[1].isascii()
    return keyword or bare or foreign or (len(words) > 2 and words[-1] in LAST)


def _says(word: str, words: list[str]) -> bool:
    """Returns True if the words make a statement or have an article with a noun."""
    if len(words) == 2:
        return words[1] in FAILING and word not in FILES
    if word in ("which", "who") and (words[2] in ACTING or (word == "who" and len(words) > 3)):
        return True
    if words[1] in SAYING or not FAILING.isdisjoint(words[2:4]) or not STATING.isdisjoint(words[2:-1]):
        return True
    article = word not in FILES and any(
        each in ("a", "an") and after.isalpha() and len(after) > 2
        for each, after in itertools.pairwise(words[2:])
    )
    return article or not DETERMINERS.isdisjoint(words[1:-1])


def _count_small(word: str, words: list[str]) -> int:
    """Returns the number of words that this command rarely gets; `a` before a name such as `b` is one too."""
    small = SMALL - NAMES.get(word, frozenset())
    pairs = itertools.zip_longest(words, words[1:], fillvalue="")
    return sum(each in small and (each != "a" or len(after) > 1) for each, after in pairs)


def _near(text: str, word: str) -> bool:
    """Returns True if a line that runs may have been meant as a sentence."""
    words = _words(text)
    if word in TALKERS or "\n" in text or (word == "git" and _SHELLISH.search(text)):
        return False
    small = _count_small(word, words[1:])
    named = any(len(each) == 1 or each == "all" for each in words[1:])
    plain = word.lower() in ENGLISH and len(words) > 2 and not re.search(r"[^\w\s]", text)
    return small > 1 or (plain and not named)


# Unfinished lines -------------------------------------------------------------------------------------------

_MAY_BE_OPEN = re.compile(r"[\"'`(){}\[<|&\\]|^(?:for|select|while|until|if|case)\b")
_BEGINS_OPEN = re.compile(r"\(\(|\$[({]|[\w.-]+\s*\(\)|\w+(?:\[[^]]*\])?\+?=")
_NAMED = re.compile(r"(?:for|select)\s+(?:\(\(|\w+\s+in\b|\w+\s*[;\n])|case\s+\S+|function\s+\S+\s*[({]")
_LED = re.compile(r"(?:(?:if|while|until|time|coproc|!|\{)\s+|\(\s*)*(?P<word>[^\s;|&<>()]+)")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


def is_unfinished(text: str, *, resolves: Callable[[str], bool], reads_on: Callable[[str], bool]) -> bool:
    """Returns True if a text begins a command line that bash would go on reading; `reads_on` asks bash.

    bash is asked only if the text begins like a command and has a character or keyword that may open
    something. An apostrophe inside a word opens no quotation, and a sentence that begins with a keyword opens
    no block.
    """
    text = text.lstrip()
    is_forced = text.startswith("!")
    text = text[is_forced:].lstrip()
    if not _MAY_BE_OPEN.search(text) or not (is_forced or _begins_command(text, resolves)):
        return False
    plain = _APOSTROPHE.sub("", text)
    return reads_on(text) and (plain == text or reads_on(plain))


def _begins_command(text: str, resolves: Callable[[str], bool]) -> bool:
    """Returns True if a text begins like a command and not like a sentence."""
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
