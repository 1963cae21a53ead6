"""Lines of the user beside the prompt: a line that is edited where it stands, and one typed ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

    from ullage.shell.screen import Screen

EDIT_MARK = "edit> "
"""Stands in front of a line that is edited."""


async def edit_line(screen: Screen, text: str) -> str | None:
    """Lets the user edit a text and returns it; None after Ctrl-C or Ctrl-D, and without a terminal."""
    if not screen.is_interactive:
        return None
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - only a terminal pays for it
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - see above

    bound = KeyBindings()

    @bound.add("c-c")
    @bound.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError)

    session: PromptSession[str] = PromptSession(message=EDIT_MARK, key_bindings=bound)
    session.app.renderer.cpr_not_supported_callback = lambda: None
    try:
        return (await session.prompt_async(default=text, handle_sigint=False)).strip()
    except EOFError:
        return None


def read_typed_line(screen: Screen) -> str | None:
    """Returns a whole line that the user has typed meanwhile; None if there is none."""
    if not screen.is_interactive:
        return None
    import os  # noqa: PLC0415 - only a terminal needs it
    import select  # noqa: PLC0415 - see above

    handle = screen.keyboard.fileno()
    if not select.select([handle], [], [], 0)[0]:  # the terminal hands over whole lines only
        return None
    return os.read(handle, 65_536).decode(errors="replace").rstrip("\r\n")
