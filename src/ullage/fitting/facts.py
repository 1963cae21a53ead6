"""What in a message is worth remembering when the message itself has to go.

A fact is one value with its name and the line it belongs to: something the user said, a call's
argument, a field of a JSON result, an identifier in a log, an error line. Facts are found without
a model, by who said them and by their shape, in time linear in the text; of a long output the head
and the tail are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias

import orjson


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that leaves the conversation, as the digest needs to see it."""

    role: str
    text: str
    order: int
    """Its index in the history."""
    calls: tuple[tuple[str, str], ...] = ()
    """The (name, arguments JSON) of each call that an assistant message makes."""
    call: tuple[str, str] | None = None
    """For a tool result: the (name, arguments JSON) of the call that it answers."""


class Kind(IntEnum):
    """How a value came to be known, the surest first; the digest weighs facts by it."""

    TOLD = 0
    """A sentence of the user's that names something: a number, an identifier, a proper name."""
    SAID = 1
    """Another sentence of the user's."""
    COMMAND = 2
    """An argument of several words: a shell command, a query, an address."""
    ARGUMENT = 3
    """An argument of one word."""
    IDENTIFIER = 4
    """A field of a result that a later call could name: an id, a date, a code."""
    FIELD = 5
    """Another field of a result."""
    DETAIL = 6
    """A plain number, or a short result as it stands."""
    ERROR = 7
    """A line that tells of an error."""
    DECIDED = 8
    """A line of the assistant's about a decision or an open task."""
    USED = 9
    """An identifier inside something long that the user or a call said."""
    MENTIONED = 10
    """An identifier, or words in code or bold type, in the assistant's prose."""
    FOUND = 11
    """An identifier in a tool's plain output."""


Found: TypeAlias = tuple[Kind, str, str, str]
"""A fact as it is read: (kind, line label, name or "", value)."""

VALUE_CHARS = 200
"""Longer values are read as text: their identifiers are kept, not they."""
READ_CHARS = 1_600
"""Of a longer text the head and the tail are read."""
TEXT_FACTS = 16
"""The most identifiers that one text gives."""
JSON_FACTS = 96
"""The most fields that one JSON text gives."""
SENTENCES = 12
"""The most sentences that one message of the user's gives."""
LABEL_CHARS = 100
SEPARATOR = " · "
"""Stands between the facts of a line, and in none of them."""
USER, ASSISTANT = "user", "assistant"
"""The labels of lines that quote them; the label of a tool's line has parentheses."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_INNER_DOT = re.compile(r" ·(?= )")
_WORD = re.compile(r"[A-Za-z0-9_#@./:+-]{5,}")
_MARKS = str.maketrans(dict.fromkeys(":,;!?()[]{}<>\"'`*=", " "))
_TELLING = re.compile(r"[0-9_/@]|[A-Za-z0-9]\.[A-Za-z0-9]|[a-z][A-Z]")
_IDENTIFIER = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z_@-])\S{5,}|[A-Z0-9]{5,}|\S+@\S+\.\S+")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\S+")
_NUMBER = re.compile(r"[\d.,:%$ +-]*")
_SPECIFIC = re.compile(r"[0-9_@/\x80-\U0010ffff]")
_PROPER = re.compile(r" [A-HJ-Z]")
_STOPS = (". ", "? ", "! ", "。", "！", "？")
_COURTESY = re.compile(
    r"\W*(?:thanks?|thank you|yes|no|ok(?:ay)?|sure|hi|hello|great|bye|good)\b[^0-9_]{0,60}\Z",
    re.IGNORECASE,
)
_MARKED = re.compile(r"`([^`\n]{3,80})`|\*\*([^*\n:]{3,60})\*\*")
_NOT_NAME = re.compile(r"[^\w.\-\[\]]+")
_DECISION_WORDS = ("- [ ] ", "todo", "decided", "instead of", "going with", "next step")
_ERROR_WORDS = ("error", "exception", "failed", "fatal", "cannot", "unable to", "no such file", "not found")


def find(taken: Taken) -> list[Found]:
    """The facts of one message, in the order in which they stand in it."""
    if taken.role == "user":
        return _from_user(taken.text)
    if taken.role == "tool":
        return _from_result(taken.text, taken.call)
    found = _from_assistant(taken.text) if taken.text else []
    for name, arguments in taken.calls:
        found += _from_call(name, arguments)
    return found


def one_line(text: str) -> str:
    """The text without control characters and line breaks of any kind."""
    return text if text.isprintable() else _UNPRINTABLE.sub(" ", text)


def clean(text: str) -> str:
    """The text as a value: on one line, its spaces collapsed, and without the separator."""
    if not text.isprintable():
        text = " ".join(one_line(text).split())
    if "·" in text:
        text = _INNER_DOT.sub(" -", text).strip(" ·")
    return text.strip()


def words(text: str, most: int = TEXT_FACTS) -> list[str]:
    """The identifier-like words of a text, each once, from its head and its tail."""
    if len(text) > READ_CHARS:
        head = words(text[: READ_CHARS // 2], most // 2)
        return list(dict.fromkeys(head + words(text[-READ_CHARS // 2 :], most - len(head))))
    kept: list[str] = []
    telling = _TELLING.search
    for word in dict.fromkeys(_WORD.findall(text)):
        if not word.isalpha() or not word[1:].islower():  # a plain word is the common case
            if not telling(word):
                continue
            bare = word.strip(".:-+") if word[-1] in ".:-+" else word
            if 5 <= len(bare) <= VALUE_CHARS:
                kept.append(bare)
                if len(kept) >= most:
                    break
    return kept


def spoken(text: str) -> list[str]:
    """All words of a text, without the marks around them."""
    return text.translate(_MARKS).split()


def _ends(text: str) -> str:
    if len(text) <= READ_CHARS:
        return text
    return f"{text[: READ_CHARS // 2]}\n{text[-READ_CHARS // 2 :]}"


def shape(value: str) -> Kind:
    """What kind of field a value makes, by how much it looks like something a call would name."""
    if " " in value:
        return Kind.FIELD
    if _IDENTIFIER.fullmatch(value):
        return Kind.DETAIL if _MOMENT.fullmatch(value) else Kind.IDENTIFIER
    if len(value) < 3 or _NUMBER.fullmatch(value):
        return Kind.DETAIL
    return Kind.FIELD


def sentence_kind(sentence: str) -> Kind:
    """Whether a sentence of the user's names something."""
    return Kind.TOLD if _SPECIFIC.search(sentence) or _PROPER.search(sentence) else Kind.SAID


