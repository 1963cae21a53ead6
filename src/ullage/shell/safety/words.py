"""The words of a command as the program will get them: quotes and backslashes gone, expansions marked."""

from __future__ import annotations

import contextlib
import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

UNSEEN = "\ufffd"
"""Stands in a word for what only the running shell will know."""

_LINE: ContextVar[bytes] = ContextVar("line")

_HOME = re.compile(r"\$(HOME\b|\{HOME\})")
_HARMLESS = re.compile(r"\$(?:[?#$]|\{?(?:PWD|OLDPWD|USER|LOGNAME|HOSTNAME|UID|RANDOM|SECONDS)\}?)$")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_ANSI = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str
    """Its value, with UNSEEN for each part that only the running shell knows; the home directory is `~`."""
    fixed: bool = True
    """Whether the value is all there: no expansion, no brace list."""
    glob: bool = False
    """Whether the shell may replace it by names of files."""
    loose: bool = False
    """Whether it might turn out to be an option: it begins with, or may split into, what nobody knows yet."""
    code: str = ""
    """A substitution that stands in it as plain text, which the parser took for letters."""


def literal(text: str) -> Word:
    """A word whose value is known."""
    return Word(text)


def join(words: list[Word]) -> Word:
    """The words as one, a space between: what `eval`, `ssh` and `watch` hand to a shell."""
    text = " ".join(word.text for word in words)
    return Word(text, fixed=all(word.fixed for word in words), loose=any(word.loose for word in words))


def read(node: Node) -> Word:
    """The word that a node of the tree stands for."""
    readers = {
        "word": _plain,
        "number": _plain,
        "extglob_pattern": _plain,
        "variable_name": _plain,
        "raw_string": lambda node: Word(source(node)[1:-1]),
        "ansi_c_string": lambda node: Word(_ANSI.sub(_escape, source(node)[2:-1])),
        "string": _quoted,
        "concatenation": _joined,
        "command_name": _joined,
        "translated_string": _joined,
    }
    return readers.get(node.type, _expansion)(node)


def read_all(nodes: list[Node]) -> list[Word]:
    """The words of these nodes; nodes without a blank between are one word, which the grammar may not see."""
    words: list[Word] = []
    end = -1
    for node in nodes:
        word = read(node)
        if node.start_byte == end:
            last = words.pop()
            word = Word(
                last.text + word.text,
                fixed=last.fixed and word.fixed,
                glob=last.glob or word.glob,
                loose=last.loose or word.loose,
                code=last.code or word.code,
            )
        words.append(word)
        end = node.end_byte
    return words


@contextlib.contextmanager
def reading(raw: bytes) -> Iterator[None]:
    """Within it, nodes are read from this line.

    The parser sees every byte that is not ASCII as a plain letter, so a node does not know its own text.
    """
    before = _LINE.set(raw)
    try:
        yield
    finally:
        _LINE.reset(before)


def source(node: Node) -> str:
    """The text of a node as it was written."""
    return _LINE.get()[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _plain(node: Node) -> Word:
    text = source(node)
    bare = re.sub(r"\\(.)", "", text, flags=re.DOTALL)
    code = text if "`" in bare or "$(" in bare else ""
    value = re.sub(r"\\(\n|.)", lambda match: match[1].strip("\n"), text, flags=re.DOTALL)
    return Word(value, fixed=not code, glob=bool(re.search(r"[*?\[]", bare)), code=code)


def _quoted(node: Node) -> Word:
    """A double-quoted string: only some backslashes are the shell's."""
    text, fixed, code = "", True, ""
    for piece in _pieces(node):
        if isinstance(piece, str):
            text += re.sub(r'\\([$`"\\\n])', lambda match: match[1].strip("\n"), piece)
            code = code or (piece if re.search(r"(?<!\\)(?:`|\$\()", piece) else "")
        elif piece.type != '"':
            word = read(piece) if piece.type != "string_content" else Word(source(piece))
            text, fixed = text + word.text, fixed and word.fixed
    return Word(text, fixed=fixed and not code, loose=text.startswith(UNSEEN), code=code)


def _pieces(node: Node) -> list[Node | str]:
    """The expansions of a string and the text between them, by bytes: the tree leaves blanks out."""
    raw, at = _LINE.get(), node.start_byte + 1
    found: list[Node | str] = []
    for child in node.children:
        if child.type in ('"', "string_content"):
            continue
        found += [raw[at : child.start_byte].decode("utf-8", "replace"), child]
        at = child.end_byte
    return [*found, raw[at : node.end_byte - 1].decode("utf-8", "replace")]


def _joined(node: Node) -> Word:
    children = [child for child in node.children if child.type != "$"]
    words = [read(child) for child in children]
    text = "".join(word.text for word in words)
    bare = "".join(
        word.text for child, word in zip(children, words, strict=True) if child.type in ("word", "number")
    )
    listed = "{" in bare and ("," in bare or ".." in bare)
    splits = any(
        word.loose
        for child, word in zip(children, words, strict=True)
        if child.type not in ("string", "word")
    )
    return Word(
        text,
        fixed=all(word.fixed for word in words) and not listed,
        loose=listed or splits or text.startswith(UNSEEN),
        glob=any(word.glob for word in words),
        code=next((word.code for word in words if word.code), ""),
    )


def _expansion(node: Node) -> Word:
    text = source(node)
    if _HOME.fullmatch(text):
        return Word("~")
    harmless = bool(_HARMLESS.fullmatch(text))
    return Word("0" if harmless else UNSEEN, fixed=False, loose=not harmless)


def _escape(match: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            code = int(match[group], base)
            return chr(code) if code < 0x110000 else UNSEEN
    return UNSEEN if match[5] else _ESCAPES.get(match[6], match[6])
