"""Reads the arguments of a command by the options that its rule knows.

An option that the rule does not know is reported, because it may do anything. The notation of known options:

    -alI=i?     the flags -a and -l, -I with a value, -i with a value that must be attached
    -#          a number, as in `head -5`
    --all       a long option without a value
    --sort=     a long option with a value, attached or as the next word
    --color=?   a long option whose value is optional and must be attached
    --*-id=     any long option of this form
    -*          any option
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from ullage.safety.words import UNSEEN, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NEXT, ATTACHED, NONE = "=", "?", ""
"""An option takes its value as the next word (or attached), only attached, or takes none."""


class KnownOptions(NamedTuple):
    """The known options of a command, each with the way in which it takes a value."""

    names: dict[str, str]
    patterns: tuple[tuple[str, str], ...] = ()

    def taking(self, name: str) -> str | None:
        """Returns how an option takes its value; None if the option is not known."""
        if name in self.names:
            return self.names[name]
        return next((taking for pattern, taking in self.patterns if fnmatchcase(name, pattern)), None)

    def __or__(self, other: KnownOptions) -> KnownOptions:
        """Returns the options of both; the other's meaning of a name wins."""
        return KnownOptions({**self.names, **other.names}, (*other.patterns, *self.patterns))


NO_OPTIONS = KnownOptions({})


def read_options(text: str, *, whole: bool = False) -> KnownOptions:
    """Returns the options of a text in the notation above; with `whole`, `-name` is one option."""
    names: dict[str, str] = {}
    patterns: list[tuple[str, str]] = []
    for token in text.split():
        if token.startswith("--") or whole or token in ("-#", "-*", "-"):
            name, _, mark = token.partition("=")
            taking = (ATTACHED if mark else NEXT) if "=" in token else NONE
            names[name] = taking
            patterns += [(name, taking)] if "*" in name else []
        else:
            names.update(
                {f"-{letter}": taking for letter, taking in re.findall(r"([^=?])([=?]?)", token[1:])}
            )
    return KnownOptions(names, tuple(patterns))


class Given(NamedTuple):
    """An option that stands on the line."""

    name: str
    value: Word | None
    known: bool = True
    """False if the rule does not know the option; it may be an abbreviation of a known one."""


@dataclass(slots=True)
class Arguments:
    """The arguments of a command, read."""

    given: list[Given] = field(default_factory=list)
    operands: list[Word] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Options that the rule does not know, as they were written."""
    loose: bool = False
    """True if an argument may turn out to be an option."""
    many: bool = False
    """True if an operand may turn out to be several words, or none."""
    ended: bool = False
    """True if the arguments have a `--`."""

    def names(self) -> list[str]:
        """Returns the names of the options that stand on the line."""
        return [given.name for given in self.given]

    def texts(self) -> list[str]:
        """Returns the operands as texts."""
        return [word.text for word in self.operands]


def read_arguments(
    words: Sequence[Word],
    options: Callable[[list[str]], KnownOptions],
    *,
    whole: bool = False,
    bundled: bool = False,
) -> Arguments:
    """Reads arguments; `options` returns the options that are known after these operands.

    With `whole`, an option with one dash is a word (`-name`) and not a cluster of letters. With `bundled`,
    the first argument is a cluster even without a dash (`tar xf`).
    """
    seen = Arguments()
    at = 0
    while at < len(words):
        word, after = words[at], words[at + 1 : at + 2]
        text = word.text
        if bundled and at == 0 and text and not text.startswith("-"):
            text = "-" + text
        at += 1
        known = options(seen.texts())
        if seen.ended or not text.startswith("-") or text == "-":
            seen.loose = seen.loose or (not seen.ended and (word.loose or word.splits))
            seen.many = seen.many or word.splits
            seen.operands.append(word)
        elif text == "--":
            seen.ended = True
        elif word.splits:
            seen.loose = True
            seen.unknown.append(text)
        elif text.startswith("--") or whole:
            at += _long(Word(text, fixed=word.fixed), after, known, seen)
        else:
            at += _cluster(Word(text, fixed=word.fixed), after, known, seen)
    return seen


def _long(word: Word, after: Sequence[Word], known: KnownOptions, seen: Arguments) -> int:
    """Reads a long option; returns the number of further words that it takes."""
    name, equals, value = word.text.partition("=")
    taking = known.taking(name)
    if taking is None and re.fullmatch(r"-\d+", name) and known.taking("-#") is not None:
        seen.given.append(Given("-#", None))
        return 0
    if taking is None or UNSEEN in name or (equals and taking == NONE):
        seen.unknown.append(word.text)
        seen.given.append(Given(name, Word(value, fixed=word.fixed) if equals else None, known=False))
        return 0
    if equals:
        seen.given.append(Given(name, Word(value, fixed=word.fixed)))
        return 0
    return _next(name, taking, after, seen)


def _next(name: str, taking: str, after: Sequence[Word], seen: Arguments) -> int:
    """Notes an option whose value may be the next word; returns the number of words that it takes."""
    if taking != NEXT:
        seen.given.append(Given(name, None))
        return 0
    seen.loose = seen.loose or any(word.splits for word in after)
    seen.given.append(Given(name, after[0] if after else None))
    return len(after)


def _cluster(word: Word, after: Sequence[Word], known: KnownOptions, seen: Arguments) -> int:
    """Reads a cluster of letters; returns the number of further words that it takes."""
    letters = word.text[1:]
    if re.fullmatch(r"\d+", letters) and known.taking("-#") is not None:
        seen.given.append(Given("-#", None))
        return 0
    for place, letter in enumerate(letters):
        name, rest = f"-{letter}", letters[place + 1 :]
        taking = known.taking(name)
        if taking is None or letter == UNSEEN:
            if word.text not in seen.unknown:
                seen.unknown.append(word.text)
            seen.given.append(Given(name, None))
        elif taking != NONE and rest:
            seen.given.append(Given(name, Word(rest, fixed=word.fixed)))
            return 0
        elif taking == NEXT:
            return _next(name, taking, after, seen)
        else:
            seen.given.append(Given(name, None))
    return 0
