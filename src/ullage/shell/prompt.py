"""The line that a person types: edited, completed and remembered on a terminal, read as it is elsewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.shell.apart import apart
from ullage.shell.history import remembering, secure
from ullage.shell.screen import neutral

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
    from pathlib import Path

    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggest
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    from ullage.shell.screen import Screen

MARK = "> "
MORE = ". "
"""Before each further line of the same input."""
PATIENCE = 5.0
"""Seconds until what completes is given up, as in a folder whose server does not answer."""

_FENCE = re.compile(r"^[ \t]*(```|~~~)", re.MULTILINE)
_OPENS = frozenset(" \t\n=(:,;|&{[")
"""What stands before a quotation mark that opens; within a word it is an apostrophe, or inches."""


class Suggestion(NamedTuple):
    """A completion: `text` takes the place of the last `replaces` characters before the cursor."""

    text: str
    replaces: int = 0
    display: str = ""
    """What the menu shows in its place."""
    note: str = ""
    """A few words beside it."""


def is_open(text: str) -> bool:
    """Whether the input goes on in the next line: after a backslash, in a fence, or within quotation marks.

    Two empty lines at the end close quotation marks, so that nobody is caught by a stray one; a fence ends
    with its end only, as code has empty lines.
    """
    return is_joined(text) or (not text.endswith("\n\n") and _is_quoted(text))


def is_joined(text: str) -> bool:
    """Whether the next line belongs to it by its own signs: a backslash at the end, which no other escapes,
    or a fence without an end."""
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
    """Reads what is typed; `read` gives one input at a time, and None when there are no more."""

    def __init__(
        self,
        screen: Screen,
        history_path: Path | None,
        complete: Callable[[str], Iterable[Suggestion]],
        status: Callable[[], str],
        *,
        most_history: int = 10_000,
        goes_on: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._screen = screen
        self._goes_on = goes_on
        self._history_path = history_path
        self._complete = complete
        self._status = status
        self._most_history = most_history
        self._session: PromptSession[str] | None = None
        self._unkept: OSError | None = None
        """Why the last input was not kept, until that is told."""
        self._has_told = False
        self._shown = ""
        """The status as it was when the prompt appeared; a key press does not ask for it again."""

    def read(
        self,
        default: str = "",
        *,
        run: Callable[[Coroutine[Any, Any, str]], str] | None = None,
        behind: Callable[[], None] | None = None,
    ) -> str | None:
        """The next input, which may have several lines; None at Ctrl-D or at the end of a file.

        `default` is put into the line to be edited. `run` runs the prompt on a loop, so that what else
        lives there goes on meanwhile; `behind` is called there as soon as the prompt can be seen.
        """
        if not self._screen.is_interactive:
            return self._read_plain()
        session = self._session = self._session or self._opened()
        self._shown = neutral(self._status())
        if behind is not None:
            session.app.after_render += _once(behind)
        alone = run is None
        if run is None:
            import asyncio  # noqa: PLC0415 - a terminal needs it anyway, a pipe does not

            run = asyncio.run
        try:
            # Where a loop is given, so is somebody who hears Ctrl-C: there is no moment in which nobody does.
            return run(session.prompt_async(default=default, handle_sigint=alone))
        except EOFError:
            return None
        finally:
            self._tell_unkept()

    def told(self, error: BaseException | None) -> None:
        """What was behind the prompt is there: the status is looked at again, or the prompt ends with why."""
        session = self._session
        if session is None or not session.app.is_running or session.app.is_done:
            return
        if error is not None:
            session.app.exit(exception=error)
            return
        self._shown = neutral(self._status())
        session.app.invalidate()

    def _tell_unkept(self) -> None:
        """Says once that what was typed is not kept, where that is so."""
        why, self._unkept = self._unkept, None
        if why is not None and not self._has_told:
            self._has_told = True
            self._screen.dim(f"what you type is not kept: {self._history_path}: {why.strerror}")

    def _failed(self, why: OSError) -> None:
        self._unkept = why  # told when the prompt is left: now it stands on the screen

    def _read_plain(self) -> str | None:
        """A line, with those that are joined to it; quotation marks do not, as nobody could close them."""
        lines: list[str] = []
        while line := self._screen.keyboard.readline():
            lines.append(line.removesuffix("\n").removesuffix("\r"))
            if not is_joined("\n".join(lines)):
                break
        return "\n".join(lines) if lines else None

    def _opened(self) -> PromptSession[str]:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - only a terminal pays for it
        from prompt_toolkit.output import ColorDepth  # noqa: PLC0415 - see above
        from prompt_toolkit.styles import Style  # noqa: PLC0415 - see above

        plain = not self._screen.has_colour
        session: PromptSession[str] = PromptSession(
            message=[("class:mark", MARK)],
            prompt_continuation=lambda width, _, wraps: [
                ("class:more", ("" if wraps else MORE).rjust(width))
            ],
            multiline=True,
            history=self._history(),
            auto_suggest=None if plain else _earlier(),  # it would look like what was typed
            completer=_completer(self._complete),
            complete_while_typing=False,
            reserve_space_for_menu=6,
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            rprompt=self._beside,
            style=Style(
                [
                    ("mark", "bold"),
                    ("more", "ansibrightblack"),
                    ("auto-suggestion", "ansibrightblack"),
                    ("status", "ansibrightblack"),
                    ("bottom-toolbar", "noreverse ansibrightblack"),
                ]
            ),
            color_depth=ColorDepth.DEPTH_1_BIT if plain else None,
            enable_history_search=True,
        )
        # A terminal that does not tell its cursor's position gets the status at the right, and no warning.
        session.app.renderer.cpr_not_supported_callback = session.app.invalidate
        return session

    def _history(self) -> History:
        path = self._history_path if self._most_history > 0 else None
        if path is not None:
            try:
                secure(path)
            except OSError as error:
                self._failed(error)
                self._tell_unkept()
                path = None
        return remembering(path and path.resolve(), self._most_history, self._failed)

    def _bindings(self) -> KeyBindings:
        from prompt_toolkit.filters import completion_is_selected  # noqa: PLC0415 - see _opened
        from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - see _opened

        bound = KeyBindings()

        @bound.add("enter", filter=~completion_is_selected)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            text = buffer.text
            if is_open(text) or (not text.endswith("\n\n") and self._goes_on(text)):
                buffer.newline(copy_margin=False)
            else:
                buffer.validate_and_handle()

        @bound.add("enter", filter=completion_is_selected)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.complete_state = None  # the choice stands, and is not sent yet

        @bound.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @bound.add("c-c")
        @bound.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.reset()

        return bound

    def _toolbar(self) -> Any:
        return [("", self._line(self._columns() - 1))]

    def _beside(self) -> Any:
        """The status at the right of the line, where the terminal leaves no place below it."""
        from prompt_toolkit.renderer import CPR_Support  # noqa: PLC0415 - see _opened

        session = self._session
        if session is None or session.app.renderer.cpr_support is not CPR_Support.NOT_SUPPORTED:
            return ""
        return [("class:status", self._line(self._columns() // 2))]

    def _columns(self) -> int:
        session = self._session
        return self._screen.width if session is None else session.app.output.get_size().columns

    def _line(self, width: int) -> str:
        from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 - see _opened

        text = self._shown
        return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


def _once(call: Callable[[], None]) -> Callable[[object], None]:
    """What an event calls at its first time, and never again."""
    calls = [call]

    def happened(_: object) -> None:
        while calls:
            calls.pop()()

    return happened


def _earlier() -> AutoSuggest:
    from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion  # noqa: PLC0415 - see Prompt._opened

    class Earlier(AutoSuggest):
        """Shows the rest of the latest input that begins as this one does; the right arrow takes it."""

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
    from prompt_toolkit.completion import Completer, Completion  # noqa: PLC0415 - see Prompt._opened

    class Injected(Completer):
        """Asks the function that the shell gave."""

        def get_completions(self, document: Any, _event: Any) -> Iterable[Completion]:
            return [
                Completion(
                    each.text,
                    start_position=-each.replaces,
                    display=neutral(each.display or each.text),
                    display_meta=neutral(each.note),
                )
                for each in complete(document.text_before_cursor)
            ]

        async def get_completions_async(self, document: Any, event: Any) -> AsyncGenerator[Completion, None]:
            for each in await _found(lambda: self.get_completions(document, event)):
                yield each

    return Injected()


async def _found(find: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    """What a function finds; nothing where it takes too long."""
    import asyncio  # noqa: PLC0415 - see Prompt.read

    try:
        return await asyncio.wait_for(apart(find), PATIENCE)
    except TimeoutError:
        return ()
