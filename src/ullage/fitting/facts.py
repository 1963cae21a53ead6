"""The facts of a message: the values that the digest keeps after the message is evicted.

A fact is one value with its name and the line it belongs to: a sentence that somebody said, a call's
argument, a field of a result, an identifier in a log, an error line. Facts are found without a model, by who
said them and by their shape, in time linear in the text. `values` says what a value is, `fields` reads JSON,
`outputs` plain text, and `talk` sentences.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ullage.fitting.fields import list_fields, load_json, scan_fields
from ullage.fitting.outputs import ALIKE, ERROR_WORDS, find_first, find_lines, group_of, pairs, words
from ullage.fitting.talk import SPECIFIC, read_speech
from ullage.fitting.values import (
    READ_CHARS,
    VALUE_CHARS,
    clean,
    day_of,
    head_of,
    is_hash,
    is_identifier,
    is_measure,
    is_moment,
    is_number,
)
from ullage.messages import split_recalled
from ullage.text import split_outputs


class Taken(NamedTuple):
    """An evicted message, with the fields that the digest reads."""

    role: str
    text: str
    order: int
    """Its index in the history."""
    calls: tuple[tuple[str, str], ...] = ()
    """The (name, arguments JSON) of each call that an assistant message makes."""
    call: tuple[str, str] | None = None
    """For a tool result: the (name, arguments JSON) of the call that it answers."""


class Kind(IntEnum):
    """The source of a value, the most reliable first. The digest weighs facts by it."""

    TOLD = 0
    """A sentence of the user's that names something: a number, an identifier, a proper name."""
    SAID = 1
    """Another sentence of the user's."""
    COMMAND = 2
    """An argument of several words: a shell command, a query, an address."""
    ARGUMENT = 3
    """An argument of one word."""
    KEY = 4
    """A field of a result whose name says that it is an id, a code or an address."""
    IDENTIFIER = 5
    """A field of a result that a later call could name, by its shape: an id, a date, a code."""
    RESULT = 6
    """A short result, unchanged."""
    FIELD = 7
    """Another field of a result."""
    DETAIL = 8
    """A plain number."""
    ERROR = 9
    """A line that reports an error."""
    DECIDED = 10
    """A line of the assistant's about a decision or an open task."""
    REPORTED = 11
    """A sentence of the assistant's that names something."""
    STATED = 12
    """Another sentence of the assistant's."""
    USED = 13
    """An identifier in a long text of the user or in a long argument."""
    MENTIONED = 14
    """An identifier, or words in code or bold type, in the assistant's prose."""
    FOUND = 15
    """An identifier in a tool's plain output."""


Found: TypeAlias = tuple[Kind, str, str, str]
"""A fact: its kind, the label of its line, its name (may be empty), and its value."""

LABEL_CHARS = 100
ARGUMENT_CHARS, PHRASE_CHARS = 85, 60
"""Longest argument that a label shows: of one word, and of several words."""
ROWS = 12
"""The most values with one name that are read from a result: the first rows of a listing tell what it is."""
USER, ASSISTANT = "user", "assistant"
"""Labels of lines that quote the user or the assistant. A tool's label has parentheses."""
OUTPUT = "output()"
"""The label of lines that quote the output of commands."""

# No blank beside a mark: what is between two marked words is not marked.
_MARKED = re.compile(r"`(?=\S)([^`\n]{3,80})(?<=\S)`|\*\*([^*\n:]{3,60})\*\*")
_FENCED = re.compile(r"^[ \t]{0,8}```[^\n]*\n.*?(?:^[ \t]{0,8}```|\Z)", re.MULTILINE | re.DOTALL)
_SPEAKER = re.compile(r"(?:user|assistant)(?= |$)")
_KEY = re.compile(
    r"(?:^|[_.\-])(?:ids?|uuid|number|code|key|token|e?mail|handle|ref|sha|hash)$|[a-z](?:Ids?|ID|Key|Token|Code)$",
)
_NAMING = frozenset({Kind.KEY, Kind.IDENTIFIER})
_DECISION_WORDS = ("- [ ] ", "todo", "decided", "instead of", "going with", "next step")


