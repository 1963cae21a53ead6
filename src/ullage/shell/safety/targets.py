"""What writing into a file means: which files matter, and what is there already."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, cast

from ullage.shell.safety.rules import table
from ullage.shell.safety.verdict import Kind, Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ullage.shell.safety.words import Word

LAST, ALL = "last", "all"

WRITTEN: Mapping[str, str] = {
    "cp": LAST,
    "install": LAST,
    "ln": LAST,
    "scp": LAST,
    "rsync": LAST,
    "mv": ALL,
    "tee": ALL,
    "sponge": ALL,
    "sed": ALL,
    "touch": ALL,
    "chmod": ALL,
    "chown": ALL,
    "chgrp": ALL,
    "patch": ALL,
    "gzip": ALL,
    "sort": ALL,
    "tar": ALL,
    "unzip": ALL,
}
"""The commands that write into their arguments, and into which; for those whose class is `writes`."""


def written(target: Word, part: str, *, adds: bool, cwd: Path | None) -> Verdict:
    """The class of writing into `target`; `adds` where what is there is kept."""
    if not target.fixed and not re.match(r"[~/.\w]", target.text):
        return Verdict("unknown", "writes into a file that is not known before it runs", part)
    kind, reason = _matters(target.text, adds=adds)
    if kind:
        return Verdict(kind, f"writes into {target.text}, which {reason}", part)
    if not target.fixed:
        return Verdict("unknown", "writes into a file that is not known before it runs", part)
    if not adds and cwd is not None and _holds_something(cwd, target.text):
        return Verdict("destructive", f"overwrites {target.text}, which exists", part)
    return Verdict("writes", f"{'adds to' if adds else 'writes'} {target.text}", part)


def arguments(name: str, words: Sequence[Word], part: str) -> Verdict | None:
    """What a writing command does to the files among its arguments that matter; None where none does."""
    if name not in WRITTEN:
        return None
    adds = name == "tee" and any(word.text in ("-a", "--append") for word in words)
    operands = [word for word in words if not word.text.startswith("-")]
    options = [word.text.partition("=")[2] for word in words if word.text.startswith("--")]
    chosen = operands[-1:] if WRITTEN[name] == LAST else operands
    found = [Verdict("read-only", "", part)]
    for text in [*(word.text for word in chosen), *options]:
        kind, reason = _matters(text, adds=adds)
        if kind == "read-only" and name == "mv" and chosen[-1].text == text:
            found.append(Verdict("destructive", f"mv into {text} throws files away", part))
        elif kind:
            found.append(Verdict(kind, f"{name} changes {text}, which {reason}", part))
    return worst(found)


def _matters(text: str, *, adds: bool) -> tuple[Kind | None, str]:
    path = posixpath.normpath(text) if text else text
    path = re.sub(r"^(?:/private)?/+(?=.)", "/", path)
    for row in table().targets:
        if re.search(row["path"], path):
            return cast("Kind", row["add" if adds else "over"]), row["reason"]
    return None, ""


def _holds_something(cwd: Path, text: str) -> bool:
    """Whether there is a file with something in it; what cannot be looked at counts as nothing."""
    if text.startswith("~") or "\0" in text:
        return False
    path = cwd / text
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False
