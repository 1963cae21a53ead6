"""What can be said about a program in another language that stands on a command line.

Only SQL, sed and awk have small enough languages to be told apart; anything else is unknown, and destructive
where it names a call that deletes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.shell.safety.verdict import Kind

DELETING = re.compile(
    r"""rmtree | os\.(remove|unlink|rmdir|removedirs|kill|truncate) | \.unlink\s*\( | \.rmdir\s*\( | unlink\b
    | \bfork\b | rmSync | rmdirSync | unlinkSync | rm_rf? | FileUtils | File\.delete | Dir\.delete
    | remove_tree | \bdel\s+/ | format\s+c: | \brm\s+-\w | \bmkfs | \bdd\s+.*\bof= | ["']rm["']
    | ["']rm\s | \bshutdown\b | \bdeltree\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Calls, in whatever language, that delete or stop things."""

_SQL_KINDS: tuple[tuple[Kind, str, str], ...] = (
    (
        "destructive",
        r"\b(drop|truncate|delete|revoke|vacuum|purge|detach|shutdown|kill|dropdatabase|deletemany|deleteone)\b",
        "deletes from a database",
    ),
    ("destructive", r"\bupdate\b(?!.*\bwhere\b)", "changes every row of a table"),
    (
        "unknown",
        (
            r"\\!|\\(o|copy|i|ir|g|gexec|w)\b|\b(copy|system|load|do|call|attach|load_file|writefile|load_extension|edit|fsdir)\b|\bexec|\bpg_\w+\s*\("
            r"|\.(shell|system|read|import|load|output|once|backup|dump)\b|\binto\b.*file\b"
        ),
        "runs more than a query",
    ),
    (
        "writes",
        r"\b(insert|update|create|alter|replace|grant|merge|set|into|comment|reindex|upsert|rename)\b",
        "changes a database",
    ),
    (
        "read-only",
        (
            r"^\s*(select|show|explain|describe|desc|values|with|table|\\d\w*|\\l|\\conninfo"
            r"|\.schema|\.tables|\.databases|\.indexes)(?!\w)[^;]*;?\s*$"
        ),
        "asks a database",
    ),
)
"""Read from the top; the first pattern that is found tells the class."""

_SED_ADDRESS = (
    r"(?:(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/I?)(?:,[~+]?(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?))?\s*!?\s*)?"
)
_SED_SUBSTITUTE = r"(?:s|y)([^\s\w\\;{}])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI0-9]*"
_SED_COMMAND = re.compile(
    rf"\s*{_SED_ADDRESS}(?:{_SED_SUBSTITUTE}|[pdDqQnNgGhHxPlz=]\s*\d*|[{{}}])\s*(?:[;\n}}{{]|$)", re.DOTALL
)
_AWK_RUNS = re.compile(
    r"system\s*\(|(?<!\|)\|(?!\|)|getline|@load|@include|@\w+\s*\(|print(?:f)?\b[^;}\n]*>|close\s*\(|\|&|fflush"
)


def sql(text: str) -> tuple[Kind, str]:
    """The class of statements for a database."""
    plain = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    # A comment may hide what one database runs and another skips, so the text is looked at with it as well.
    for kind, pattern, reason in _SQL_KINDS:
        texts = (plain,) if kind == "read-only" else (plain, text)
        if any(re.search(pattern, each, re.IGNORECASE | re.DOTALL) for each in texts):
            return kind, reason
    return "unknown", "is a query that the rules cannot read"


def sed(script: str) -> bool:
    """Whether a sed script only edits what flows through it: it writes no file and runs nothing."""
    at = 0
    while at < len(script):
        match = _SED_COMMAND.match(script, at)
        if match is None or match.end() == at:
            return not script[at:].strip()
        at = match.end()
    return True


def awk(program: str) -> bool:
    """Whether an awk program writes no file and runs nothing."""
    return not _AWK_RUNS.search(program)


def deletes(program: str) -> str | None:
    """The call in a program of any language that deletes; None where none is seen."""
    match = DELETING.search(program)
    return match[0] if match else None