def find(taken: Taken) -> list[Found]:
    """Returns the facts of one message, in the order of its text."""
    if taken.role == "user":
        return _from_user(taken.text)
    if taken.role == "tool":
        return _from_result(taken.text, taken.call)
    found = _from_assistant(taken.text) if taken.text else []
    for name, arguments in taken.calls:
        found += _from_call(name, arguments)
    return found


def field_kind(name: str, value: str) -> Kind:
    """Returns the kind of a field, by its name and by the form of its value."""
    if " " in value:
        return Kind.FIELD
    if is_identifier(value):
        if _is_key(name):
            return Kind.KEY
        return Kind.DETAIL if is_moment(value) else Kind.IDENTIFIER
    if len(value) < 3 or is_number(value):
        return Kind.DETAIL
    return Kind.FIELD


@lru_cache(1_000)
def _is_key(name: str) -> bool:
    """Returns True if a field's name says that its value identifies something."""
    return _KEY.search(name) is not None


def sentence_kind(sentence: str, role: str) -> Kind:
    """Returns the kind of a sentence: a specific one has a number, an identifier or a proper name."""
    specific = SPECIFIC.search(sentence)
    if role == USER:
        return Kind.TOLD if specific else Kind.SAID
    return Kind.REPORTED if specific else Kind.STATED


def phrase_kind(phrase: str) -> Kind:
    """Returns the kind of a text without a name in a tool's line: a result, an error or an identifier."""
    if find_first(ERROR_WORDS, phrase.lower()) >= 0:
        return Kind.ERROR
    return Kind.RESULT if " " in phrase else Kind.FOUND


def speaker_of(title: str) -> str:
    """Returns the role of the speaker that a line quotes; empty for a tool's line."""
    role = _SPEAKER.match(title) if "(" not in title else None
    return role[0] if role else ""


@lru_cache(1_000)
def label(name: str, argument: str = "") -> str:
    """Returns the label of a tool's line. It has parentheses and no colon followed by a space."""
    text = clean(f"{name}({argument})").replace(": ", ":").lstrip("| ")
    if len(text) <= LABEL_CHARS:
        return text
    return label(name) if argument else f"{text[: LABEL_CHARS - 2]}()"


def call_label(name: str, fields: list[tuple[str, str]]) -> str:
    """Returns the label of a call: the tool, and the argument that best identifies the call."""
    return label(name, main_argument(fields))


def main_argument(fields: list[tuple[str, str]]) -> str:
    """Returns the argument that best identifies a call of its tool, as name=value; empty if there is none."""
    weak = weaker = ""
    for key, value in fields[:8]:
        if not 3 <= len(value) <= ARGUMENT_CHARS or is_number(value):
            continue
        if " " in value:
            weaker = weaker or (f"{key}={value}" if len(value) <= PHRASE_CHARS else "")
        elif "/" in value or is_identifier(value):
            return f"{key}={value}"
        elif not weak and not value.islower():
            weak = f"{key}={value}"
    return weak or weaker


def _from_user(text: str) -> list[Found]:
    outputs, own = split_outputs(split_recalled(text)[1])
    return [fact for output in outputs for fact in _from_output(output)] + _from_words(own)


def _from_output(text: str) -> list[Found]:
    """Yields facts of a command's output: the command, its errors and the identifiers in it."""
    command, _, printed = text.partition("\n") if text.startswith("$ ") else ("", "", text)
    found: list[Found] = []
    if command:
        found.append((Kind.COMMAND, OUTPUT, "", clean(head_of(command, VALUE_CHARS))))
    return found + [
        (kind, OUTPUT, name, value) for kind, _, name, value in _from_result(printed, None) if value
    ]


def _from_speech(role: str, text: str) -> list[Found]:
    """Yields the sentences of a speaker, with the name and the date if the text has them."""
    return [
        (sentence_kind(sentence, role), f"{role} {speaker}" if speaker else role, "", sentence)
        for speaker, sentence in read_speech(text)
    ]


