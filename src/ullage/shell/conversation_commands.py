"""The meta commands that show and change the conversation: its turns, its notes and its project tree."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from ullage.context.search import explain_nothing, read_handle, read_query
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting.pieces import HANDLE_LENGTH
from ullage.patience import patiently
from ullage.session.saved_talks import list_talks
from ullage.shell import goal, views
from ullage.shell.project_tree import leave_out_tree, send_tree
from ullage.shell.resumption import PICK, choose, draw_talks, tell_resumed
from ullage.shell.screen import NO, YES
from ullage.text import one_line
from ullage.window_chart import draw_hit

if TYPE_CHECKING:
    from ullage.shell.workplace import Workplace


SESSIONS, LISTED = 20, 200
"""The most conversations that `:sessions` shows, and among how many it looks for those with a turn."""
RECALLED = 5
"""The most texts that a search with `:recall` shows."""


async def list_turns(workplace: Workplace, _: str) -> None:
    """Lists all turns and marks those that are not sent whole."""
    with suppress(ContextOverflowError):  # a conversation that cannot be sent can still be shown
        await workplace.chat.context.prepare()
    workplace.screen.say(await patiently(partial(views.history, workplace.chat, workplace.screen.width)))


async def recall_text(workplace: Workplace, rest: str) -> None:
    """Shows a removed text, or the turns that a search finds."""
    if not rest:
        raise ConfigurationError("Use :recall HANDLE or :recall WORDS")
    whole = workplace.secrets.recall(rest)
    if whole is not None:
        workplace.screen.say(whole)
        return
    found = await patiently(partial(workplace.chat.context.search, rest, RECALLED))
    handle = read_handle(rest)
    if handle and found and found[0].handle.startswith(handle):
        workplace.screen.say(found[0].text)  # say() makes a string harmless
        return
    sought = read_query(rest).stems
    for each in found:
        for line in draw_hit(each, sought, workplace.screen.width, handle=HANDLE_LENGTH):
            workplace.screen.say(line)
    if not found:
        workplace.screen.dim(explain_nothing(rest))


async def change_notes(workplace: Workplace, rest: str) -> None:
    """Adds, lists or removes notes."""
    action, _, text = rest.partition(" ")
    context = workplace.chat.context
    if action == "add" and text:
        kind, colon, content = text.partition(": ")
        has_kind = colon and " " not in kind
        note = (content, kind) if has_kind else (text, "")
        item = await patiently(partial(context.remember, *note))
        workplace.screen.dim(f"remembered as {item.number}")
    elif action == "forget" and text.isdecimal():
        gone = await patiently(partial(context.forget, int(text)))
        workplace.screen.dim(
            "forgotten" if gone else f"no note has the number {text}; :memory lists the notes"
        )
    elif action == "clear":
        notes = context.memory
        if notes and not _confirms(
            workplace, f"forget {views.format_count(len(notes), 'note')} for good?", "forget"
        ):
            return
        for item in notes:
            await patiently(partial(context.forget, item.number))
        workplace.screen.dim("all notes are forgotten")
    elif action in {"", "list"}:
        for item in context.memory:
            workplace.screen.say(
                Text(f"{item.number:>3}  {one_line(item.kind) or '?'}: {one_line(item.content)}")
            )
    else:
        raise ConfigurationError(
            "Use :memory add [KIND: ]TEXT, :memory list, :memory forget NUMBER or :memory clear"
        )


async def change_tree(workplace: Workplace, rest: str) -> None:
    """Sends the list of the project's files, or leaves it out."""
    context, preferences, folder = (
        workplace.chat.context,
        workplace.chat.kept.preferences,
        workplace.runner.cwd,
    )
    if rest == "off":
        await patiently(partial(leave_out_tree, context, preferences, folder))
        workplace.screen.dim("the project tree is no longer sent")
        return
    if rest not in {"", "refresh"} and not rest.isdecimal():
        raise ConfigurationError("Use :tree [DEPTH], :tree refresh or :tree off")
    depth = int(rest) if rest.isdecimal() else None
    settings = workplace.chat.settings.project
    workplace.screen.say(
        Text(await patiently(partial(send_tree, context, preferences, settings, folder, depth)))
    )


