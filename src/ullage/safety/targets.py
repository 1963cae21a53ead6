"""Classifies writing into a file: some files matter, and a file that exists may be lost."""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.safety.rules import table
from ullage.safety.verdict import CommandClass, Verdict
from ullage.safety.words import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.safety.options import Arguments
    from ullage.safety.rules import CommandRule
    from ullage.safety.scene import Scene
    from ullage.safety.words import Word

FOUND = "./" + UNSEEN
"""The word for a file that `find` has found."""

MOST_FOLDERS = 64
"""Most folders that a line with several `cd` may be in."""

MOST_NAMES = 20_000
"""Most names of a folder that are looked at for one that begins with a dash."""


def classify_write(target: Word, part: str, *, adds: bool, folders: Sequence[Path] | None) -> Verdict:
    """Classifies writing into `target`; `adds` is True if the present content is kept."""
    if not target.fixed and not re.match(r"[~/.\w]", target.text):
        return Verdict("unknown", "writes into a file that is not known before it runs", part)
    kind, reason = _matters(target.text, adds=adds)
    if kind:
        return Verdict(kind, f"writes into {target.text}, which {reason}", part)
    if not target.fixed:
        return Verdict("unknown", "writes into a file that is not known before it runs", part)
    lost = None if adds else _check_overwrite([target], part, folders)
    return lost or Verdict("writes", f"{'adds to' if adds else 'writes'} {target.text}", part)


def classify_targets(name: str, rule: CommandRule, arguments: Arguments, scene: Scene) -> list[Verdict]:
    """Returns verdicts on the changed files that matter, and on those that exist and are overwritten."""
    keeps = not rule.keeps.isdisjoint([*arguments.names(), *_with_values(arguments)])
    found: list[Verdict] = []
    for whole in rule.into:
        below, _, place = whole.rpartition(":")
        subcommands = below.split("/") if below else []
        if arguments.texts()[: len(subcommands)] != subcommands:
            continue
        after = replace(arguments, operands=arguments.operands[len(subcommands) :])
        chosen = _choose_arguments(place, after)
        found += _important(name, chosen, scene.part, adds=keeps and name in ("tee", "sponge"))
        if keeps or place == "touched":
            continue
        lost = (
            _check_copy(after, scene.part, scene.facts.folders)
            if place == "folder"
            else _check_overwrite(chosen, scene.part, scene.facts.folders)
        )
        found += filter(None, [lost])
    return found


def _with_values(arguments: Arguments) -> list[str]:
    return [f"{given.name}={given.value.text}" for given in arguments.given if given.value]


def _choose_arguments(place: str, arguments: Arguments) -> list[Word]:
    """Returns the arguments that a rule means by `place`: an option's values, or operands by position."""
    operands = arguments.operands
    if place.startswith("-"):
        return [given.value for given in arguments.given if given.name == place and given.value]
    if place == "folder":
        into = _choose_arguments("-t", arguments) + _choose_arguments("--target-directory", arguments)
        return into or operands[-1:]
    return {"last": operands[-1:], "second": operands[1:2]}.get(place, operands)


def _important(name: str, chosen: Sequence[Word], part: str, *, adds: bool) -> list[Verdict]:
    """Returns a verdict on each file that matters among these."""
    found: list[Verdict] = []
    for word in chosen:
        kind, reason = _matters(word.text, adds=adds)
        if kind == "read-only" and name == "mv" and word is chosen[-1]:
            found.append(Verdict("destructive", f"mv into {word.text} throws files away", part))
        elif kind:
            found.append(Verdict(kind, f"{name} changes {word.text}, which {reason}", part))
    return found


def classify_changes(words: Sequence[Word], name: str, scene: Scene) -> list[Verdict]:
    """Returns verdicts on files that a command changes in place, as `sed -i` does."""
    lost = _check_overwrite(words, scene.part, scene.facts.folders)
    return [*_important(name, words, scene.part, adds=False), *filter(None, [lost])]


def _matters(text: str, *, adds: bool) -> tuple[CommandClass | None, str]:
    path = posixpath.normpath(text) if text else text
    path = re.sub(r"^(?:/private)?/+(?=.)", "/", path)
    for target in table().targets:
        if target.path.search(path):
            return target.add if adds else target.over, target.reason
    return None, ""


# Files that exist ----------------------------------------------------------------------------------------


def _check_copy(arguments: Arguments, part: str, folders: Sequence[Path] | None) -> Verdict | None:
    """Returns a verdict if `cp`, `mv` or the like overwrites the target, or files in it."""
    operands = arguments.operands
    named = any(given.name in ("-t", "--target-directory") for given in arguments.given)
    sources = operands if named else operands[:-1]
    target = next(iter(_choose_arguments("folder", arguments)), None) if sources else None
    if target is None or (":" in target.text.partition("/")[0]):  # the file is on another machine
        return None
    if folders is None:
        return _check_overwrite([target], part, None)
    if not target.fixed or target.glob:
        return Verdict("unknown", "it may overwrite a file that is not known before it runs", part)
    if not any(_is_folder(_path(folder, target.text)) for folder in folders):
        return _check_overwrite([target], part, folders)
    inside = [
        replace(word, text=posixpath.join(target.text, posixpath.basename(word.text.rstrip("/"))))
        for word in sources
    ]
    return _check_overwrite(inside, part, folders)


def _check_overwrite(targets: Sequence[Word], part: str, folders: Sequence[Path] | None) -> Verdict | None:
    """Returns a verdict on the first target that exists, or whose name is still unknown."""
    if any(target.text == FOUND for target in targets):
        return Verdict("destructive", "overwrites the files that are found", part)
    for target in targets if folders is not None else ():
        if any(_holds_something(_path(folder, target.text)) for folder in folders or ()):
            return Verdict("destructive", f"overwrites {target.text}, which exists", part)
        if target.glob or not target.fixed or (not folders and not target.text.startswith(("/", "~"))):
            return Verdict("unknown", "it may overwrite a file that is not known before it runs", part)
    return None


def _path(folder: Path, text: str) -> Path:
    return folder / os.path.expanduser(text.replace("\0", ""))  # noqa: PTH111 - also of a part of a path


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _holds_something(path: Path) -> bool:
    """Returns True if the path is a file or folder with content; False if it cannot be read."""
    try:
        if path.is_dir():
            with os.scandir(path) as entries:
                return next(entries, None) is not None
        return path.is_file() and path.stat().st_size > 0
    except (OSError, ValueError):
        return False


def exists(text: str, folders: Sequence[Path] | None) -> bool:
    """Returns True if a file or folder of this name is known to exist."""
    return any(_is_there(_path(folder, text)) for folder in folders or ())


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def has_dashed_names(folders: Sequence[Path] | None) -> bool:
    """Returns True if a file in one of the folders may have a name that begins with a dash."""
    return folders == [] or any(name.startswith("-") for folder in folders or () for name in _names(folder))


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in itertools.islice(entries, MOST_NAMES)]
    except (OSError, ValueError):
        return []


def folders_after(folders: list[Path] | None, words: Sequence[Word]) -> list[Path] | None:
    """Returns the folders that a line may be in after a `cd`; empty if they are unknown."""
    if folders is None:
        return None
    named = [word for word in words if not re.fullmatch(r"-[LPe@]+|--", word.text)]
    target = named[0] if named else None
    if target is None:
        return [*folders, _path(Path("/"), "~")]
    if not target.fixed or target.glob or target.text.startswith(("-", "+")):
        return []
    return [*folders, *(_path(folder, target.text) for folder in folders)][:MOST_FOLDERS]
