"""User turns that Ullage writes by itself, so that the model goes on. None of them has words of the user."""

from __future__ import annotations

FOLLOW_UP = (
    "The commands have run; their output is above. Go on: answer my question, or suggest the next command. "
    "If nothing is left to do, say what came out."
)
"""Gives the model the results of the commands that the user has let run."""
GO_ON = "Go on."
"""Begins the next step of a goal."""
REMINDER = (
    "Your last answer had no command and no end. Write the next command on a line that begins with "
    '"CMD: ", or "GOAL: complete" or "GOAL: blocked" on a line of its own, outside code blocks and '
    "quotations."
)
"""Begins the next step of a goal after an answer that did nothing."""
RESUMED = "You were interrupted here. See what has been done of the goal so far, and go on."
"""Continues a goal."""
PAUSED = "The user paused you here; no command of your last answer was run. Go on."
"""Continues a goal that the user paused during an answer."""
CONTINUATIONS = frozenset({FOLLOW_UP, GO_ON, REMINDER, RESUMED, PAUSED})
"""All of them."""
