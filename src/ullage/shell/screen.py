"""The screen of the shell: prints text without control characters, and asks the user questions."""

from __future__ import annotations

import io
import math
import os
import select
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ullage.errors import UllageError
from ullage.shell.interrupts import leave, nothing, on_press
from ullage.shell.output import WIDEST, size, write
from ullage.text import mark_unsafe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TextIO

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from ullage.shell.markdown import Streamed

YES, NO = "r", "s"
"""The keys for the two usual choices of a question: to run, call or continue, and to skip, keep or stop."""
BETWEEN = " ·"
"""Stands between the choices of a question and the one that Enter takes, if they are on one row."""
SYNONYMS: Mapping[str, str] = {"y": YES, "c": YES, "n": NO}
"""Key → the key that it stands for, if a question does not have it."""
FOLLOWS = 0.15
"""Seconds within which the next key arrives if the user is typing a line."""
ENTER_FOLLOWS = 0.3
"""Seconds within which Enter arrives after a key if the user ends the answer with it."""
UNREAD = 0.2
"""Seconds in which nobody has read a question that has just appeared."""
ENTER = frozenset({"\r", "\n"})
"""Characters that the Enter key sends."""


class NoTerminal(UllageError):  # noqa: N818 - the same form as the other errors
    """A question needs an answer from the user, but there is no terminal."""

    def __init__(self, question: str) -> None:
        self.question = question
        super().__init__(
            f"The question {question!r} needs a terminal. Run ullage in a terminal, or allow it beforehand."
        )


