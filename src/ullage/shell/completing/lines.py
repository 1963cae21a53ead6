"""A command line as far as it is typed: whether a program or a path comes next."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.shell.completing.paths import is_any, is_folder, is_runnable, paths, programs
from ullage.shell.safety.rules import table
from ullage.shell.safety.wrappers import ASSIGNMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ullage.shell.prompt import Suggestion
    from ullage.shell.running import Runner
    from ullage.shell.safety.rules import Wrapper

BEFORE_COMMANDS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{"))
"""Words after which a command begins."""
FOLDERS_ONLY = frozenset(("cd", "pushd"))

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
    """A command as far as it is typed; that in `$(…)` stands within a word of another."""

    opener: str = ""
    words: list[str] = field(default_factory=list)
    start: int | None = None
    """Where its last word begins; None between two words."""
    is_quoted: bool = False
    is_target: bool = False
    """Whether the next word is a file that is redirected to or from."""

    def end_word(self, line: str, at: int) -> None:
        if self.start is None:
            return
        if not self.is_target:
            self.words.append(line[self.start : at])
        self.start, self.is_target = None, False


def _last_command(line: str) -> _Command | None:
    """The command in which the line ends; None in a comment."""
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
        command.start = None  # a descriptor
    command.end_word(line, at)
    if kind != "blank":
        command.is_target = kind == "target"
    if kind in {"end", "close"}:
        command.words.clear()


def line_of(runner: Runner, line: str) -> Iterable[Suggestion]:
    """What may follow on a command line: a program where a command begins, elsewhere a path."""
    command = _last_command(line)
    if command is None:
        return ()
    word = "" if command.start is None else line[command.start :]
    name = "" if command.is_target else _name(command.words)
    if name is None and not ASSIGNMENT.match(word):
        return paths(runner, word, is_runnable) if "/" in word else programs(runner, word)
    wanted = is_folder if name in FOLDERS_ONLY else is_any
    found = paths(runner, word, wanted)
    cut = None if found else re.match(r"[\w-]+=", word)
    return found if cut is None else paths(runner, word[cut.end() :], wanted)


def _name(words: Sequence[str]) -> str | None:
    """The command whose words these are; None where it is still to come."""
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
    """Where the command that a wrapper runs begins; beyond the end where its own words are not all there."""
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