def phrase_kind(phrase: str) -> Kind:
    """What a nameless text of a tool's line is: a command, an error or an identifier."""
    if " " not in phrase:
        return Kind.FOUND
    return Kind.COMMAND if _first(_ERROR_WORDS, phrase.lower()) < 0 else Kind.ERROR


@lru_cache(1_000)
def label(name: str, argument: str = "") -> str:
    """The label of a tool's line; it has parentheses, and it never has a colon and a space."""
    text = clean(f"{name}({argument})").replace(": ", ":")
    return text[:LABEL_CHARS].lstrip("| ").rstrip()


def _from_user(text: str) -> list[Found]:
    read = _ends(text)
    for stop in _STOPS:
        read = read.replace(stop, stop + "\n")
    sentences = [s for line in read.splitlines() if len(s := line.strip()) > 2 and s[0] + s[-1] != "<>"]
    if len(sentences) > SENTENCES:
        sentences = sentences[: SENTENCES - 3] + sentences[-3:]
    found: list[Found] = [
        (sentence_kind(s), USER, "", clean(s[:VALUE_CHARS]))
        for s in sentences
        if len(s) > 80 or not _COURTESY.match(s)
    ]
    if len(text) > VALUE_CHARS:
        found += [(Kind.USED, USER, "", word) for word in words(text)]
    return found


def _from_assistant(text: str) -> list[Found]:
    decisions = _lines_with(_DECISION_WORDS, text)
    found: list[Found] = [(Kind.DECIDED, ASSISTANT, "", line) for line in decisions]
    if "`" in text or "**" in text:
        marked = _MARKED.findall(text[: 2 * READ_CHARS])[:TEXT_FACTS]
        found += [(Kind.MENTIONED, ASSISTANT, "", clean(code or bold)) for code, bold in marked]
    found += [(Kind.MENTIONED, ASSISTANT, "", word) for word in words(text)]
    return found


def _from_call(name: str, arguments: str) -> list[Found]:
    pairs = _leaves(_loaded(arguments))
    line, bare = _call_label(name, pairs), label(name)
    found: list[Found] = []
    for key, value in pairs:
        if len(value) > VALUE_CHARS:
            found += [(Kind.USED, bare, "", word) for word in words(value)]
            continue
        kind = Kind.COMMAND if " " in value else Kind.ARGUMENT
        if len(value) < 6 and _NUMBER.fullmatch(value):
            kind = Kind.DETAIL
        found.append((kind, line, key, value))
    return found


