"""Looks up the class of a command in the table of rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ullage.safety.options import Arguments, KnownOptions, read_arguments
from ullage.safety.rules import CommandRule, RuleRow, table
from ullage.safety.verdict import KINDS
from ullage.safety.words import UNSEEN, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.safety.rules import Places
    from ullage.safety.verdict import CommandClass


_PLAIN = re.compile(r"[@+]?[a-z0-9_:-]{1,20}(?:\.[a-z0-9_-]{1,20}){0,4}\.?|[A-Z]{1,6}|\+[a-z]+=\d+")
"""A machine name, or an argument of `dig`, that is so simple that no other data can be hidden in it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The class of a command by its rule, and the arguments as the rule reads them."""

    kind: CommandClass
    reason: str
    rule: CommandRule
    arguments: Arguments


def look_up(name: str, words: Sequence[Word], exists: Callable[[str], bool]) -> Finding | None:
    """Returns the class of a command with these arguments; None if the command has no rule.

    `exists` returns True if a file of this name exists in the folder of the line.
    """
    first, *more = table().same.get(name, (name,))
    rule = table().rules.get(first)
    if rule is None:
        return None
    whole = [*(Word(text) for text in more), *words]
    seen = read_rule_arguments(rule, whole)
    if _asks_for_help(rule, whole):
        return Finding("read-only", f"{name} prints its help or version", rule, seen)
    row = _decide(rule, whole, seen, exists)
    doubt = _doubt(name, rule, seen)
    if doubt and row.kind != "destructive":
        return Finding("unknown", doubt, rule, seen)
    return Finding(row.kind, _sentence(name, seen, row), rule, seen)


def read_rule_arguments(rule: CommandRule, words: Sequence[Word]) -> Arguments:
    """Returns the arguments of a command by the options of its rule."""

    def find_options(operands: list[str]) -> KnownOptions:
        options = rule.options if operands else rule.options | rule.before
        matching = [(len(places), more) for places, more in rule.after if _matches_places(places, operands)]
        for _, more in sorted(matching, key=lambda each: each[0]):
            options = options | more
        return options

    return read_arguments(words, find_options, whole=rule.whole, bundled=rule.bundled)


def _asks_for_help(rule: CommandRule, words: Sequence[Word]) -> bool:
    """Returns True for `--help` or `--version` alone, and for `--help` after subcommands of the rule."""
    *subcommands, asked = [word.text for word in words] or [""]
    if not rule.helps or asked not in ("--help", "--version"):
        return False
    if not subcommands:
        return True
    return asked == "--help" and any(
        len(subcommands) <= len(row.places)
        and all(text in names for text, names in zip(subcommands, row.places, strict=False))
        for row in rule.rows
    )


def _doubt(name: str, rule: CommandRule, seen: Arguments) -> str:
    """Returns the reason why the arguments cannot be relied on; empty if they can."""
    if seen.unknown:
        return f"the option {seen.unknown[0]} of {name} is not in the rules"
    counted = any(need.startswith("@") for row in rule.rows for need in row.needs) or any(
        len(row.places) > 0 for row in rule.rows
    )
    if (seen.loose and not rule.open) or (seen.many and (counted or {*rule.into} - {"touched"})):
        return f"an argument of {name} is not known before it runs"
    return ""


def _sentence(name: str, seen: Arguments, row: RuleRow) -> str:
    whole = " ".join([name, *seen.texts()[: len(row.places)]])
    flags = [need.split("|") for need in row.needs if need.startswith("-")]
    given = next((each for each in seen.names() if flags and each in flags[0]), "")
    shown = f"{whole} {given}".strip()
    plain = {
        "read-only": "only reads",
        "writes": "changes things",
        "sends": "sends something to another machine",
        "destructive": "destroys",
        "unknown": "is not in the rules",
    }
    return f"{shown} {row.reason or plain[row.kind]}"


def _decide(
    rule: CommandRule, words: Sequence[Word], seen: Arguments, exists: Callable[[str], bool]
) -> RuleRow:
    """Returns the row that decides: the most specific one, and the worst of several equally specific ones.

    A row with an option is more specific than a row that only counts arguments.
    """
    operands = seen.texts()
    placed = [row for row in rule.rows if _matches_places(row.places, operands)]
    plain = [row for row in placed if not row.needs]
    base = max(plain, key=lambda row: (len(row.places), row.rank))
    deciding, counted, raising = [], [], [base]
    for row in placed:
        lighter = row.rank < base.rank
        if not row.needs or not all(_holds(need, row, words, seen, exists) for need in row.needs):
            continue
        if len(row.places) < len(base.places):
            raising += [row] if not row.needs[0].startswith("@") and not lighter else []
        elif all(need.startswith("@") for need in row.needs):
            counted.append(row)
        else:
            deciding.append(row)
    if any(need.startswith("-") for row in deciding for need in row.needs):
        counted = []
    if deciding or counted:
        raising[0] = max([*deciding, *counted], key=lambda row: row.rank)
    return max(raising, key=lambda row: row.rank)


def _matches_places(places: Places, operands: list[str]) -> bool:
    return len(operands) >= len(places) and all(
        any(fnmatchcase(operand, each) for each in alternatives)
        for operand, alternatives in zip(operands, places, strict=False)
    )


def _holds(
    need: str, row: RuleRow, words: Sequence[Word], seen: Arguments, exists: Callable[[str], bool]
) -> bool:
    """Returns True if one condition of a row holds."""
    sign, _, rest = need.partition(":")
    operands = seen.operands[len(row.places) :]
    if need.startswith("@"):
        return len(operands) >= int(need[1:])
    if need.startswith("-") or sign not in CONDITIONS:
        return any(_is_given(each, row, seen) for each in need.split("|"))
    texts = [word.text for word in words]
    patterns = rest.split("|")
    # A word with an unknown part may become what a row warns of: `sysctl "a${x}b"` may set a value.
    # The value of an option counts only if it may make the command run or lose something.
    values = [given.value for given in seen.given if given.value and row.rank >= UNKNOWN]
    unclear = [word.text for word in (*seen.operands, *values) if not word.fixed] if row.rank else []
    holding = {
        "any": lambda: (
            any(fnmatchcase(text, each) for text in texts for each in patterns)
            or any(_may_match(text, each) for text in unclear for each in patterns)
        ),
        "made": lambda: any(not word.fixed for word in words),
        "but": lambda: not any(_is_given(each, row, seen) for each in patterns),
        "first": lambda: bool(texts) and texts[0] in patterns,
        "plain": lambda: (
            bool(operands)
            and all(word.fixed for word in words)
            and all(_PLAIN.fullmatch(word.text) for word in operands)
        ),
        "exists": lambda: any(exists(word.text) for word in operands),
    }
    return holding[sign]()


UNKNOWN = KINDS.index("unknown")

CONDITIONS = ("any", "made", "but", "first", "plain", "exists")


_PARTS = re.compile(r"\[!?\]?[^]]*\]|.", re.DOTALL)
"""The parts of a pattern: `*`, `?`, a class such as `[!a-z]`, or a letter."""


def _may_match(text: str, pattern: str) -> bool:
    """Returns True if a text with unknown parts may match a pattern."""
    parts = _PARTS.findall(pattern)
    reached = {0}  # the numbers of parts that the text so far may have matched
    for letter in text:
        if letter == UNSEEN:
            reached = set(range(min(reached), len(parts) + 1))
            continue
        reached = _skip(reached, parts)
        stays = {at for at in reached if at < len(parts) and parts[at] == "*"}
        goes = {at + 1 for at in reached if at < len(parts) and fnmatchcase(letter, parts[at])}
        reached = stays | goes
        if not reached:
            return False
    return len(parts) in _skip(reached, parts)


def _skip(reached: set[int], parts: list[str]) -> set[int]:
    """Returns the parts that can be reached if each `*` may match nothing."""
    found = set(reached)
    for at, part in enumerate(parts):
        if at in found and part == "*":
            found.add(at + 1)
    return found


def _is_given(option: str, row: RuleRow, seen: Arguments) -> bool:
    """Returns True if an option stands on the line, with a value of this form if the row names one.

    An abbreviation of a long option counts only if the row does not say that the command only reads.
    """
    name, _, value = option.partition("=")
    for given in seen.given:
        same = given.name == name or ("*" in name and fnmatchcase(given.name, name))
        short = not given.known and row.kind != "read-only" and len(given.name) > 3
        short = short and name.startswith(given.name)
        if (same or short) and (not value or (given.value and _has_form(given.value, value, row))):
            return True
    return option == "--" and seen.ended


def _has_form(value: Word, pattern: str, row: RuleRow) -> bool:
    """Returns True if a value matches a pattern, or may match it and the row warns of running or losing."""
    risky = row.rank >= UNKNOWN and not value.fixed
    return fnmatchcase(value.text, pattern) or (risky and _may_match(value.text, pattern))
