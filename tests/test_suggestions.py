"""Commands and the end of a goal, as they stand in answers."""

from __future__ import annotations

import pytest

from ullage.shell.suggestions import Ending, commands_in, ending_in


@pytest.mark.parametrize(
    ("answer", "commands"),
    [
        ("CMD: ls -la", ("ls -la",)),
        ("Look first:\nCMD: ls\nand then\nCMD:   git status  \n", ("ls", "git status")),
        ("Write CMD: ls on a line", ()),
        (" CMD: ls", ()),
        ("CMD:ls", ()),
        ("cmd: ls", ()),
        ("CMD: ", ()),
        ("", ()),
    ],
)
def test_a_command_is_what_follows_the_mark_at_the_beginning_of_a_line(
    answer: str, commands: tuple[str, ...]
) -> None:
    assert commands_in(answer) == commands


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        ("GOAL: complete", Ending(complete=True, text="")),
        ("Done.\nGOAL: complete\nAll tests pass.", Ending(complete=True, text="All tests pass.")),
        ("GOAL: complete: renamed it\nand more", Ending(complete=True, text="renamed it\nand more")),
        ("GOAL: blocked no key", Ending(complete=False, text="no key")),
        ("GOAL: blocked\nThe server is down.", Ending(complete=False, text="The server is down.")),
        ("I will write GOAL: complete at the end", None),
        ("GOAL: completely wrong", None),
        ("goal: complete", None),
    ],
)
def test_a_goal_ends_on_a_line_of_its_own(answer: str, ending: Ending | None) -> None:
    assert ending_in(answer) == ending
