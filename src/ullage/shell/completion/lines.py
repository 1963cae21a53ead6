"""Completion of command lines: decides if the word at the cursor is a program or a path."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.safety.rules import table
from ullage.safety.wrappers import ASSIGNMENT
from ullage.shell.completion import bash
from ullage.shell.completion.paths import is_any, is_folder, is_runnable, paths, programs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.safety.rules import Wrapper
    from ullage.shell.prompt import Suggestion
    from ullage.terminal import Runner

BEFORE_COMMANDS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{"))
"""Words after which a command begins."""
FOLDERS_ONLY = frozenset(("cd", "pushd"))
"""Commands whose arguments are folders."""

_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t]|\\\n)+)
    | (?P<target>&>>?|[<>]&|<<<|<<-?|<>|>\||>>?|<(?!\())
    | (?P<open>\$\(|[<>]\(|\(|`)
    | (?P<close>\))
    | (?P<end>[;|&\n]+)
    | (?P<quote>")
    | (?P<piece>\\.?|'[^']*'?|\$|[^\s;|&<>()$`"'\\]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""(?P<open>\$\(|`)|(?P<quote>")|(?P<piece>\\.?|\$|[^"\\$`]+)""", re.DOTALL)


@dataclass(slots=True)
class _Command:
    """The typed part of a command. A command in `$(…)` is inside a word of another command."""

    opener: str = ""
    """The sign that opens a nested command, such as `$(`; empty for the outermost command."""
    words: list[str] = field(default_factory=list)
    start: int | None = None
    """Offset of the unfinished word; None between two words."""
    is_quoted: bool = False
    """True inside double quotation marks."""
    is_target: bool = False
    """True if the next word is the file of a redirection."""

    def end_word(self, line: str, at: int) -> None:
        if self.start is None:
            return
        if not self.is_target:
            self.words.append(line[self.start : at])
        self.start, self.is_target = None, False


def _last_command(line: str) -> _Command | None:
    """Returns the command at the end of the line; None in a comment."""
    commands = [_Command()]
    at = 0
    while at < len(line):
        command = commands[-1]
        token = (_QUOTED if command.is_quoted else _TOKEN).match(line, at)
        if token is None:
            return None
        kind = token.lastgroup or ""
        if kind == "piece" and line[at] == "#" and command.start is None:
            return None
        closes = kind == "close" or (token[0] == "`" and command.opener == "`")
        if closes and len(commands) > 1:
            commands.pop()
        else:
            _take(command, kind, line, at)
            if kind == "open":
                commands.append(_Command(opener=token[0]))
        at = token.end()
    return commands[-1]


def _take(command: _Command, kind: str, line: str, at: int) -> None:
    if kind in {"piece", "quote", "open"}:
        command.start = at if command.start is None else command.start
        command.is_quoted ^= kind == "quote"
        return
    if kind == "target" and command.start is not None and line[command.start : at].isdecimal():
        command.start = None  # the number is a file descriptor, as in 2>
    command.end_word(line, at)
    if kind != "blank":
        command.is_target = kind == "target"
    if kind in {"end", "close"}:
        command.words.clear()


def line_of(runner: Runner, line: str) -> Iterable[Suggestion]:
    """Returns the completions of a command line: at the start of a command programs, elsewhere words of bash.

    If bash offers nothing, these are paths.
    """
    command = _last_command(line)
    if command is None:
        return ()
    word = "" if command.start is None else line[command.start :]
    if named := bash.variables(runner, word):
        return named
    name = "" if command.is_target else _name(command.words)
    if name is None and not ASSIGNMENT.match(word):
        return paths(runner, word, is_runnable) if "/" in word else programs(runner, word)
    if name and name not in FOLDERS_ONLY and (asked := bash.arguments(runner, _own(command.words), word)):
        return asked
    wanted = is_folder if name in FOLDERS_ONLY else is_any
    found = paths(runner, word, wanted)
    cut = None if found else re.match(r"[\w-]+=", word)
    return found if cut is None else paths(runner, word[cut.end() :], wanted)


def _own(words: Sequence[str]) -> Sequence[str]:
    """Returns the words of a command without the assignments and keywords before it."""
    before = itertools.takewhile(lambda word: word in BEFORE_COMMANDS or ASSIGNMENT.match(word), words)
    return words[sum(1 for _ in before) :]


def _name(words: Sequence[str]) -> str | None:
    """Returns the name of the command with these words; None if the next word is the name."""
    at = 0
    while at < len(words):
        wrapper = table().wrappers.get(words[at])
        if words[at] in BEFORE_COMMANDS or ASSIGNMENT.match(words[at]):
            at += 1
        elif wrapper is None:
            return words[at]
        else:
            after = _after(wrapper, words, at + 1)
            if after > len(words):
                return words[at]
            at = after
    return None


def _after(wrapper: Wrapper, words: Sequence[str], at: int) -> int:
    """Returns the index of the command that a wrapper such as sudo runs.

    The index is beyond the end if words of the wrapper itself are still missing.
    """
    own = wrapper.own
    while at < len(words):
        word = words[at]
        if word.startswith("-"):
            at += 2 if word in wrapper.values else 1
        elif ASSIGNMENT.match(word) or own:
            own -= not ASSIGNMENT.match(word)
            at += 1
        else:
            return at
    return at + own