async def compact_turns(workplace: Workplace, _: str) -> None:
    """Trims the conversation now."""
    saved = await patiently(workplace.chat.context.compact)
    workplace.screen.dim(
        f"{views.format_count(saved, 'token')} saved; "
        ":history marks the trimmed turns, :recall shows their text"
        if saved
        else "nothing can be trimmed yet"
    )


async def undo_exchange(workplace: Workplace, _: str) -> None:
    """Takes back the last exchange, or a reset."""
    context = workplace.chat.context
    before = len(context)
    gone = await patiently(context.undo)
    if len(context) > before:
        workplace.screen.dim(f"the reset is taken back: {views.format_count(len(context), 'turn')}")
    else:
        workplace.screen.dim(
            f"{views.format_count(len(gone), 'turn')} taken back" if gone else "there is nothing to take back"
        )


async def reset_conversation(workplace: Workplace, _: str) -> None:
    """Empties the conversation after a confirmation."""
    turns = len(workplace.chat.context)
    if not turns or _confirms(
        workplace, f"empty this conversation of {views.format_count(turns, 'turn')}?", "empty it"
    ):
        await patiently(workplace.chat.context.reset)
        workplace.screen.dim(
            "the conversation is empty now (:undo brings it back); memory, project tree and costs are kept"
        )


def _confirms(workplace: Workplace, question: str, label: str) -> bool:
    """Returns True if the user confirms; Enter keeps everything as it is.

    Without a terminal it returns True, because the line stands in a script and is no slip of the finger.
    """
    screen = workplace.screen
    if not screen.is_interactive:
        return True
    if screen.ask(question, {YES: label, NO: "keep it"}, refuse=NO, default=NO) == YES:
        return True
    screen.dim("nothing was changed")
    return False


async def begin_new(workplace: Workplace, _: str) -> None:
    """Begins a new conversation and keeps this one."""
    workplace.begin_anew()
    workplace.screen.dim("a new conversation begins; :sessions lists the previous one")


async def clear_screen(workplace: Workplace, _: str) -> None:
    """Clears the screen and begins a new conversation."""
    workplace.begin_anew()
    workplace.screen.clear()
    workplace.screen.dim("a new conversation begins; :resume continues the previous one")


async def list_sessions(workplace: Workplace, _: str) -> None:
    """Lists the stored conversations."""
    found = await patiently(partial(list_talks, workplace.chat.kept, LISTED))
    current = workplace.chat.context.session
    talks = [each for each in found if each.turns != 0 or each.id == current][:SESSIONS]
    names = [f"{'*' if each.id == current else ' '} {one_line(each.id)[:12]:<12}" for each in talks]
    for row in draw_talks(talks, names, workplace.screen.width):
        workplace.screen.say(row)


async def resume_session(workplace: Workplace, rest: str) -> None:
    """Continues another conversation."""
    chat, screen = workplace.chat, workplace.screen
    wanted = rest or (PICK if screen.is_interactive else "")
    found = choose(chat.kept, screen, chat.cwd, wanted, besides=chat.context.session)
    if found is None:
        screen.dim("this conversation goes on")
        return
    workplace.resume(found)
    tell_resumed(chat, screen)
    goal.tell_pending(workplace.chat, workplace.screen)


async def export_turns(workplace: Workplace, rest: str) -> None:
    """Writes the conversation to a new file."""
    import json  # noqa: PLC0415 - only an export needs it

    if Path(rest).suffix not in {".md", ".json"}:
        raise ConfigurationError("Use :export FILE.md or :export FILE.json")
    context = workplace.chat.context
    written = (
        json.dumps(context.turns, indent=2)
        if Path(rest).suffix == ".json"
        else views.as_markdown(context.turns)
    )
    try:
        path = (workplace.runner.cwd / Path(rest).expanduser()).resolve()
        # Like the store, the file contains the whole conversation, so only its owner may read it.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a descriptor
            file.write(written)
    except FileExistsError as error:
        raise ConfigurationError(f"{rest} already exists: choose another name or remove the file") from error
    except OSError as error:
        raise ConfigurationError(f"{rest} cannot be written: {error.strerror}") from error
    except (ValueError, RuntimeError) as error:  # an invalid character, or the home of an unknown user
        raise ConfigurationError(f"{one_line(rest)} is not a valid file name: {error}") from error
    workplace.screen.dim(f"{views.format_count(len(context), 'turn')} written to {path.name}")
