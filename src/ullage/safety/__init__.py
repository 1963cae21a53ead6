"""Classifies a command line before it runs: read-only, writes, sends, unknown or destructive.

    classify("ls -l | wc -l")       read-only
    classify("cp a b")              writes
    classify("curl -d @a b.org")    sends
    classify("make install")        unknown
    classify("ls & rm -rf x")       destructive

The class of a line is the worst class of its parts, in the order of this list. A part is read-only only if
its command and each of its options are known to be harmless. Unknown are commands and options that the files
in `tables/` do not have, lines that are not complete shell syntax, and words whose value is not known before
the shell runs. The class helps a person who is asked to confirm a command. It is not a sandbox: a program
that is allowed to run may do anything.
"""

from __future__ import annotations

from ullage.safety.parse import parses
from ullage.safety.verdict import KINDS, CommandClass, Verdict, worst
from ullage.safety.walk import classify

__all__ = ["KINDS", "CommandClass", "Verdict", "classify", "parses", "worst"]
