"""The classes of turns that need no configuration; the bill calls their requests by the same names."""

MAIN = "main"
"""Ordinary turns, and whatever nobody has named otherwise."""
GOAL = "goal"
"""The turns of a goal."""
SUMMARIZE = "summarize"
"""Summaries of what leaves the window."""
