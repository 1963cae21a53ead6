r"""The protocol between Ullage and its bash: how bash gets a line, and how it reports the result.

One interactive bash runs all lines. It has a terminal of its own (a pseudo-terminal), or a pipe if Ullage
has no terminal. Its own input, output and errors are private channels, and only a line has the terminal:

    0  bash reads turns from here, one after the other; completions come back through it
    1  the text of a line comes in here; the output of PROMPT_COMMAND and of traps goes out
    2  acknowledgements, reports, job notices and the prompt PS1 go out here

    { __ullage_turn NONCE TTY && \builtin :; { \builtin eval -- TEXT; } <>TTY >&0 2>&0; }

This is a turn. Several of them always wait in channel 0, each with its own random nonce. The function (see
`start.bash`) does the following:

1. It writes the nonce to the terminal. All output of the previous line comes before it.
2. It reports the status of the previous line, the directory, the stopped and the running jobs, the
   functions, the aliases and the exported variables. The report begins and ends with the nonce.
3. It waits in channel 1 for `run NONCE` and a text, and acknowledges them.

Then bash evaluates the text at its top level, with the terminal as input, output and errors. A line can end
in several ways: at its end, by Ctrl-C, by an error that makes bash drop the rest. After each of them bash
reads the next turn, so each of them is reported in the same way.

- No process inherits the channels: while a line runs, bash holds them at descriptors that are closed in
  programs. Output cannot forge a nonce, because bash gets it only after the line was sent.
- A text is never read as a turn, because they have different channels. A turn that is cut off by an
  interrupt has an unmatched brace, so bash refuses what is left of it and reads the next turn.
- A text runs once. Bash ignores a text with the nonce of another turn. Ullage sends a text again only if
  bash reports a new turn before it has acknowledged the text.
- If bash ends, or uses up all turns without a report, Ullage starts a new bash.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROMPT = b"ullage$ "
"""The value of PS1 in bash; `start.bash` sets it."""
SCRIPTS = ("complete.bash", "start.bash")
"""The files of bash functions, beside this module."""

_FRAME = re.compile(rb"\0(ack )?([0-9a-f]{32})\0")
_NOTICE = re.compile(rb"^\[\d+\][+ -] .*$", re.MULTILINE)
_OURS = "__ullage"
_END = b"\n__ullage_end && \\builtin :"
# Lines that are surely complete, so that another command can follow
_SIMPLE = re.compile(r"""(?:[\w \t./~:@%+,=-]|\$\w+|\$\$|\$!|'[^'\n]*'|"[^"\\$`!\n]*"|;(?!;)|&&)+""")
_KEYWORDS = frozenset(
    (
        *(
            "if",
            "then",
            "elif",
            "else",
            "fi",
            "for",
            "while",
            "until",
            "do",
            "done",
            "case",
            "esac",
            "select",
        ),
        *("function", "in", "coproc", "set"),  # `set -x` would show the command that follows
    )
)


