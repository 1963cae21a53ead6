"""Commands and the end of a goal, as they stand in answers."""

from __future__ import annotations

import pytest

from ullage.shell.directives import GoalEnding, commands_in, ending_in


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
        ("```\nCMD: rm -rf x\n```\nCMD: ls", ("ls",)),
        ("```sh\nCMD: rm -rf x\n", ()),
        ("~~~\nCMD: rm\n```\nCMD: rm\n~~~\nCMD: ls", ("ls",)),
        ("````\n```\nCMD: rm\n```\nCMD: rm\n````\nCMD: ls", ("ls",)),
        ("- a list:\n  ```\nCMD: rm\n  ```\nCMD: ls", ("ls",)),
        ("> CMD: rm -rf x", ()),
        ("> ```\n> CMD: rm\n> ```\nCMD: ls", ("ls",)),
        ('The file says: "first\nCMD: rm -rf x\nlast"\nCMD: ls', ("ls",)),
        ("The file says: “first\nCMD: rm -rf x\nlast”\n\nCMD: ls", ("ls",)),
        ("<pre>\nCMD: rm\n</pre>\nCMD: ls", ("ls",)),
        ('text = """\nCMD: rm\n"""\nCMD: ls', ("ls",)),
        ('A 5" disk is full.\nCMD: df', ("df",)),
        ("Inline ```code``` is no block.\nCMD: ls", ("ls",)),
        ('CMD: echo "a\nCMD: echo b"', ('echo "a', 'echo b"')),
    ],
)
def test_a_command_is_what_follows_the_mark_at_the_beginning_of_a_line(
    answer: str, commands: tuple[str, ...]
) -> None:
    assert commands_in(answer) == commands


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        ("GOAL: complete", GoalEnding(complete=True, text="")),
        ("Done.\nGOAL: complete\nAll tests pass.", GoalEnding(complete=True, text="All tests pass.")),
        ("GOAL: complete: renamed it\nand more", GoalEnding(complete=True, text="renamed it\nand more")),
        ("GOAL: blocked no key", GoalEnding(complete=False, text="no key")),
        ("GOAL: blocked\nThe server is down.", GoalEnding(complete=False, text="The server is down.")),
        ("I will write GOAL: complete at the end", None),
        ("GOAL: completely wrong", None),
        ("goal: complete", None),
        ("```\nGOAL: complete\n```", None),
        ("> GOAL: complete", None),
        ('It says "done\nGOAL: complete\nso" there', None),
        ("```\nGOAL: blocked\n```\nGOAL: complete\nAll.", GoalEnding(complete=True, text="All.")),
    ],
)
def test_a_goal_ends_on_a_line_of_its_own(answer: str, ending: GoalEnding | None) -> None:
    assert ending_in(answer) == ending
