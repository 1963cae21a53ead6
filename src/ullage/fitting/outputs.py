"""The facts in plain text: values with their names, paths and identifiers, and lines about errors.

A value that has a name keeps it: `name=value`, `name: value`, `"name": value`. Words without a name are
sorted into paths, files, names of code and addresses. In a listing the same shape comes again and again, so
only the first few of each shape are read. Times of day are left out.
"""

from __future__ import annotations

import re
from collections import Counter

from ullage.fitting.relevance import stop_words
from ullage.fitting.values import VALUE_CHARS, clean, ends_of, head_of, is_hash, is_moment, is_row

MOST_WORDS = 16
"""The most identifiers that are read from one text."""
MOST_PAIRS = 12
"""The most named values that are read from one text."""
ALIKE = 3
"""Maximum number of words of one shape, and of values with one name, that are read from a text."""
PAIRS_CHARS = 60_000
"""If a text has more characters, only its head and tail are searched for named values."""
PATHS, FILES, NAMES, ADDRESSES = "paths", "files", "names", "addresses"
"""The names under which words without a name of their own are listed."""
ERROR_WORDS = ("error", "exception", "failed", "fatal", "cannot", "unable to", "no such file", "not found")

_ASCII_WORD = re.compile(r"[A-Za-z0-9_#@./:+-]{5,}+")
# A letter of another alphabet before or behind is a part of the same word.
_LETTER = "\u00aa\u00b5\u00ba\u00c0-\u1fff"
# So is what follows a percent sign: `%2C171` is a comma and a number.
_WORD = re.compile(rf"(?<![\w%{_LETTER}]){_ASCII_WORD.pattern}(?![{_LETTER}])")
# A digit or a mark, a dot inside a word, a capital letter inside a word. The pattern begins with one set of
# characters, because such a pattern is searched for fastest.
_TELLING = re.compile(r"[0-9_/@.A-Z](?:(?<=[0-9_/@])|(?<=[A-Za-z0-9]\.)(?=[A-Za-z0-9])|(?<=[a-z][A-Z]))")
_JOINT = re.compile(r"([\w'-]+)[.:]([A-Z][\w'-]*)")
_STARTERS = frozenset({"finally", "first", "let", "maybe", "next", "note", "perhaps", "sorry", "try"})
# Sizes, durations and counts say nothing without a name; a longer number may be an id.
_MEASURE = re.compile(r"[$+-]?[0-9]{1,6}(?:[.,][0-9]+)*(?:[kKMGT]i?[bB]?|[bB]|[num]?s|min|h|x|%)?")
_TAG = re.compile(r"</[A-Za-z][\w.:-]*\s*>|<![A-Za-z][^<>]*>")  # not the file in `wc </etc/hosts`
_METHOD = re.compile(r"\.[a-z]+[A-Z]\w*")  # what is called on a value: `.toLowerCase`
_FILE = re.compile(
    r"[\w-][\w.-]*\.(?:bash|cc?|cfg|conf|cpp|cs|css|csv|db|env|exe|gif|go|gz|h|hpp|html?|ini|ipynb|java|jpe?g|jsx?"
    r"|json|jsonl|kt|lock|log|lua|md|mjs|mk|pdf|php|pl|png|proto|pyi?|rb|rs|rst|scss|sh|sql|sqlite|svg|swift|tar"
    r"|tex|toml|tsv|tsx?|txt|vue|xml|ya?ml|zip)"
)
_CODE_ENDS = ("{", "(", ";", ",")  # `} catch (error) {` reports nothing
_CODE = re.compile(r"[A-Za-z_][\w.:-]*")
_DIGIT = re.compile(r"[0-9]")
_DIGITS = b"0123456789"
# A value behind its sign; behind a colon it has a digit. The name in front is looked for when there is a
# value: this takes half the time of one pattern that begins with a name, because few words are names.
_PLAIN = r"""[^\s"'`,;(){}\[\]<>=|·]"""
_VALUE = re.compile(
    rf"""[=:](?<=[\w.\-"'][=:])(?:(?<==)|[ ](?=[ ]?["'`]?{_PLAIN}*\d))[ ]?["'`]?({_PLAIN}++)(?![(\[=])"""
)
_NAME = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]*+)["']?\Z""")
_NAME_CHARS = 40


def words(text: str, most: int = MOST_WORDS) -> list[str]:
    """Returns the words of a text's head and tail that look like identifiers, each once."""
    kept: list[str] = []
    shapes: dict[bytes, int] = {}
    telling = _TELLING.search
    text = _without_tags(ends_of(text))
    if not telling(text):
        return kept
    pattern = _ASCII_WORD if text.isascii() and "%" not in text else _WORD
    for word in dict.fromkeys(pattern.findall(text)):
        if word.isalpha() and word[1:].islower():  # a plain word is the common case
            continue
        bare = word.rstrip(".:-+").lstrip(":")
        if ":" in bare:
            bare = _without_next(bare)
        if not 5 <= len(bare) <= VALUE_CHARS:
            continue
        # A word has ASCII characters only, and bytes are translated much faster than text.
        shape = bare.encode().translate(None, _DIGITS)
        if len(shape) == len(bare):
            if not telling(word):
                continue
        elif is_moment(bare) or _MEASURE.fullmatch(bare):
            continue
        else:
            shape = b"#" if is_hash(bare) else shape
            seen = shapes[shape] = shapes.get(shape, 0) + 1
            if seen > ALIKE:  # a listing goes on with the same shape
                continue
        if _is_no_name(bare):
            continue
        kept.append(bare)
        if len(kept) >= most:
            break
    return kept