def _call_label(name: str, pairs: list[tuple[str, str]]) -> str:
    """The label of a call's line: the tool, and the argument that best tells its calls apart."""
    weak = ""
    for key, value in pairs[:8]:
        if not 3 <= len(value) <= 60 or " " in value or _NUMBER.fullmatch(value):
            continue
        if "/" in value or _IDENTIFIER.fullmatch(value):
            return label(name, f"{key}={value}")
        if not weak and not value.islower():
            weak = f"{key}={value}"
    return label(name, weak)


def _from_result(text: str, call: tuple[str, str] | None) -> list[Found]:
    name, arguments = call or ("tool", "")
    if (values := _loaded(text.strip())) is not None:
        return _fields(values, _call_label(name, _leaves(_loaded(arguments), 8)))
    line = label(name)
    if len(text) <= VALUE_CHARS:
        kind = Kind.DETAIL if _first(_ERROR_WORDS, text.lower()) < 0 else Kind.ERROR
        return [(kind, line, "", clean(text))]
    found: list[Found] = [(Kind.ERROR, line, "", error) for error in _lines_with(_ERROR_WORDS, _ends(text))]
    found += [(Kind.FOUND, line, "", word) for word in words(text)]
    return found


def _fields(values: Any, line: str) -> list[Found]:
    found: list[Found] = []
    for key, value in _leaves(values):
        if len(value) > VALUE_CHARS:
            found += [(Kind.FOUND, line, "", word) for word in words(value)]
        else:
            found.append((shape(value), line, key, value))
    return found


def _loaded(text: str) -> Any:
    """The JSON object or list that a text is, else None."""
    if text[:1] + text[-1:] not in ("{}", "[]"):  # a log line may begin like a list
        return None
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict | list) else None


def _leaves(value: Any, most: int = JSON_FACTS) -> list[tuple[str, str]]:
    """The (key, value) pairs of nested JSON in order; the items of a list have the list's key."""
    found: list[tuple[str, str]] = []
    stack: list[tuple[str, Any]] = [("", value)]
    while stack and len(found) < most:
        key, value = stack.pop()
        kind = type(value)  # orjson gives no subclasses
        if kind is str:
            if value:
                found.append((key, clean(value) if len(value) <= VALUE_CHARS else value))
        elif kind is dict:
            if key and _keyed_by_data(value):
                found += [(key, clean(k)) for k in islice(value, most) if len(k) <= VALUE_CHARS]
                stack += [(key, v) for v in reversed(value.values())]
            else:
                stack += [(_name(k[:40]), v) for k, v in reversed(value.items())]
        elif kind is list:
            stack += [(key, v) for v in reversed(value)]
        elif kind is int or kind is float:
            found.append((key, str(value)))
    return found


@lru_cache(1_000)
def _name(key: str) -> str:
    """A JSON key as a name that can stand before an equals sign."""
    return _NOT_NAME.sub("_", key)


def _keyed_by_data(value: dict[str, Any]) -> bool:
    """Whether an object's keys are ids or dates rather than the names of fields."""
    first = next(iter(value), "")[:40]
    return sum(map(str.isdigit, first)) >= 2 and _IDENTIFIER.fullmatch(first) is not None


def _first(words: tuple[str, ...], lowered: str, start: int = 0) -> int:
    """Where the first of these words stands, -1 if none does."""
    return min([at for word in words if (at := lowered.find(word, start)) >= 0], default=-1)


def _lines_with(words: tuple[str, ...], text: str) -> list[str]:
    """The first lines of a text that hold one of these words, at most two."""
    lowered = text[:READ_CHARS].lower()
    found: list[str] = []
    at = _first(words, lowered)
    while 0 <= at < len(text) and len(found) < 2:
        found.append(_line_at(text, at))
        end = lowered.find("\n", at)
        at = _first(words, lowered, end) if end >= 0 else -1
    return found


def _line_at(text: str, at: int) -> str:
    """The line around a place, cut to what a value may hold."""
    start = max(text.rfind("\n", 0, at) + 1, at - VALUE_CHARS // 2)
    end = text.find("\n", max(at, start + 20))  # a heading alone says nothing
    line = text[start : min(end if end >= 0 else len(text), start + VALUE_CHARS)]
    return clean(" ".join(line.split()))
