"""The table of rules: the content of the files in `tables/`."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.safety.options import NEXT, NO_OPTIONS, KnownOptions, read_options
from ullage.safety.verdict import KINDS, CommandClass

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).with_name("tables")

Places = tuple[tuple[str, ...], ...]
"""Subcommands in order, each with its alternatives."""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One row of the table: its conditions, and the class if they hold."""

    places: Places
    needs: tuple[str, ...]
    """The other conditions, as they are written in the table."""
    kind: CommandClass
    reason: str

    @property
    def rank(self) -> int:
        """The position of the class in the order of concern; a higher rank is worse."""
        return KINDS.index(self.kind)


@dataclass(frozen=True, slots=True)
class CommandRule:
    """All rows and options of one command; `docs/use/safety.md` explains the keys."""

    rows: tuple[RuleRow, ...]
    options: KnownOptions = NO_OPTIONS
    before: KnownOptions = NO_OPTIONS
    """Options that are known before the first operand only, such as `-C` of git."""
    after: tuple[tuple[Places, KnownOptions], ...] = ()
    """Options that are known after a subcommand."""
    open: bool = False
    """True if every option of the command is harmless, so that an unknown argument is harmless too."""
    whole: bool = False
    bundled: bool = False
    into: tuple[str, ...] = ()
    """The arguments that name files to overwrite: `last`, `all`, `second`, `folder`, or options. With
    subcommands in front (`s3/cp:folder`), they are the arguments after these."""
    keeps: frozenset[str] = frozenset()
    """Options with which the command overwrites nothing."""
    helps: bool = True
    """False if `--help` and `--version` may run code of the folder."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A command that runs the command which follows it."""

    options: KnownOptions
    own: int
    """The number of the wrapper's own arguments before the command, such as the seconds of `timeout`."""
    joined: bool
    """True if the wrapper joins its words to one text and gives it to a shell."""
    alone: CommandClass
    """The class of the wrapper without a command."""
    least: CommandClass
    """The lowest class of the wrapper with a command."""

    @property
    def values(self) -> frozenset[str]:
        """The options whose value is the next word."""
        return frozenset(name for name, taking in self.options.names.items() if taking == NEXT)


class DatabaseClient(NamedTuple):
    """A database client: its known options, and those whose value is a statement."""

    options: KnownOptions
    statements: frozenset[str]
    whole: bool


class FileRow(NamedTuple):
    """Files that matter, by a pattern of their path."""

    path: re.Pattern[str]
    over: CommandClass
    add: CommandClass
    reason: str


@dataclass(frozen=True, slots=True)
class RuleTable:
    """The content of the files in `tables/`."""

    rules: Mapping[str, CommandRule]
    same: Mapping[str, tuple[str, ...]]
    """Other names of commands, each with the command and the first words that it stands for."""
    fetching: frozenset[str]
    evaluating: frozenset[str]
    special: re.Pattern[str]
    """Variables that must not be set, because commands of this or a later line depend on them."""
    harmless: re.Pattern[str]
    """Variables that may be set for a program."""
    targets: tuple[FileRow, ...]
    wrappers: Mapping[str, Wrapper]
    telling: frozenset[str]
    """Words that show the purpose of a program even if it is unknown."""
    functions: frozenset[str]
    """Functions of SQL that only compute."""
    databases: Mapping[str, DatabaseClient]
    helping: frozenset[str]
    """Programs without a rule that print their version or help if it is asked for alone."""
    shows: Mapping[str, frozenset[str]]
    """Options with which a command, without other words, only shows something."""
    settings: re.Pattern[str]
    """Variables with a value that is harmless, although another value would not be."""
    find_tests: KnownOptions
    """Tests and actions of `find` that are harmless."""