class Screen:
    """The terminal of the user, or a plain file if there is no terminal."""

    def __init__(
        self, console: Console, *, keyboard: TextIO | None = None, errors: TextIO | None = None
    ) -> None:
        self.console = console
        self._errors = errors
        self.keyboard: TextIO = keyboard or sys.stdin or io.StringIO()
        """Source of key presses and input lines; empty if standard input is closed."""
        self._answer: Streamed | None = None
        self._is_quiet = False

    @property
    def is_terminal(self) -> bool:
        """True if the output goes to a terminal."""
        return self.console.is_terminal

    @property
    def is_interactive(self) -> bool:
        """True if the user can be asked: input and output are terminals."""
        keyboard = self.keyboard
        return self.is_terminal and not keyboard.closed and keyboard.isatty()

    @property
    def has_colour(self) -> bool:
        """True if the output may have colours."""
        return self.console.color_system is not None and not self.console.no_color

    @property
    def width(self) -> int:
        """Usable columns of the terminal at its current size."""
        return min(size(self.console).columns, WIDEST)

    def say(self, renderable: RenderableType) -> None:
        """Prints a text or a rich object without control characters.

        In a plain file, lines have no trailing blanks.
        """
        self._settle()
        shown = _style_text(mark_unsafe(renderable)) if isinstance(renderable, str) else _Harmless(renderable)
        with self.console.capture() as captured:
            self.console.print(shown, width=max(1, self.width))
        text = captured.get()
        if not self.is_terminal:
            text = "\n".join(line.rstrip(" ") for line in text.split("\n"))
        write(self.console.file, text)

    def dim(self, line: str) -> None:
        """Prints a notice on one dim line."""
        self.say(_line(line, "dim"))

    def notice(self, line: str) -> None:
        """Prints a notice about an answer: a dim line in a terminal, else a line of standard error.

        So the output of `ullage -c` has the answer alone.
        """
        if self.is_terminal:
            self.dim(line)
        else:
            self._tell_apart(line)

    def _tell_apart(self, line: str) -> None:
        """Writes a line to standard error."""
        write(self._errors or sys.stderr, f"{mark_unsafe(' '.join(line.splitlines()))}\n")

    def error(self, line: str) -> None:
        """Prints an error message: a red line in a terminal, else a line of standard error."""
        if self.is_terminal:
            self.say(_line(line, "red"))
        else:
            self._tell_apart(line)

    def clear(self) -> None:
        """Clears the terminal's screen; its scrollback stays. A plain file is not changed."""
        self._settle()
        if self.is_terminal and not self.console.is_dumb_terminal:
            write(self.console.file, "\x1b[H\x1b[2J")

    def answer(self, below: Callable[[], str] | None = None) -> Streamed:
        """Returns the view of the next answer, with the text of `below` on the row under it."""
        from ullage.shell.markdown import Streamed  # noqa: PLC0415 - saves 40 ms before the first prompt

        self._answer = Streamed(self.console, below=below)
        return self._answer

    def _settle(self) -> None:
        """Finishes the drawing of an answer before other output, because both use the row of the cursor."""
        if self._answer is not None:
            self._answer.end()

    def ask(
        self,
        question: str,
        choices: Mapping[str, str],
        *,
        refuse: str | None = None,
        default: str | None = None,
    ) -> str:
        """Asks the user to press the key of a choice; returns that key.

        `default` is the choice that Enter stands for; without it, Enter does nothing. `refuse` is the choice
        that Escape, Ctrl-C and Ctrl-D stand for, and the result if there is no terminal. If it is None, these
        raise KeyboardInterrupt and NoTerminal.
        """
        if refuse is not None and refuse not in choices:
            raise ValueError(f"the refusing choice {refuse!r} is not among {', '.join(choices)}")
        if not self.is_interactive:
            if refuse is None:
                raise NoTerminal(question)
            return refuse
        self._settle()
        with keys(
            self.keyboard
        ) as handle:  # first, so that no key pressed after the question appears is lost
            drawn, column = self._draw_question(question, choices, default)
            write(self.console.file, drawn)
            key = _read_choice(handle, choices, default)
        chosen = refuse if key is None else key
        label = "^C" if chosen is None else mark_unsafe(choices[chosen])
        if column + len(label) > self.width:
            label = f"\n  {label}"
        write(self.console.file, f"{label}\n")
        if chosen is None:
            raise KeyboardInterrupt
        return chosen

    def line(self, question: str, default: str = "", *, is_stopped: Callable[[], None] = nothing) -> str:
        """Asks the user for a line; returns an empty text after Ctrl-C or Ctrl-D, or if there is no terminal.

        `default` is the result of Enter alone, and `is_stopped` is called after Ctrl-C. Keys that were
        pressed before the question appeared are discarded.
        """
        if not self.is_interactive:
            return ""
        import termios  # noqa: PLC0415 - not on every platform

        self._settle()
        termios.tcflush(self.keyboard.fileno(), termios.TCIFLUSH)
        try:
            with self.loud(), on_press(leave):  # first, so that Ctrl-C works once the question appears
                write(self.console.file, mark_unsafe(question))
                typed = self.keyboard.readline()
                return typed.strip() or (default if typed else "")
        except KeyboardInterrupt:
            write(self.console.file, "\n")
            is_stopped()
            return ""

    def _draw_question(
        self, question: str, choices: Mapping[str, str], default: str | None
    ) -> tuple[str, int]:
        """Draws the question, and below it the choices and the one that Enter takes, none of them broken.

        Also returns the column of the cursor.
        """
        parts = [
            _style_text(f" [{mark_unsafe(key)}] ", "cyan").append(mark_unsafe(label), style="none")
            for key, label in choices.items()
        ]
        if default is not None:
            parts.append(_style_text(f"{BETWEEN} Enter: {mark_unsafe(choices[default])}", "dim"))
        parts.append(_style_text(" → "))
        text, column = _line(question, "bold").append("\n "), 1
        for part in parts:
            if column + part.cell_len > self.width:
                text.append("\n ")
                column = 1
                part = part[2:] if part.plain.startswith(BETWEEN) else part  # noqa: PLW2901 - at a row's start
            text.append_text(part)
            column += part.cell_len
        with self.console.capture() as captured:
            self.console.print(text, end="", soft_wrap=True)
        return captured.get(), column

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Turns the terminal's echo off inside the with block; keys wait for the next prompt.

        Ctrl-C then does not discard output that is on its way to the terminal. Inside another quiet block
        this does nothing, and the outer block turns the echo on again.
        """
        if self._is_quiet or not self.is_interactive:
            yield
            return
        import termios  # noqa: PLC0415 - not on every platform

        self._is_quiet = True
        try:
            with _changed_modes(self.keyboard.fileno(), off=termios.ECHO, on=termios.NOFLSH):
                yield
        finally:
            self._is_quiet = False

    @contextmanager
    def unbuffered(self) -> Iterator[int]:
        """Yields the descriptor of the terminal, which returns each key at once; Ctrl-C is still a signal."""
        import termios  # noqa: PLC0415 - not on every platform

        handle = self.keyboard.fileno()
        with _changed_modes(handle, off=termios.ECHO | termios.ICANON, on=termios.NOFLSH):
            yield handle

    @contextmanager
    def loud(self) -> Iterator[None]:
        """Turns the echo on again inside a quiet block, for a command or a line that the user types."""
        if not self.is_interactive:
            yield
            return
        import termios  # noqa: PLC0415 - not on every platform

        with _changed_modes(self.keyboard.fileno(), off=termios.NOFLSH, on=termios.ECHO):
            yield


class _Harmless:
    """A rich object whose control characters are replaced by visible signs."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            if not segment.control:
                yield segment._replace(text=mark_unsafe(segment.text))


