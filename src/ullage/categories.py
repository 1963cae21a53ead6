"""The built-in categories of calls; the bill and the setting `routing` use these names."""

MAIN = "main"
"""Category of ordinary calls, and of all calls without another category."""
GOAL = "goal"
"""Category of calls that work on a goal."""
SUMMARIZE = "summarize"
"""Category of calls that write summaries of evicted turns."""