def _without_tags(text: str) -> str:
    """Returns a page without its closing tags and declarations, which would pass for paths."""
    return _TAG.sub(" ", text) if "</" in text or "<!" in text else text


def _without_next(word: str) -> str:
    """Returns a file's name without the word that a search prints behind it: `a.ts:import` is `a.ts`."""
    path, _, rest = word.partition(":")
    return path if rest[:1].isalpha() and _FILE.fullmatch(path.rpartition("/")[2]) else word


def _is_joint(word: str) -> bool:
    """Returns True if a word is the end of a sentence and the start of the next one, without a space."""
    joint = _JOINT.fullmatch(word)
    return joint is not None and (joint[2].lower() in stop_words() or joint[2].lower() in _STARTERS)


def _is_no_name(word: str) -> bool:
    """Returns True for words that marks only hold together, and for a method: `.toLowerCase`."""
    if "/" in word and _is_choice(word):
        return True
    return ("." in word or ":" in word) and (_is_joint(word) or _METHOD.fullmatch(word) is not None)


def _is_choice(word: str) -> bool:
    """Returns True for words that a slash separates: "and/or", "Yes/No", `s/old/new`."""
    if word.startswith("s/"):
        return True
    if not word.replace("/", "").isalpha():  # most paths have a dot or a digit
        return False
    parts = word.split("/")
    return all(map(str.isalpha, parts)) and (
        any(part.lower() in stop_words() for part in parts) or all(map(str.istitle, parts))
    )


def group_of(word: str) -> str:
    """Returns the name under which an unnamed word is listed; empty for codes and numbers."""
    if "@" in word[1:]:
        return ADDRESSES
    if "/" in word:
        return PATHS if word.lower() != word.upper() else ""
    if "." in word and _FILE.fullmatch(word) and not word[0].isdigit():
        return FILES
    if _CODE.fullmatch(word) and ("_" in word or not _DIGIT.search(word)):
        return NAMES
    return ""


def pairs(text: str) -> list[tuple[str, str]]:
    """Returns the named values of a text with their names; names that are rare in the text come first."""
    if "=" not in text and ": " not in text:
        return []
    found = _find_named_values(ends_of(text, PAIRS_CHARS))
    often = Counter([name for name, _ in found])
    first: dict[tuple[str, str], None] = {}
    taken: dict[str, int] = {}
    for name, value in found:
        number = taken.get(name, 0)
        if number == ALIKE:  # a listing goes on with the same name
            continue
        bare = value.rstrip(".:")
        if len(bare) > VALUE_CHARS or not bare or is_moment(bare):
            continue
        # `prefix=self.prefix` tells nothing, and the word in front of a colon may be no name.
        if bare.rpartition(".")[2] == name or name.lower() in stop_words():
            continue
        taken[name] = number + 1
        first[name, bare] = None
    ranked = sorted(first, key=lambda pair: often[pair[0]] > ALIKE)
    return ranked[:MOST_PAIRS]


def _find_named_values(text: str) -> list[tuple[str, str]]:
    """Returns all named values with their names, in the order of the text."""
    found: list[tuple[str, str]] = []
    at = 0
    while value := _VALUE.search(text, at):
        sign = value.start()
        # A name and its closing quotation mark; the pattern sees the character before, so none is cut short.
        name = _NAME.search(text, max(at, sign - _NAME_CHARS - 1), sign)
        if name:
            found.append((name[1], value[1]))
            at = value.end()
        else:
            at = sign + 1
    return found


def find_lines(wanted: tuple[str, ...], text: str) -> list[str]:
    """Returns the first lines of a text that contain one of these words, at most two."""
    text = ends_of(text)
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters grow in lower case, and their lines would be off
        text = lowered
    found: list[str] = []
    at = find_first(wanted, lowered)
    while 0 <= at < len(text) and len(found) < 2:
        line = _line_at(text, at)
        if not line.endswith(_CODE_ENDS) and not _is_listed(line):
            found.append(line)
        end = lowered.find("\n", at)
        at = find_first(wanted, lowered, end) if end >= 0 else -1
    return found


def _is_listed(line: str) -> bool:
    """Returns True for files in a listing, such as `error.c`: their names report nothing."""
    return is_row(line) or all(_FILE.fullmatch(word.rpartition("/")[2]) for word in line.split())


def find_first(wanted: tuple[str, ...], lowered: str, start: int = 0) -> int:
    """Returns the position of the first of these words, or -1."""
    first = -1
    for word in wanted:
        # Behind the first one that was found nothing has to be searched.
        at = lowered.find(word, start) if first < 0 else lowered.find(word, start, first)
        if at >= 0:
            first = at
    return first


def _line_at(text: str, at: int) -> str:
    """Returns the line around a position, cut to the longest value."""
    start = text.rfind("\n", 0, at) + 1
    if at - start > VALUE_CHARS // 2:
        start = text.find(" ", at - VALUE_CHARS // 2, at) + 1 or at
    end = text.find("\n", max(at, start + 20))  # a heading alone says nothing
    line = " ".join(text[start : end if end >= 0 else len(text)].split())
    return clean(head_of(line, VALUE_CHARS))