def _from_words(text: str) -> list[Found]:
    found = _from_speech(USER, text)
    if len(text) > VALUE_CHARS:
        found += [(Kind.IDENTIFIER, USER, name, value) for name, value in pairs(text)]
        found += [(Kind.USED, USER, group_of(word), word) for word in words(text)]
    return found


def _from_assistant(text: str) -> list[Found]:
    line = ASSISTANT
    decisions = find_lines(_DECISION_WORDS, text)
    found: list[Found] = [(Kind.DECIDED, line, "", each) for each in decisions]
    spoken = (
        _FENCED.sub("\n", text) if "```" in text else text
    )  # code is no sentence; its names are read below
    found += [fact for fact in _from_speech(ASSISTANT, spoken) if fact[3] not in decisions]
    if "`" in text or "**" in text:
        marked = [clean(code or bold) for code, bold in _MARKED.findall(text[: 2 * READ_CHARS])[:16]]
        # A plain word, such as `match` or `return`, says nothing without its sentence.
        marked = [each for each in marked if not (each.isalpha() and each.islower())]
        found += [(Kind.MENTIONED, line, "" if " " in each else group_of(each), each) for each in marked]
    found += [(Kind.MENTIONED, line, group_of(word), word) for word in words(text)]
    return found


@lru_cache(1_000)
def _read_call(name: str, arguments: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns the label of a call and its arguments' fields; remembered for the result of the call."""
    fields = list_fields(load_json(arguments))
    return call_label(name, fields), fields


def _from_call(name: str, arguments: str) -> list[Found]:
    line, fields = _read_call(name, arguments)
    bare = label(name)
    found: list[Found] = []
    for key, value in fields:
        if len(value) > VALUE_CHARS:
            found += [(Kind.USED, bare, group_of(word), word) for word in words(value)]
            continue
        kind = Kind.COMMAND if " " in value else Kind.ARGUMENT
        if len(value) < 6 and is_number(value):
            kind = Kind.DETAIL
        found.append((kind, line, key, value))
    return found


def _from_result(text: str, call: tuple[str, str] | None) -> list[Found]:
    name, arguments = call or ("tool", "")
    line, _ = _read_call(name, arguments)
    text = text.strip()
    if (values := load_json(text)) is not None:
        return _from_fields(list_fields(values), line)
    if len(text) <= VALUE_CHARS:
        value = clean(text)
        return [(Kind.ERROR if phrase_kind(value) is Kind.ERROR else Kind.RESULT, line, "", value)]
    if fields := scan_fields(text):
        if "\n" in text:  # a log of JSON lines may have others between them
            known = {name for name, _ in fields}
            fields += [pair for pair in pairs(text) if pair[0] not in known]
        return _from_fields(fields, line)
    found: list[Found] = [(Kind.ERROR, line, "", error) for error in find_lines(ERROR_WORDS, text)]
    found += [(field_kind(name, value), line, name, value) for name, value in pairs(text)]
    found += [(Kind.FOUND, line, group_of(word), word) for word in words(text)]
    return found


def _from_fields(fields: list[tuple[str, str]], line: str) -> list[Found]:
    found: list[Found] = []
    often: dict[str, int] = {}
    for key, value in fields:
        number = often[key] = often.get(key, 0) + 1
        if number > ROWS:  # a listing goes on
            continue
        if len(value) > VALUE_CHARS:  # a text in a field, as frameworks wrap the output of a function
            found += [(field_kind(name, each), line, name, each) for name, each in pairs(value)]
            found += [(Kind.FOUND, line, group_of(word), word) for word in words(value)]
        else:
            kind, value = field_kind(key, value), day_of(value)  # noqa: PLW2901 - the same field
            if number > ALIKE and kind in _NAMING and (is_hash(value) or is_measure(value)):
                kind = Kind.DETAIL  # the dates or hashes of a listing: its other fields tell more
            found.append((kind, line, key, value))
    return found
