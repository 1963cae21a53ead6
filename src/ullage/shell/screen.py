"""What the shell shows goes through here: its width, its colours, and nothing that a terminal would obey."""

from __future__ import annotations

import io
import os
import re
import select
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import UllageError
from ullage.shell.interrupting import leave, on_press

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import IO, TextIO

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from ullage.shell.markdown import Streamed

WIDEST = 120
"""Lines longer than this are hard to read on any screen."""
FOLLOWS = 0.15
"""Seconds within which another key follows while somebody types."""
NARROWEST = 10
"""Below this many columns, lines are left to the terminal to break."""

# Controls, line separators, marks that reorder or hide text, lone surrogates. The joiners that scripts and
# emoji need (U+200C, U+200D) are not among them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


class NoTerminal(UllageError):  # noqa: N818 - the same form as the other errors
    """A question that only a person can answer, where there is no terminal to ask on."""

    def __init__(self, question: str) -> None:
        self.question = question
        super().__init__(
            f"there is no terminal to ask {question!r} on. Run ullage in a terminal, or allow it beforehand."
        )


class Size(NamedTuple):
    """The cells of a terminal."""

    columns: int
    rows: int


def neutral(text: str) -> str:
    """Text with a visible sign for each character that would move a cursor, ring a bell or hide something."""
    return _UNSAFE.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


def size(console: Console) -> Size:
    """The terminal as large as it is now; what the console believes where there is no terminal to ask."""
    if console.is_terminal:
        try:
            now = os.get_terminal_size(console.file.fileno())
        except (OSError, ValueError):  # a file that has no descriptor, or one that is closed
            now = os.terminal_size((0, 0))
        if now.columns > 0 and now.lines > 0:
            return Size(now.columns, now.lines)
    return Size(*console.size)


def write(file: IO[str], text: str) -> None:
    """Writes and flushes; a character that the file's encoding lacks becomes a question mark."""
    try:
        file.write(text)
    except UnicodeEncodeError:
        encoding = getattr(file, "encoding", None) or "ascii"
        file.write(text.encode(encoding, "replace").decode(encoding))
    file.flush()