def _read_choice(handle: int, choices: Mapping[str, str], default: str | None) -> str | None:
    """Waits for the key of a choice; returns None after Escape, Ctrl-C or Ctrl-D, or if the terminal is gone.

    Keys in quick succession are ignored: the user is typing a line and has not read the question. But Enter
    after a key belongs to that key, as other programs ask for both: it must not answer the next question.
    """
    shown = time.monotonic()
    while True:
        pressed, since = _burst(handle)
        if pressed in {"", "\x1b"} or "\x03" in pressed or "\x04" in pressed:
            return None
        if pressed in ENTER and default is not None:
            return default
        if pressed[1:] in ENTER and since - shown >= UNREAD:
            pressed = pressed[0]
        for key in (pressed, pressed.lower(), SYNONYMS.get(pressed.lower(), "")):
            if key in choices:
                return key


def _burst(handle: int) -> tuple[str, float]:
    """Waits for a key; returns it with the keys that follow it quickly, and the time when it came.

    The text is empty if the terminal is gone.
    """
    pressed, since = "", math.inf
    with suppress(OSError):
        while not pressed or select.select([handle], [], [], _pause_after(pressed))[0]:
            more = os.read(handle, 1_024).decode(errors="replace")
            if not more:
                return "", since
            pressed, since = pressed + more, min(since, time.monotonic())
        return pressed, since
    return "", since


def _pause_after(pressed: str) -> float:
    """Returns the seconds without a key after which no other key belongs to these."""
    return FOLLOWS if pressed in ENTER else ENTER_FOLLOWS


def _line(line: str, style: str) -> Text:
    return _style_text(mark_unsafe(" ".join(line.splitlines())), style)


def _style_text(text: str, style: str = "") -> Text:
    from rich.text import Text  # noqa: PLC0415 - see Screen.answer

    return Text(text, style=style)


@contextmanager
def keys(keyboard: TextIO) -> Iterator[int]:
    """Yields the descriptor of a terminal that returns each key at once and without echo.

    Keys that were pressed before are discarded.
    """
    import termios  # noqa: PLC0415 - not on every platform

    handle = keyboard.fileno()
    with _changed_modes(handle, off=termios.ECHO | termios.ICANON | termios.ISIG):
        termios.tcflush(handle, termios.TCIFLUSH)
        yield handle


@contextmanager
def _changed_modes(handle: int, *, off: int = 0, on: int = 0) -> Iterator[None]:
    """Turns local modes of a terminal off and on inside the with block, and restores them after it."""
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
