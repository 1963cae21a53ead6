"""What a command line may do, told from its grammar before it runs: it looks, writes, destroys, or who knows.

    classify("ls -l | wc -l")       read-only
    classify("cp a b")              writes
    classify("make install")        unknown
    classify("ls & rm -rf x")       destructive

The class of a line is the worst of its parts, in the order read-only, writes, unknown, destructive. Only what
is known to be harmless is read-only: a command without a row in `rules.toml`, a line that is not whole shell
grammar, and a word that only the running shell knows are unknown. It is a help for a person who is about to
say yes, not a wall: a program that is allowed to run may do anything.
"""

from __future__ import annotations

from ullage.shell.safety.parse import parses
from ullage.shell.safety.verdict import KINDS, Kind, Verdict, worst
from ullage.shell.safety.walk import classify

__all__ = ["KINDS", "Kind", "Verdict", "classify", "parses", "worst"]
