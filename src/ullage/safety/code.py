"""Classifies programs in another language that stand on a command line.

Only SQL and sed are small enough to be classified by patterns. A program in any other language is
unknown, or destructive if it names a call that deletes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.safety.rules import table

if TYPE_CHECKING:
    from ullage.safety.verdict import CommandClass

DELETING = re.compile(
    r"""rmtree | os\.(remove|unlink|rmdir|removedirs|kill|truncate) | \.unlink\s*\( | \.rmdir\s*\( | unlink\b
    | \bfork\b | rmSync | rmdirSync | unlinkSync | rm_rf? | FileUtils | File\.delete | Dir\.delete
    | remove_tree | \bdel\s+/ | format\s+c: | \brm\s+-\w | \bmkfs | \bdd\s+.*\bof= | ["']rm["']
    | ["']rm\s | \bshutdown\b | \bdeltree\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Calls, in any language, that delete or stop things."""

_SQL_KINDS: tuple[tuple[CommandClass, str, str], ...] = (
    (
        "destructive",
        r"\b(drop|truncate|delete|revoke|vacuum|purge|detach|shutdown|kill|dropdatabase|deletemany|deleteone|remove)\b",
        "deletes from a database",
    ),
    ("destructive", r"\bupdate\b(?!.*\bwhere\b)", "changes every row of a table"),
    ("destructive", r"\bpg_(terminate|cancel)_backend\b", "stops a connection"),
    (
        "unknown",
        (
            r"\b(copy|system|load|do|call|attach|load_file|writefile|load_extension|edit|fsdir|prepare|execute|install)\b"
            r"|\bexec|\binto\b.*file\b|^\s*[.]|https?:|\bs3:"
            r"|\b(create|alter)\s+(or\s+replace\s+)?(definer\s*=\s*\S+\s+|(temp\w*|trusted|event|aggregate)\s+)*"
            r"(system|extension|language|function|procedure|trigger|event|rule|server|user|role|foreign)\b"
            r"|\bset\s+(global|persist\w*|@@global|@@persist\w*)\b|\bgrant\b"
        ),
        "runs more than a query",
    ),
    (
        "writes",
        r"\b(insert|update|create|alter|replace|merge|set|into|comment|reindex|upsert|rename|analyze\s+\w+\s*$)\b",
        "changes a database",
    ),
    (
        "read-only",
        r"^\s*(select|show|explain|describe|desc|values|with|table|use\s+\w+$|pragma\s+(table_(x?info|list)|index_(x?info|list)|foreign_key_list|integrity_check|quick_check|database_list|user_version|journal_mode|encoding|page_size|page_count|compile_options)(\s*\(\s*\w+\s*\))?\s*$)(?!\w)",
        "asks a database",
    ),
)
"""Patterns with their class and reason; the first pattern that matches decides."""

_SQL_COMMAND = re.compile(
    r"\s*(?:\\(?:d\w*\+?|l\+?|conninfo|encoding|timing|x|z|sf\+?|sv\+?)(?:[ \t]+[\w.*\"+-]+)*"
    r"|\.(?:schema|tables|databases|indexes|indices|dump|stats|show|headers|mode|fullschema|dbinfo)"
    r"(?:[ \t]+[\w.*-]+)*)[ \t]*;?\s*"
)
"""Commands of psql and sqlite3 that only show something."""

_SQL_LOCK = re.compile(
    r"\bfor\s+(?:no\s+key\s+)?update(?:\s+of\s+[\w., ]+?)?(?:\s+(?:nowait|skip\s+locked))?\s*(?=;|$)",
    re.IGNORECASE,
)
_SQL_SHOW = re.compile(r"^\s*show\s+create\s", re.IGNORECASE)
_SQL_TRICKY = re.compile(r"\\|--|/\*|#|\$\w*\$|`")
_SQL_PRAGMA = re.compile(
    r"^\s*pragma\s+(?:table_(?:x?info|list)|index_(?:x?info|list)|foreign_key_list|integrity_check|quick_check)\b",
    re.IGNORECASE,
)
_SQL_CALL = re.compile(r"([\w.]+)\s*\(")

_MONGO_READS = """
aggregate count countDocuments currentOp dataSize distinct estimatedDocumentCount explain find findOne
getCollectionInfos getCollectionNames getIndexes getMongo getName getRoles getSiblingDB getUsers hello hint
hostInfo isMaster limit pretty serverStatus size skip sort stats status storageSize toArray totalSize version
"""
_MONGO = re.compile(
    r"\s*(?:show\s+(?:dbs|databases|collections|tables|users|roles)|(?:db|rs|sh)(?:\.\w+)*?"
    rf"(?:\.(?:{'|'.join(_MONGO_READS.split())})\((?:[^()`=$;]|\$(?!where|function|accumulator|out|merge))*\)(?:\.\w+)*?)+)\s*;?\s*"
)
"""Calls of MongoDB that only read. Their arguments call nothing, because there is no parenthesis in them."""

_SED_PLACE = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/[IM]*)"
_SED_ADDRESS = rf"(?:{_SED_PLACE}(?:~\d+)?(?:,\s*[~+]?{_SED_PLACE})?\s*!?\s*)?"
_SED_SUBSTITUTE = r"(?:s|y)([^\s\w\\;{}])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiImM0-9]*"
_SED_COMMAND = re.compile(
    rf"\s*{_SED_ADDRESS}(?:(?:{_SED_SUBSTITUTE}|[pdDqQnNgGhHxPlzF=]\s*\d*|[rR]\s*[^\n;}}]+|[}}]|[btT]\s*\w*|:\s*\w+)\s*(?:[;\n}}{{]|$)"
    rf"|\{{|[aic](?:\s|\\)(?:[^\n\\]|\\.)*(?:\n|$))",
    re.DOTALL,
)


def sql(text: str) -> tuple[CommandClass, str]:
    """Returns the class of SQL statements, and the reason."""
    if _SQL_COMMAND.fullmatch(text) or (_MONGO.fullmatch(text) and not re.search(r"\bnew\b", text)):
        return "read-only", "asks a database"
    text = _SQL_SHOW.sub("show ", text)
    plain = _SQL_LOCK.sub(" ", re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL))
    if not _SQL_TRICKY.search(text):
        plain = text = re.sub(r"'[^']*'|\"[^\"]*\"", " x ", plain)
    # One database may run what another skips as a comment, so the text is also matched with its comments.
    for kind, pattern, reason in _SQL_KINDS[:-1]:
        if any(re.search(pattern, each, re.IGNORECASE | re.DOTALL) for each in (plain, text)):
            return kind, reason
    kind, pattern, reason = _SQL_KINDS[-1]
    statements = [each.strip() for each in plain.removesuffix("\\G").split(";") if each.strip()]
    if not all(re.match(pattern, each, re.IGNORECASE) for each in statements) or "\\" in plain.removesuffix(
        "\\G"
    ):
        return "unknown", "is a query that the rules cannot read"
    call = next(
        (
            name
            for name in _SQL_CALL.findall(_SQL_PRAGMA.sub("", plain))
            if name.lower() not in table().functions
        ),
        None,
    )
    return ("unknown", f"calls {call}, which is not in the rules") if call else (kind, reason)


def sed(script: str) -> bool:
    """Returns True if a sed script writes no file and runs no command."""
    at = 0
    while at < len(script):
        match = _SED_COMMAND.match(script, at)
        if match is None or match.end() == at:
            return not script[at:].strip()
        at = match.end()
    return True


def deletes(program: str) -> str | None:
    """Returns the call in a program of any language that deletes; None if there is no such call."""
    match = DELETING.search(program)
    return match[0] if match else None