@functools.cache
def table() -> RuleTable:
    """Returns the rules, which are read once."""
    data: dict[str, Any] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        _merge(data, tomllib.loads(path.read_text("utf-8")), path.name)
    rules = {name: _reading(options) for name, options in data["reads"].items()}
    rules |= {
        name: CommandRule((RuleRow((), (), "destructive", reason),), _ANY, open=True)
        for name, reason in data["destroys"].items()
    }
    rules |= {name: _rule(name, entry) for name, entry in data["command"].items()}
    return RuleTable(
        rules=rules,
        same={name: tuple(words.split()) for name, words in data["same"].items()},
        fetching=frozenset(data["line"]["fetching"].split()),
        evaluating=frozenset(data["line"]["evaluating"].split()),
        special=_names(data["variables"]["special"]),
        harmless=_names(data["variables"]["harmless"]),
        targets=tuple(
            FileRow(re.compile(each["path"]), each["over"], each["add"], each["reason"])
            for each in data["target"]
        ),
        wrappers={name: _wrapper(entry) for name, entry in data["wrapper"].items()},
        telling=frozenset(data["line"]["telling"].split()),
        functions=frozenset(data["sql"]["functions"].split()),
        databases={name: _database(entry) for name, entry in data["database"].items()},
        helping=frozenset(data["line"]["helping"].split()),
        shows={name: frozenset(options.split()) for name, options in data["shows"].items()},
        settings=_names(data["variables"]["settings"]),
        find_tests=read_options(data["find"]["tests"], whole=True),
    )


_ANY = KnownOptions({}, (("-*", ""),))


def _merge(data: dict[str, Any], more: Mapping[str, Any], name: str) -> None:
    """Adds the tables of one file; the same command in two files is an error."""
    for key, content in more.items():
        if isinstance(content, list):
            data[key] = [*data.get(key, []), *content]
            continue
        twice = data.get(key, {}).keys() & content.keys()
        if twice:
            raise ValueError(
                f"{name}: {key} has {', '.join(sorted(twice))}, as another file has; keep one of them"
            )
        data[key] = {**data.get(key, {}), **content}


def _names(text: str) -> re.Pattern[str]:
    return re.compile("(?:" + "|".join(each.replace("*", r"\w*") for each in text.split()) + ")")


def _reading(text: str) -> CommandRule:
    """Returns the rule of a command that only reads; `*` says that all its options are harmless."""
    options = text.removeprefix("*")
    return CommandRule(
        (RuleRow((), (), "read-only", "only reads"),), read_options(options), open=text != options
    )


def _wrapper(entry: Mapping[str, Any]) -> Wrapper:
    return Wrapper(
        options=read_options(entry.get("options", "")),
        own=entry.get("own", 0),
        joined=entry.get("joined", False),
        alone=entry.get("alone", "unknown"),
        least=entry.get("least", "read-only"),
    )


def _database(entry: Mapping[str, Any]) -> DatabaseClient:
    whole = entry.get("whole", False)
    return DatabaseClient(
        read_options(entry["options"], whole=whole), frozenset(entry.get("statements", "").split()), whole
    )


_KEYS = {"is", "options", "before", "after", "rows", "open", "whole", "bundled", "into", "keeps", "helps"}


def _rule(name: str, entry: Mapping[str, Any]) -> CommandRule:
    if entry.keys() - _KEYS:
        raise ValueError(
            f"rules: {name} has the key {min(entry.keys() - _KEYS)}; the keys are {sorted(_KEYS)}"
        )
    whole = entry.get("whole", False)
    rows = {"": entry.get("is", "unknown"), **entry.get("rows", {})}
    return CommandRule(
        tuple(_row(pattern, meaning) for pattern, meaning in rows.items()),
        options=read_options(entry.get("options", ""), whole=whole),
        before=read_options(entry.get("before", ""), whole=whole),
        after=tuple(
            (_places(pattern.split()), read_options(text, whole=whole))
            for pattern, text in entry.get("after", {}).items()
        ),
        open=entry.get("open", False),
        whole=whole,
        bundled=entry.get("bundled", False),
        into=tuple(entry.get("into", "").split()),
        keeps=frozenset(entry.get("keeps", "").split()),
        helps=entry.get("helps", True),
    )


def _places(words: list[str]) -> Places:
    return tuple(tuple(word.split("|")) for word in words)


def _row(pattern: str, meaning: str) -> RuleRow:
    kind, _, reason = meaning.partition(": ")
    if kind not in KINDS:
        raise ValueError(f"rules: {pattern!r} has the class {kind!r}; write one of {', '.join(KINDS)}")
    words = pattern.split()
    needs = tuple(word for word in words if re.match(r"-|@\d|any:|made:|first:|but:|exists:|plain:", word))
    return RuleRow(_places([word for word in words if word not in needs]), needs, kind, reason)
