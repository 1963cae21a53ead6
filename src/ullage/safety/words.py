"""The words of a command as the program will get them: quotes and backslashes removed, expansions marked."""

from __future__ import annotations

import contextlib
import re
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

UNSEEN = "\ufffd"
"""Stands in a word for a part that is not known before the shell runs."""

_LINE: ContextVar[bytes] = ContextVar("line")

_HOME = re.compile(r"\$(HOME\b|\{HOME\})")
_FOLDER = re.compile(r"\$(?:(?:OLD)?PWD\b|\{(?:OLD)?PWD\})")
_HARMLESS = re.compile(
    r"\$(?:[?#$]|(?:USER|LOGNAME|HOSTNAME|E?UID|RANDOM|SECONDS|LINENO|PPID)\b"
    r"|\{(?:[?#$]|#\w+|USER|LOGNAME|HOSTNAME|E?UID|RANDOM|SECONDS|LINENO|PPID)\})"
)
_PROGRAM = re.compile(r"\$\((?:which|command -v|type -p) [\w.+-]+\)")
"""A substitution that becomes the path of a program."""

_SINGLE = re.compile(
    r"\$\((?:git (?:rev-parse (?:--short |--verify )?|merge-base )[\w./@~^]+(?: [\w./@~^]+)?"
    r"|date (?:-u )?[\"']?\+(?:%[FTYmdHMSsjyuV]|[\w:./])(?:%[FTYmdHMSsjyuV]|[\w:./-])*[\"']?"
    r"|whoami|nproc|uname -[rms]|id -u?n?|docker ps -(?:lq|ql))\)"
)
"""A substitution that becomes one plain word, which is no option."""

_BRACES = re.compile(r"([\w.,/*?:=+@%-]*)\{([\w./*?-]*(?:,[\w./*?-]*)+)\}([\w.,/*?:=+@%-]*)")
"""A word with one list in braces and nothing else that the shell would replace, other than names of files."""