@dataclass(frozen=True, slots=True)
class Ack:
    """Bash has taken a line, and runs it now."""

    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The state of bash between two lines."""

    nonce: str
    status: int
    cwd: Path | None
    """None if bash could not name it."""
    stopped: Sequence[str]
    """The first words of the stopped jobs."""
    running: Sequence[str]
    """The first words of the background jobs that run."""
    functions: frozenset[str]
    aliases: Mapping[str, str]
    environ: Mapping[str, str]


@dataclass(slots=True)
class Notes:
    """Reads the acknowledgements and reports of bash, and the text between them."""

    expected: list[str] = field(default_factory=list)
    """The nonces of the turns that bash has not reported yet, in their order."""
    stray: bytes = b""
    """The text between the reports: job notices, prompts, and errors of PROMPT_COMMAND."""
    _data: bytes = b""

    def feed(self, data: bytes) -> Iterator[Ack | Report]:
        """Yields what has come completely; the data may be split anywhere."""
        self._data += data
        at = 0
        while found := _FRAME.search(self._data, at):
            nonce = found[2].decode()
            if found[1]:
                self._drop(found.start(), found.end())
                yield Ack(nonce)
                at = 0
            elif nonce not in self.expected:
                at = found.start() + 1
            elif (end := self._data.find(b"\0end %s\0" % found[2], found.end() - 1)) >= 0:
                fields = self._data[found.end() : end + 1]
                self._drop(found.start(), end + len(found[2]) + 6)
                del self.expected[: self.expected.index(nonce) + 1]
                yield _report(nonce, fields)
                at = 0
            else:  # not complete yet, or cut off by an interrupt and followed by another report
                at = found.end() - 1

    def notices(self) -> bytes:
        """Returns the job notices and messages of bash since the last call."""
        notices, prompt, _ = self.stray.rpartition(PROMPT)
        if not prompt:  # the line has changed PS1
            notices = b"\n".join(_NOTICE.findall(self.stray))
        self.stray = b""
        return notices.replace(PROMPT, b"").strip(b"\r\n")

    def _drop(self, start: int, end: int) -> None:
        """Takes a frame out of the data; the text before it is stray."""
        self.stray += self._data[:start]
        self._data = self._data[end:]


def _report(nonce: str, fields: bytes) -> Report:
    status, cwd, stopped, running, functions, rest = fields.split(b"\0", 5)
    aliases, _, variables = (b"\0" + rest).partition(b"\0\0")
    folder = os.fsdecode(cwd.removesuffix(b"\n"))
    return Report(
        nonce=nonce,
        status=int(status),
        cwd=Path(folder) if folder.startswith("/") else None,
        stopped=stopped.decode("utf-8", "replace").splitlines(),
        running=running.decode("utf-8", "replace").splitlines(),
        functions=frozenset(
            name for name in functions.decode("utf-8", "replace").split("\n") if not name.startswith(_OURS)
        )
        - {""},
        aliases=_pairs(aliases),
        environ=_pairs(variables),
    )


def _pairs(data: bytes) -> Mapping[str, str]:
    parts = (os.fsdecode(each).partition("=") for each in data.split(b"\0") if each)
    return {name: value for name, _, value in parts}


def new_nonce() -> str:
    """Returns a number that nobody can guess."""
    return secrets.token_hex(16)


def mark_of(nonce: str) -> bytes:
    """Returns the mark that bash writes behind the output of a line."""
    return b"\x1b]133;D;%s\x07" % nonce.encode()


def turn(nonce: str, output: str, streams: str) -> bytes:
    """Returns a turn for a bash whose lines write to `output`; `streams` are the redirections of a line."""
    text = '"${__ullage[__ullage[0]++]-}"'  # each turn can take it only once
    last = ('"${__ullage_last-}"', '"${__ullage[9]-}"')  # for `$_`
    begin = f"__ullage_turn {nonce} {output} {last[0]} && \\builtin : {last[1]}"
    return f"{{ {begin}; {{ \\builtin eval -- {text}; }} {streams}; }}\n".encode()


def start_text(fd: int, output: str, streams: str, *, files: tuple[str, str], own: str) -> bytes:
    """Returns the text that bash reads first, from the descriptor `fd`.

    `files` are the user's start-up file and the file of `shell.startup`; `own` is the folder of `ullage`.
    """
    given = " ".join(shlex.quote(each) for each in (output, *files, own))
    text = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in SCRIPTS)
    text = text.replace("<>__TERMINAL", streams)
    return f"\\exec {fd}<&-\n__ullage_given=({given})\n{text}".encode("utf-8", "surrogateescape")


def line_of(nonce: str, text: str) -> bytes:
    """Returns a line for the turn with this nonce."""
    end = _END if _SIMPLE.fullmatch(text) and _KEYWORDS.isdisjoint(text.split()) else b""
    return b"run %s\0%s%s\0" % (nonce.encode(), encode_text(text).replace(b"\0", b""), end)


def question_of(nonce: str, fields: Sequence[bytes]) -> bytes:
    """Returns a question for the turn with this nonce."""
    parts = (
        b"ask " + nonce.encode(),
        *(each.replace(b"\0", b"") for each in fields),
        b"end " + nonce.encode(),
    )
    return b"".join(each + b"\0" for each in parts)


def encode_text(text: str) -> bytes:
    """Returns the bytes of a typed text."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # a lone surrogate stands for no byte
        return text.encode("utf-8", "replace")
