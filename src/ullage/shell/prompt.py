"""Reads input lines: with editing, completion and history in a terminal, plainly from a pipe or file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.shell.detached import run_detached
from ullage.shell.escape_key import decode_keys
from ullage.shell.history import remembering, secure
from ullage.shell.prompt_look import (
    STYLES,
    PromptLook,
    RememberedKind,
    folder_name,
    lexer_of,
    prefix,
    status_fragments,
)
from ullage.shell.suspension import suspend
from ullage.text import mark_unsafe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
    from pathlib import Path

    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import Application
    from prompt_toolkit.auto_suggest import AutoSuggest
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    from ullage.shell.screen import Screen

MORE = ". "
"""Mark before each further line of the same input."""
PATIENCE = 5.0
"""Seconds until a completion is given up, for example in a network folder that does not answer."""

_FENCE = re.compile(r"^[ \t]*(```|~~~)", re.MULTILINE)
_OPENS = frozenset(" \t\n=(:,;|&{[")
"""Characters before an opening quotation mark; after any other, it is an apostrophe or an inch sign."""


class Suggestion(NamedTuple):
    """A completion: `text` takes the place of the last `replaces` characters before the cursor."""

    text: str
    replaces: int = 0
    display: str = ""
    """The menu shows this instead of `text`, if it is not empty."""
    note: str = ""
    """A short explanation that the menu shows beside it."""


def is_open(text: str) -> bool:
    """Returns True if the text needs another line: after a backslash, in a code fence, or in quotation marks.

    Two empty lines at the end close quotation marks, so that a stray one does not trap the user. They do not
    close a fence, because code contains empty lines.
    """
    return is_joined(text) or (not text.endswith("\n\n") and _is_quoted(text))


def is_joined(text: str) -> bool:
    """Returns True if the text ends with an unescaped backslash or inside a code fence."""
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1 or len(_FENCE.findall(text)) % 2 == 1


def _is_quoted(text: str) -> bool:
    quote, escaped, before = "", False, " "
    for each in text:
        if escaped:
            escaped = False
        elif each == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if each == quote else quote
        elif each in "\"'" and before in _OPENS:
            quote = each
        before = each
    return bool(quote)


class Prompt:
    """Reads the user's input: `read` returns one input at a time, and None at the end."""

    def __init__(
        self,
        screen: Screen,
        history_path: Path | None,
        complete: Callable[[str], Iterable[Suggestion]],
        status: Callable[[], str],
        *,
        most_history: int = 10_000,
        goes_on: Callable[[str], bool] = lambda _: False,
        look: PromptLook | None = None,
    ) -> None:
        self._screen = screen
        self._look = look or PromptLook()
        self._kind = RememberedKind(self._look.kind)
        self._goes_on = goes_on
        self._history_path = history_path
        self._complete = complete
        self._status = status
        self._most_history = most_history
        self._session: PromptSession[str] | None = None
        self._unkept: OSError | None = None
        """The error that kept the last input out of the history; None after it was reported."""
        self._has_reported = False
        """True once a notice has said that the history is not saved."""
        self._shown = ""
        """The status line, computed when the prompt appeared and not again at each key press."""
        self._notices: list[Callable[[], None]] = []
        """Functions that print a notice; the next prompt calls them before it appears."""
        self._folder: Path | None = None
        """The folder in the prompt, found at the same time."""

    def read(
        self,
        default: str = "",
        *,
        run: Callable[[Coroutine[Any, Any, str]], str] | None = None,
        behind: Callable[[], None] | None = None,
    ) -> str | None:
        """Returns the next input, which may have several lines; None after Ctrl-D or at the end of a file.

        The prompt begins with the text `default`, which the user can edit. `run` runs the prompt on an event
        loop, so that other tasks of the loop continue. `behind` is called there once the prompt is visible.
        """
        if not self._screen.is_interactive:
            return self._read_plain()
        session = self._session = self._session or self._open_session()
        self._print_notices()
        self._update()
        if behind is not None:
            session.app.after_render += _once(behind)
        alone = run is None
        if run is None:
            import asyncio  # noqa: PLC0415 - a terminal needs it anyway, a pipe does not

            run = asyncio.run
        try:
            # A caller that passes a loop also handles Ctrl-C, so that no press is lost in between.
            return run(session.prompt_async(default=default, handle_sigint=alone))
        except EOFError:
            return None
        finally:
            self._tell_unkept()

    def refresh(self, error: BaseException | None) -> None:
        """Updates the status line because the shell is open now, or ends the prompt with `error`."""
        session = self._session
        if session is None or not session.app.is_running or session.app.is_done:
            return
        if error is not None:
            session.app.exit(exception=error)
            return
        self._update()
        session.app.invalidate()

    def notify(self, tell: Callable[[], None]) -> None:
        """Calls a function that prints a notice: above the visible prompt, or before the next one appears."""
        self._notices.append(tell)
        session = self._session
        if session is not None and session.app.is_running and not session.app.is_done:
            session.app.create_background_task(self._interrupt(session.app))

    async def _interrupt(self, app: Application[str]) -> None:
        """Prints the notices above the prompt, and draws the prompt again."""
        from prompt_toolkit.application import in_terminal  # noqa: PLC0415 - see _open_session
        from prompt_toolkit.application.current import set_app  # noqa: PLC0415 - see _open_session

        with set_app(app):
            async with in_terminal():
                self._print_notices()

    def _print_notices(self) -> None:
        while self._notices:
            self._notices.pop(0)()

    def _update(self) -> None:
        """Finds out what the prompt shows beside the line."""
        self._shown = mark_unsafe(self._status())
        self._folder = self._look.folder()
        self._kind.forget()

    def _prefix(self) -> Any:
        """Returns the folder and the mark before the line."""
        session = self._session
        return self._prefix_of("" if session is None else session.default_buffer.text)

    def _prefix_of(self, text: str) -> list[tuple[str, str]]:
        return prefix(folder_name(self._folder, max(8, self._columns() // 4)), self._kind(text))

    def take_type_ahead(self) -> str:
        """Returns the text of the keys that came after the last input; to be called once."""
        if self._session is None:
            return ""
        from prompt_toolkit.input.typeahead import get_typeahead  # noqa: PLC0415 - see _open_session

        keys = get_typeahead(self._session.app.input)
        return decode_keys("".join(key.data for key in keys).encode())

    def echo(self, line: str) -> None:
        """Prints a line that was typed before the prompt could appear, as the prompt would show it."""
        self._update()
        self._screen.say("".join(text for _, text in self._prefix_of(line)) + line)
        if self._session is not None and line.strip():
            self._session.history.append_string(line)
            self._tell_unkept()

    def _tell_unkept(self) -> None:
        """Prints once that the history is not saved, if that is so."""
        why, self._unkept = self._unkept, None
        if why is not None and not self._has_reported:
            self._has_reported = True
            self._screen.dim(f"the history of your input is not saved: {self._history_path}: {why.strerror}")

    def _note_failure(self, why: OSError) -> None:
        self._unkept = why  # printed after the prompt has ended; now it would disturb the prompt

    def _read_plain(self) -> str | None:
        """Reads a line, and the lines that belong to it: a loop, a here-document, a code fence."""
        lines: list[str] = []
        while line := self._screen.keyboard.readline():
            lines.append(line.removesuffix("\n").removesuffix("\r"))
            text = "\n".join(lines)
            if not (is_joined(text) or self._goes_on(text)):
                break
        return "\n".join(lines) if lines else None

    def _open_session(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - only a terminal pays for it
        from prompt_toolkit.output import ColorDepth  # noqa: PLC0415 - see above
        from prompt_toolkit.styles import Style  # noqa: PLC0415 - see above

        plain = not self._screen.has_colour
        session: PromptSession[str] = PromptSession(
            message=self._prefix,
            lexer=lexer_of(self._kind),
            prompt_continuation=lambda width, _, wraps: [
                ("class:more", ("" if wraps else MORE).rjust(width))
            ],
            multiline=True,
            history=self._history(),
            auto_suggest=None if plain else _earlier(),  # without colour it would look like typed text
            completer=_completer(self._complete),
            complete_while_typing=False,
            reserve_space_for_menu=6,
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            rprompt=self._beside,
            style=Style(
                [
                    *STYLES.items(),
                    ("more", "ansibrightblack"),
                    ("auto-suggestion", "ansibrightblack"),
                    ("status", "ansibrightblack"),
                    ("bottom-toolbar", "noreverse ansibrightblack"),
                ]
            ),
            color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
            enable_history_search=True,
            enable_open_in_editor=True,  # Ctrl-X Ctrl-E
            tempfile_suffix=".txt",
        )
        # If the terminal does not report its cursor's position, the status is at the right; no warning.
        session.app.renderer.cpr_not_supported_callback = session.app.invalidate
        return session

    def _history(self) -> History:
        path = self._history_path if self._most_history > 0 else None
        if path is not None:
            try:
                secure(path)
            except OSError as error:
                self._note_failure(error)
                self._tell_unkept()
                path = None
        return remembering(path and path.resolve(), self._most_history, self._note_failure)

    def _bindings(self) -> KeyBindings:
        from prompt_toolkit.application import run_in_terminal  # noqa: PLC0415 - see _open_session
        from prompt_toolkit.filters import completion_is_selected  # noqa: PLC0415 - see _open_session
        from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - see _open_session
        from prompt_toolkit.search import accept_search, stop_search  # noqa: PLC0415 - see _open_session

        bound = KeyBindings()

        @bound.add("enter", filter=~completion_is_selected)
        def _(event: KeyPressEvent) -> None:
            if event.app.layout.is_searching:
                accept_search()  # Enter runs what Ctrl-R has found, as in bash
            buffer = event.app.current_buffer
            text = buffer.text
            if self._is_unfinished(text):
                buffer.newline(copy_margin=False)
            else:
                buffer.validate_and_handle()

        @bound.add("enter", filter=completion_is_selected)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.complete_state = None  # accepts the completion without sending the line

        @bound.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @bound.add("c-c")
        @bound.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if event.app.layout.is_searching:
                stop_search()  # leaves Ctrl-R; the line is empty then, as after any other Ctrl-C
            event.app.current_buffer.reset()

        @bound.add("c-z")
        def _(_: KeyPressEvent) -> None:
            run_in_terminal(lambda: suspend(self._screen))

        return bound

    def _is_unfinished(self, text: str) -> bool:
        """Returns True if Enter adds a line to the text. Only bash decides about the quotes of a command."""
        if text.endswith("\n\n"):
            return is_joined(text)
        return self._goes_on(text) or (is_joined(text) if self._kind(text) == "shell" else is_open(text))

    def _toolbar(self) -> Any:
        return list(status_fragments(self._line(self._columns() - 1)))

    def _beside(self) -> Any:
        """Returns the status for the right end of the line, if the terminal cannot show it below."""
        from prompt_toolkit.renderer import CPR_Support  # noqa: PLC0415 - see _open_session

        session = self._session
        if session is None or session.app.renderer.cpr_support is not CPR_Support.NOT_SUPPORTED:
            return ""
        return [("class:status", self._line(self._columns() // 2))]

    def _columns(self) -> int:
        session = self._session
        return self._screen.width if session is None else session.app.output.get_size().columns

    def _line(self, width: int) -> str:
        from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - see _open_session

        text = self._shown
        return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def _once(call: Callable[[], None]) -> Callable[[object], None]:
    """Returns an event handler that calls `call` at the first event only."""
    calls = [call]

    def call_once(_: object) -> None:
        while calls:
            calls.pop()()

    return call_once


def _earlier() -> AutoSuggest:
    from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion  # noqa: PLC0415 - see Prompt._open_session

    class Earlier(AutoSuggest):
        """Suggests the rest of the latest input with the same beginning; the right arrow key accepts it."""

        def get_suggestion(self, buffer: Any, document: Any) -> Suggestion | None:
            typed = document.text
            if not typed.strip() or "\n" in typed:
                return None
            for each in reversed(buffer.history.get_strings()):
                if each.startswith(typed) and "\n" not in each:
                    return Suggestion(each[len(typed) :])
            return None

    return Earlier()


def _completer(complete: Callable[[str], Iterable[Suggestion]]) -> Completer:
    from prompt_toolkit.completion import Completer, Completion  # noqa: PLC0415 - see Prompt._open_session

    class Injected(Completer):
        """Completes with the function `complete`."""

        def get_completions(self, document: Any, _event: Any) -> Iterable[Completion]:
            return [
                Completion(
                    each.text,
                    start_position=-each.replaces,
                    display=mark_unsafe(each.display or each.text),
                    display_meta=mark_unsafe(each.note),
                )
                for each in complete(document.text_before_cursor)
            ]

        async def get_completions_async(self, document: Any, event: Any) -> AsyncGenerator[Completion, None]:
            for each in await _find_in_time(lambda: self.get_completions(document, event)):
                yield each

    return Injected()


async def _find_in_time(find: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    """Runs `find` in a thread and returns its result; empty if it takes longer than PATIENCE."""
    import asyncio  # noqa: PLC0415 - see Prompt.read

    try:
        return await asyncio.wait_for(run_detached(find), PATIENCE)
    except TimeoutError:
        return ()
