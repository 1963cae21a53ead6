"""What a command does, by the rows of `rules.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.shell.safety.verdict import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.shell.safety.words import Word


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what must be there, and what it means."""

    places: tuple[tuple[str, ...], ...]
    """The subcommands in order, each with its alternatives."""
    needs: tuple[str, ...]
    """The other conditions, as they are written in the table."""
    kind: Kind
    reason: str

    @property
    def rank(self) -> int:
        """How grave it is."""
        return KINDS.index(self.kind)


@dataclass(frozen=True, slots=True)
class Rule:
    """All that is known of one command."""

    rows: tuple[Row, ...]
    values: frozenset[str] = frozenset()
    clusters: bool = False
    bundled: bool = False


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A command that runs the command which follows it."""

    flags: frozenset[str]
    """Options without a value; one that is in neither list makes the whole unknown."""
    values: frozenset[str]
    """Options whose next word belongs to them."""
    own: int
    """Words of its own before the command, such as the seconds of `timeout`."""
    joined: bool
    """Whether it hands its words to a shell as one text."""
    alone: Kind
    """What it is without a command."""
    least: Kind
    """What it is at least."""


@dataclass(frozen=True, slots=True)
class Table:
    """The whole of `rules.toml`."""

    rules: Mapping[str, Rule]
    same: Mapping[str, tuple[str, ...]]
    """Other names, each with the command and the first words that it stands for."""
    fetching: frozenset[str]
    evaluating: frozenset[str]
    variables: re.Pattern[str]
    targets: tuple[Mapping[str, str], ...]
    wrappers: Mapping[str, Wrapper]
    telling: frozenset[str]
    """Words that tell what even an unknown program is for."""


@functools.cache
def table() -> Table:
    """The rules, read once."""
    data = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
    rules = {
        name: Rule((Row((), (), "read-only", "only looks"),))
        for names in data["read-only"].values()
        for name in names.split()
    }
    for kind in ("writes", "destructive"):
        rules |= {name: Rule((Row((), (), kind, reason),)) for name, reason in data[kind].items()}
    rules |= {name: _rule(entry) for name, entry in data["command"].items()}
    names = "|".join(each.replace("*", r"\w*") for each in data["variables"]["names"].split())
    return Table(
        rules=rules,
        same={name: tuple(words.split()) for name, words in data["same"].items()},
        fetching=frozenset(data["fetching"]["commands"].split()),
        evaluating=frozenset(data["functions"]["evaluating"].split()),
        variables=re.compile(f"(?:{names})"),
        targets=tuple(data["target"]),
        wrappers={name: _wrapper(entry) for name, entry in data["wrapper"].items()},
        telling=frozenset(data["telling"]["words"].split()),
    )


def _wrapper(entry: Mapping[str, Any]) -> Wrapper:
    return Wrapper(
        flags=frozenset(entry.get("flags", "").split()),
        values=frozenset(entry.get("values", "").split()),
        own=entry.get("own", 0),
        joined=entry.get("joined", False),
        alone=entry.get("alone", "unknown"),
        least=entry.get("least", "read-only"),
    )


def _rule(entry: Mapping[str, Any]) -> Rule:
    return Rule(
        tuple(_row(pattern, meaning) for pattern, meaning in entry["rows"].items()),
        values=frozenset(entry.get("values", "").split()),
        clusters=entry.get("clusters", False),
        bundled=entry.get("bundled", False),
    )


def _row(pattern: str, meaning: str) -> Row:
    kind, _, reason = meaning.partition(": ")
    if kind not in KINDS:
        raise ValueError(f"rules.toml: {pattern!r} has the class {kind!r}; write one of {', '.join(KINDS)}")
    words = pattern.split()
    needs = tuple(word for word in words if re.match(r"-|@\d|any:|first:|but:", word))
    places = tuple(tuple(word.split("|")) for word in words if word not in needs)
    return Row(places, needs, kind, reason)


def look_up(name: str, words: Sequence[Word]) -> tuple[Kind, str] | None:
    """The class and the reason of a command with these arguments; None for one that has no row."""
    stands_for = table().same.get(name, (name,))
    rule = table().rules.get(stands_for[0])
    if rule is None:
        return None
    texts = [*stands_for[1:], *(word.text for word in words)]
    if texts in (["--help"], ["--version"]) and len(rule.rows) > 1:
        return "read-only", f"{name} tells about itself"
    row = _decide(rule, texts)
    if any(word.loose for word in words) and any(other.rank > row.rank for other in rule.rows):
        return max("unknown", row.kind, key=KINDS.index), f"an argument of {name} is not known before it runs"
    return row.kind, _sentence(name, texts, row)


def _sentence(name: str, texts: Sequence[str], row: Row) -> str:
    whole = " ".join([name, *texts[: len(row.places)]])
    flag = next((need for need in row.needs if need.startswith("-")), "")
    given = next((text for text in texts if flag and any(_flag(each, text) for each in flag.split("|"))), "")
    shown = f"{whole} {given}".strip()
    plain = {
        "read-only": "only looks",
        "writes": "changes things",
        "destructive": "destroys",
        "unknown": "is not known to the rules",
    }
    return f"{shown} {row.reason or plain[row.kind]}"


def _decide(rule: Rule, texts: list[str]) -> Row:
    """The row that counts: the most specific one, and the worst of those that are as specific."""
    operands = _operands(rule, texts)
    nothing = Row((), (), "unknown", "")
    placed = [row for row in rule.rows if _placed(row, operands)]
    plain = [row for row in placed if not row.needs]
    base = max(plain, key=lambda row: (len(row.places), row.rank), default=nothing)
    deciding, raising = [], [base]
    for row in placed:
        lighter = row.rank < base.rank
        if not row.needs or not _fulfilled(rule, row, texts, operands, exact=lighter):
            continue
        if len(row.places) >= len(base.places):
            deciding.append(row)
        elif not row.needs[0].startswith("@") and not lighter:
            raising.append(row)
    if deciding:
        raising[0] = max(deciding, key=lambda row: row.rank)
    return max(raising, key=lambda row: row.rank)


def _operands(rule: Rule, texts: list[str]) -> list[str]:
    """The arguments that are neither options nor the values of options."""
    found: list[str] = []
    skip = False
    for index, text in enumerate(texts):
        if skip:
            skip = False
        elif text == "--":
            return found + texts[index + 1 :]
        elif text.startswith("-") and text != "-":
            skip = text in rule.values
        elif not (rule.bundled and index == 0):
            found.append(text)
    return found


def _placed(row: Row, operands: list[str]) -> bool:
    return len(operands) >= len(row.places) and all(
        any(fnmatchcase(operand, each) for each in alternatives)
        for operand, alternatives in zip(operands, row.places, strict=False)
    )


def _fulfilled(rule: Rule, row: Row, texts: list[str], operands: list[str], *, exact: bool) -> bool:
    cluster = rule.clusters or not exact
    if rule.bundled and texts and not texts[0].startswith("-"):
        texts = ["-" + texts[0], *texts[1:]]
    if exact and "--" in texts:
        texts = texts[: texts.index("--")]  # what stands behind is no option, and makes nothing lighter

    def fulfilled(need: str) -> bool:
        if need.startswith("@"):
            return len(operands) - len(row.places) >= int(need[1:])
        if need.startswith("any:"):
            patterns = need.removeprefix("any:").split("|")
            return any(fnmatchcase(text, each) for text in texts for each in patterns)
        if need.startswith("but:"):
            return not any(text in need.removeprefix("but:").split("|") for text in texts)
        if need.startswith("first:"):
            return texts[:1] != [] and texts[0] in need.removeprefix("first:").split("|")
        return any(
            _flag(each, text, cluster=cluster, prefix=row.kind != "read-only")
            for text in texts
            for each in need.split("|")
        )

    return all(fulfilled(need) for need in row.needs)


def _flag(flag: str, text: str, *, cluster: bool = True, prefix: bool = True) -> bool:
    """Whether an argument is this option: itself, with a value, in a cluster, or its beginning."""
    name = text.partition("=")[0]
    if name == flag or ("*" in flag and fnmatchcase(name, flag)):
        return True
    if flag.startswith("--"):
        return prefix and len(name) > 3 and flag.startswith(name)
    letter = len(flag) == 2 and not flag[1].isdigit()
    return cluster and letter and bool(re.fullmatch(r"-[^-].*", name, re.DOTALL)) and flag[1] in name[1:]
