"""Reads an awk program, to find out if it writes a file or runs a command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r]|\\\n)+|\#[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<regex>/(?:[^/\\\n\[]|\\.|\[\^?\]?[^]/\n]*\])+/)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<number>\d[\w.]*|\.\d+)
    | (?P<sign>\|\||\|&|>>|>=|<=|==|!=|!~|&&|\+\+|--|[-+*/%^!<>|?:=~$(){}\[\],;@\n&])""",
    re.VERBOSE | re.DOTALL,
)
_BEFORE_REGEX = {"print", "printf", "return", "in", "do", "else", "case", "getline", "BEGIN", "END"}
_RUNS = {"system", "getline", "extension"}
"""Functions that run a command or read its output. `fflush` and `close` need a file that is already open."""

_CONTINUES = (",", "&&", "||")
"""Tokens after which a statement goes on in the next line."""


def read_pipes(program: str) -> list[str] | None:
    """Returns the commands to which an awk program prints; None if it may write a file or run others."""
    printing, depth, before = False, 0, ""
    piped: list[str] = []
    tokens = [*_tokens(program), ("sign", ";")]
    for at, (kind, text) in enumerate(tokens):
        if kind == "lost" or (kind == "name" and text in _RUNS) or text in ("|&", ">>", "@"):
            return None
        if text == "|":
            # What follows the string may make it another command: `print | "sort " x`.
            (made, command), (_, end) = (*tokens[at + 1 : at + 3], ("", ""), ("", ""))[:2]
            if not printing or made != "string" or "\\" in command or end not in (";", "}", "\n"):
                return None
            piped.append(command[1:-1])
        if kind == "name" and text in ("print", "printf"):
            printing, depth = True, 0
        elif text in ("(", "["):
            depth += 1
        elif text in (")", "]"):
            depth -= 1
        elif text in (";", "}") or (text == "\n" and depth <= 0 and before not in _CONTINUES):
            printing = False
        elif text == ">" and printing and depth <= 0:
            return None
        before = before if text == "\n" else text
    return piped


def _tokens(program: str) -> Iterator[tuple[str, str]]:
    """Yields the tokens of a program; `lost` if the rest cannot be read for certain.

    A slash begins a regular expression unless an operand stands before it. If that is wrong, the program is
    still read strictly: the parts of a supposed division are tokens of their own.
    """
    at, operand = 0, False
    while at < len(program):
        match = _TOKEN.match(program, at)
        if match is not None and match.lastgroup == "regex" and operand:
            match = re.compile(r"(?P<sign>/)").match(program, at)
        if match is None or match.lastgroup is None:
            yield "lost", program[at:]
            return
        at = match.end()
        if match.lastgroup == "blank":
            continue
        if match.lastgroup == "sign" and match[0] == "/" and not operand:
            yield "lost", program[at:]
            return
        yield match.lastgroup, match[0]
        operand = (
            match.lastgroup in ("string", "number", "regex")
            or (match.lastgroup == "name" and match[0] not in _BEFORE_REGEX)
            or match[0] in (")", "]", "$", "++", "--")
        )