_MANY = re.compile(r"\$@|\$\{[@!]|\$\{\w+\[@\]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_ANSI = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str
    """The value, with UNSEEN for each part that is not known before the shell runs, and `~` for the home."""
    fixed: bool = True
    """True if the whole value is known: it has no expansion and no brace list."""
    glob: bool = False
    """True if the shell may replace the word by names of files."""
    loose: bool = False
    """True if the word may turn out to be an option: it begins with, or may split at, an unknown part."""
    splits: bool = False
    """True if the word may turn out to be several words, or none: it has an expansion outside quotes."""
    code: str = ""
    """A substitution inside the word that the parser read as plain letters."""


def join(words: list[Word]) -> Word:
    """Returns the words as one, separated by spaces, as `eval`, `ssh` and `watch` hand them to a shell."""
    text = " ".join(word.text for word in words)
    return Word(
        text,
        fixed=all(word.fixed for word in words),
        loose=any(word.loose for word in words),
        splits=any(word.splits for word in words),
    )


def read(node: Node) -> Word:
    """Returns the word of a node of the tree."""
    readers = {
        "word": _plain,
        "number": _plain,
        "extglob_pattern": _plain,
        "variable_name": _plain,
        "raw_string": lambda node: Word(source(node)[1:-1]),
        "ansi_c_string": lambda node: Word(_ANSI.sub(_escape, source(node)[2:-1])),
        "string": _read_string,
        "concatenation": _join_parts,
        "command_name": _join_parts,
        "translated_string": _join_parts,
        "process_substitution": _process,
    }
    return readers.get(node.type, _expansion)(node)


def read_all(nodes: list[Node]) -> list[Word]:
    """Returns the words of these nodes. Nodes without a blank between them are one word."""
    words: list[Word] = []
    start = end = -1
    for node in nodes:
        word = read(node)
        start = start if node.start_byte == end else node.start_byte
        if node.start_byte == end:
            last = words.pop()
            word = Word(
                last.text + word.text,
                fixed=last.fixed and word.fixed,
                glob=last.glob or word.glob,
                loose=last.loose or word.splits,
                splits=last.splits or word.splits,
                code=last.code or word.code,
            )
            if _lists(_LINE.get()[start : node.end_byte].decode("utf-8", "replace")):
                word = replace(word, fixed=False, loose=True, splits=True)
        words.append(word)
        end = node.end_byte
    return words


def read_command(nodes: list[Node]) -> list[Word]:
    """Returns the words of a command, in which `*.{js,ts}` is the two words that the shell makes of it."""
    words: list[Word] = []
    for group in _adjacent(nodes):
        match = _BRACES.fullmatch(source(group[0])) if words and len(group) == 1 else None
        if match is None:
            words += read_all(group)
            continue
        before, listed, after = match.groups()
        made = [f"{before}{each}{after}" for each in listed.split(",")]
        words += [Word(each, glob=bool(re.search(r"[*?]", each))) for each in made if each]
    return words


def _adjacent(nodes: list[Node]) -> list[list[Node]]:
    """Returns the nodes in groups without a blank inside."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


@contextlib.contextmanager
def reading(raw: bytes) -> Iterator[None]:
    """Sets the line from which nodes are read inside this block.

    The parser gets a plain letter for every byte that is not ASCII, so a node does not know its own text.
    """
    before = _LINE.set(raw)
    try:
        yield
    finally:
        _LINE.reset(before)


def source(node: Node) -> str:
    """Returns the text of a node as it was written."""
    return _LINE.get()[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _plain(node: Node) -> Word:
    text = source(node)
    bare = re.sub(r"\\(.)", "", text, flags=re.DOTALL)
    code = text if "`" in bare or "$(" in bare else ""
    value = re.sub(r"\\(\n|.)", lambda match: match[1].strip("\n"), text, flags=re.DOTALL)
    listed = _lists(bare)
    return Word(
        value,
        fixed=not code and not listed,
        glob=bool(re.search(r"[*?\[]", bare)),
        loose=listed,
        splits=listed,
        code=code,
    )


def _lists(bare: str) -> bool:
    """Returns True if a text without quotes and backslashes may be a list in braces, as in `{a,b}`."""
    start, end = bare.find("{"), bare.rfind("}")
    return 0 <= start < end and ("," in bare[start:end] or ".." in bare[start:end])


def _read_string(node: Node) -> Word:
    """Reads a double-quoted string, in which only some backslashes have a meaning."""
    text, fixed, code, splits = "", True, "", False
    for piece in _pieces(node):
        if isinstance(piece, str):
            text += re.sub(r'\\([$`"\\\n])', lambda match: match[1].strip("\n"), piece)
            code = code or (piece if re.search(r"(?<!\\)(?:`|\$\()", piece) else "")
        elif piece.type != '"':
            word = read(piece) if piece.type != "string_content" else Word(source(piece))
            text, fixed = text + word.text, fixed and word.fixed
            splits = splits or bool(_MANY.match(source(piece).lstrip()))
    return Word(
        text, fixed=fixed and not code, loose=splits or text.startswith(UNSEEN), splits=splits, code=code
    )


def _pieces(node: Node) -> list[Node | str]:
    """Returns the expansions of a string and the text between them, which the tree does not have."""
    raw, at = _LINE.get(), node.start_byte + 1
    found: list[Node | str] = []
    for child in node.children:
        if child.type in ('"', "string_content"):
            continue
        found += [raw[at : child.start_byte].decode("utf-8", "replace"), child]
        at = child.end_byte
    return [*found, raw[at : node.end_byte - 1].decode("utf-8", "replace")]


def _join_parts(node: Node) -> Word:
    children = [child for child in node.children if child.type != "$"]
    words = [read(child) for child in children]
    text = "".join(word.text for word in words)
    bare = "".join(
        word.text for child, word in zip(children, words, strict=True) if child.type in ("word", "number")
    )
    splits = _lists(bare) or any(word.splits for word in words)
    return Word(
        text,
        fixed=all(word.fixed for word in words) and not _lists(bare),
        loose=splits or text.startswith(UNSEEN),
        splits=splits,
        glob=any(word.glob for word in words),
        code=next((word.code for word in words if word.code), ""),
    )


def _process(_: Node) -> Word:
    """Reads `<(…)`, which the shell replaces by the path of a pipe."""
    return Word("/dev/fd/" + UNSEEN, fixed=False)


def _expansion(node: Node) -> Word:
    whole = source(node)
    text = whole.lstrip()
    blanks = whole[: len(whole) - len(text)]
    if _HOME.fullmatch(text):
        return Word(blanks + "~")
    if _PROGRAM.fullmatch(text):
        return Word(f"{blanks}/{UNSEEN}", fixed=False)
    if _SINGLE.fullmatch(text):
        return Word(blanks + UNSEEN, fixed=False)
    if _FOLDER.fullmatch(text):
        return Word(f"{blanks}/{UNSEEN}", fixed=False, splits=True)
    harmless = bool(_HARMLESS.fullmatch(text))
    value = "0" if harmless else UNSEEN
    return Word(blanks + value, fixed=False, loose=not harmless, splits=not harmless)


def _escape(match: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            code = int(match[group], base)
            return chr(code) if code < 0x110000 else UNSEEN
    return UNSEEN if match[5] else _ESCAPES.get(match[6], match[6])
