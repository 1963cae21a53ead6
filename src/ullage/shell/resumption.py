"""Continues a saved conversation: finds or lets the user pick it, and shows where it was left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from ullage.errors import ConfigurationError
from ullage.session.saved_talks import last_exchange, latest_in, list_talks
from ullage.shell.question import UNANSWERED, find_unanswered
from ullage.text import mark_unsafe, one_line
from ullage.window_chart import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.session.chat import ChatSession
    from ullage.session.saved_talks import SavedTalk
    from ullage.shell.screen import Screen
    from ullage.store import Store

PICK = "pick"
"""The word that asks for the list instead of naming a conversation."""
LISTED = 9
"""Conversations in the list at first; words search the latest SEARCHED."""
SEARCHED = 200
QUESTION_ROWS, ANSWER_ROWS = 3, 10
"""The most rows of the last question and of its answer that are shown."""
WIDE = 70
"""Columns from which a list also has the folder and the number of turns."""
AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Seconds of a unit of age → the unit, the longest first."""
OLD = 60 * 86_400
"""Seconds after which an age is shown as a date."""


def choose(kept: Store, screen: Screen, folder: Path, wanted: str, *, besides: str = "") -> str | None:
    """Returns the conversation to continue; None if the user picks none.

    An empty `wanted` is the last conversation of the folder, and PICK lets the user choose. Any other text is
    returned as it is. `besides` is the current conversation, which is left out.
    """
    if wanted not in {"", PICK}:
        return wanted
    found = None if wanted else latest_in(kept, folder, besides)
    if found is not None:
        return found
    talks = [each for each in list_talks(kept, SEARCHED) if each.turns and each.id != besides]
    if not talks or not screen.is_interactive:
        where = f"in {folder}" if talks else "yet"
        raise ConfigurationError(
            f"there is no saved conversation {where}; "
            "`ullage sessions list` shows all of them, and --resume SESSION or :resume SESSION continues one"
        )
    if not wanted:
        screen.dim(f"there is no saved conversation in {mark_unsafe(str(folder))}; these are from elsewhere:")
    return pick(screen, talks)


def pick(screen: Screen, talks: Sequence[SavedTalk]) -> str | None:
    """Lets the user choose a conversation by its number or by words; None after Ctrl-C, Ctrl-D or Esc."""
    shown = talks[:LISTED]
    _list(shown, screen)
    while True:
        said = screen.line(
            f"number, or words of the title (Enter: 1, Ctrl-C: none; {len(talks)} in all) → ", "1"
        )
        if not said or "\x1b" in said:
            return None
        if said.isdecimal():
            if 0 < int(said) <= len(shown):
                return shown[int(said) - 1].id
            screen.error(f"there is no number {said}")
            continue
        words = said.casefold().split()
        found = [each for each in talks if all(word in each.title.casefold() for word in words)]
        if len(found) == 1:
            return found[0].id
        if found:
            shown = found[:LISTED]
            _list(shown, screen)
        else:
            screen.error("no title has these words")


def _list(talks: Sequence[SavedTalk], screen: Screen) -> None:
    """Prints the numbered rows that the user picks from."""
    for row in draw_talks(talks, [f"{number:>3}" for number in range(1, len(talks) + 1)], screen.width):
        screen.say(row)


def draw_talks(talks: Sequence[SavedTalk], names: Sequence[str], width: int) -> list[Text]:
    """Draws a row for each conversation: its name, age, turns, folder and title."""
    now, is_wide, rows = time.time(), width >= WIDE, []
    for talk, name in zip(talks, names, strict=True):
        turns = "?" if talk.turns is None else f"{talk.turns:,}"
        about = f"{turns + (' turn' if turns == '1' else ' turns'):>11}  " if is_wide else ""
        folder = f"{short(one_line(Path(talk.folder).name or '-'), 16):<16}  " if is_wide else ""
        head = f"{name}  {age(now - talk.updated, talk.updated):>10}  {about}{folder}"
        rows.append(Text(head + short(one_line(talk.title) or "-", max(10, width - len(head))), no_wrap=True))
    return rows


def age(seconds: float, moment: float) -> str:
    """Describes the time since a moment: `now`, `5 min`, `3 h`, `2 d`, or a date."""
    if seconds >= OLD:
        return time.strftime("%Y-%m-%d", time.localtime(moment))
    return next((f"{int(seconds // size)} {unit}" for size, unit in AGES if seconds >= size), "now")


def tell_resumed(chat: ChatSession, screen: Screen) -> None:
    """Prints the size of the conversation and its last exchange, shortened, and says if it has no answer."""
    turns = len(chat.context)
    screen.dim(f"conversation resumed: {turns:,} turn{'' if turns == 1 else 's'}")
    last = last_exchange(chat.kept, chat.context.session)
    if last is not None:
        screen.say(_beginning(f"> {last.question}", QUESTION_ROWS, screen))
        if last.answer:
            screen.say(_beginning(last.answer, ANSWER_ROWS, screen))
    if find_unanswered(chat.context):
        screen.dim(UNANSWERED)


def _beginning(text: str, rows: int, screen: Screen) -> Text:
    """Returns the first rows of a text as they fit the screen, with a note if there is more."""
    lines = [*Text(mark_unsafe(text), style="dim").wrap(screen.console, screen.width)]
    more = [Text("… (:history lists all turns)", style="dim")] if len(lines) > rows else []
    return Text("\n").join([*lines[:rows], *more])