class Screen:
    """A terminal for people, or the plain file that stands in its place."""

    def __init__(self, console: Console, *, keyboard: TextIO | None = None) -> None:
        self.console = console
        self.keyboard: TextIO = keyboard or sys.stdin or io.StringIO()
        """Where answers and lines of input come from; nothing comes where standard input is closed."""
        self._answer: Streamed | None = None
        self._is_quiet = False

    @property
    def is_terminal(self) -> bool:
        """Whether what is shown is seen on a terminal."""
        return self.console.is_terminal

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be asked: a terminal on both sides."""
        keyboard = self.keyboard
        return self.is_terminal and not keyboard.closed and keyboard.isatty()

    @property
    def has_colour(self) -> bool:
        """Whether styles may be used at all."""
        return self.console.color_system is not None and not self.console.no_color

    @property
    def width(self) -> int:
        """The columns that may be filled, as the terminal is now."""
        return min(size(self.console).columns, WIDEST)

    def say(self, renderable: RenderableType) -> None:
        """Prints something, made harmless; in a plain file without the blanks that fill a line up."""
        self._settle()
        shown = _styled(neutral(renderable)) if isinstance(renderable, str) else _Harmless(renderable)
        with self.console.capture() as captured:
            self.console.print(shown, width=max(1, self.width))
        text = captured.get()
        if not self.is_terminal:
            text = "\n".join(line.rstrip(" ") for line in text.split("\n"))
        write(self.console.file, text)

    def dim(self, line: str) -> None:
        """Prints a remark in the margin of the conversation."""
        self.say(_line(line, "dim"))

    def error(self, line: str) -> None:
        """Prints what went wrong."""
        self.say(_line(line, "red"))

    def answer(self, below: Callable[[], str] | None = None) -> Streamed:
        """The place where the next answer appears as it comes, with what `below` tells on a row under it."""
        from ullage.shell.markdown import Streamed  # noqa: PLC0415 - 40 ms that the first prompt need not pay

        self._answer = Streamed(self.console, below=below)
        return self._answer

    def _settle(self) -> None:
        """What has come of an answer is printed for good before anything else: both own the cursor's row."""
        if self._answer is not None:
            self._answer.end()

    def ask(self, question: str, choices: Mapping[str, str], *, refuse: str | None = None) -> str:
        """The key of the choice that a person makes with one key press.

        `refuse` is the choice that Escape, Ctrl-C and Ctrl-D stand for, and the answer where there is no
        terminal; without it there is NoTerminal or KeyboardInterrupt instead.
        """
        if refuse is not None and refuse not in choices:
            raise ValueError(f"the refusing choice {refuse!r} is not among {', '.join(choices)}")
        if not self.is_interactive:
            if refuse is None:
                raise NoTerminal(question)
            return refuse
        self._settle()
        with keys(self.keyboard) as handle:  # before it is drawn: a key pressed as soon as it is seen counts
            write(self.console.file, self._drawn(question, choices))
            key = _pressed(handle, choices)
        chosen = refuse if key is None else key
        write(self.console.file, f"{'^C' if chosen is None else neutral(choices[chosen])}\n")
        if chosen is None:
            raise KeyboardInterrupt
        return chosen

    def line(self, question: str) -> str:
        """A line that a person types; empty at Ctrl-C, at Ctrl-D, and where there is no terminal.

        What was typed before the question could be read is not an answer to it.
        """
        if not self.is_interactive:
            return ""
        import termios  # noqa: PLC0415 - not on every platform

        self._settle()
        termios.tcflush(self.keyboard.fileno(), termios.TCIFLUSH)
        write(self.console.file, neutral(question))
        try:
            with self.loud(), on_press(leave):
                return self.keyboard.readline().strip()
        except KeyboardInterrupt:
            write(self.console.file, "\n")
            return ""

    def _drawn(self, question: str, choices: Mapping[str, str]) -> str:
        """The question on a line, what may be answered on the next, where the cursor waits."""
        text = _line(question, "bold").append("\n ")
        for key, label in choices.items():
            text.append(f" [{neutral(key)}] ", style="cyan").append(neutral(label))
        with self.console.capture() as captured:
            self.console.print(text.append(" → "), end="", soft_wrap=True)
        return captured.get()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keys pressed meanwhile do not appear in what is shown, and wait for the next prompt.

        Nor does Ctrl-C throw away what was written and is still on its way to the terminal. Within what is
        quiet already this does nothing: whoever made it so ends it, whichever of the two is left first.
        """
        if self._is_quiet or not self.is_interactive:
            yield
            return
        import termios  # noqa: PLC0415 - not on every platform

        self._is_quiet = True
        try:
            with _changed(self.keyboard.fileno(), off=termios.ECHO, on=termios.NOFLSH):
                yield
        finally:
            self._is_quiet = False

    @contextmanager
    def loud(self) -> Iterator[None]:
        """Within what is quiet: all is as usual, for a command or a line that is typed."""
        if not self.is_interactive:
            yield
            return
        import termios  # noqa: PLC0415 - not on every platform

        with _changed(self.keyboard.fileno(), off=termios.NOFLSH, on=termios.ECHO):
            yield


class _Harmless:
    """Something to show, whatever texts are in it."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            if not segment.control:
                yield segment._replace(text=neutral(segment.text))


def _pressed(handle: int, choices: Mapping[str, str]) -> str | None:
    """The choice whose key is pressed; None for Escape, Ctrl-C, Ctrl-D and a terminal that is gone.

    A key that others follow at once is not meant for the question: somebody is in the middle of a line.
    """
    while True:
        try:
            pressed = os.read(handle, 1_024).decode(errors="replace")
            while select.select([handle], [], [], FOLLOWS)[0]:
                pressed += (more := os.read(handle, 1_024).decode(errors="replace"))
                if not more:
                    return None
        except OSError:
            return None
        if pressed in {"", "\x1b"} or "\x03" in pressed or "\x04" in pressed:
            return None
        if pressed in choices or pressed.lower() in choices:
            return pressed if pressed in choices else pressed.lower()


def _line(line: str, style: str) -> Text:
    return _styled(neutral(" ".join(line.splitlines())), style)


def _styled(text: str, style: str = "") -> Text:
    from rich.text import Text  # noqa: PLC0415 - see Screen.answer

    return Text(text, style=style)


@contextmanager
def keys(keyboard: TextIO) -> Iterator[int]:
    """The descriptor of a terminal that hands over each key press, unseen; typed ahead counts for nothing."""
    import termios  # noqa: PLC0415 - not on every platform

    handle = keyboard.fileno()
    with _changed(handle, off=termios.ECHO | termios.ICANON | termios.ISIG):
        termios.tcflush(handle, termios.TCIFLUSH)
        yield handle


@contextmanager
def _changed(handle: int, *, off: int = 0, on: int = 0) -> Iterator[None]:
    """A terminal without these local modes and with those, which afterwards are as they were."""
    import termios  # noqa: PLC0415 - not on every platform

    before = termios.tcgetattr(handle)
    changed = termios.tcgetattr(handle)
    changed[3] = changed[3] & ~off | on
    changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
    termios.tcsetattr(handle, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
