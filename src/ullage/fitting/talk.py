"""Sentences of plain talk, and the information in each.

A sentence tells by the words that say what it is about: names, numbers and long words more than common ones.
Courtesies and short questions back tell nothing. A number is enough for a statement to tell something, and an
address, a path or an identifier for any sentence: nobody can guess them.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from ullage.fitting.relevance import stop_words
from ullage.fitting.values import VALUE_CHARS, clean, ends_of, head_of, is_row

LEAST = 3.0
"""Least information of a sentence that is kept."""
QUESTION = 0.4
"""Factor for the information of a question, because the answer repeats it, and of a heading: "Steps:"."""
MOST = 12
"""Most sentences that are kept of one message."""

COURTESIES = frozenset({
    "absolutely", "agreed", "amazing", "aw", "awesome", "aww", "bye", "cheers", "congrats",
    "congratulations", "cool", "exactly", "glad", "good", "goodbye", "great", "haha", "hello", "hey",
    "hi", "hooray", "lol", "nice", "no", "nope", "oh", "ok", "okay", "sorry", "sounds", "sure", "thank",
    "thanks", "totally", "welcome", "whoa", "wonderful", "woohoo", "wow", "yay", "yeah", "yep", "yes",
    "yup",
})  # fmt: skip
"""First words of courtesies, which carry little information."""

SPECIFIC = re.compile(r"[^\x00-.:-?I\[-^`a-\x7f](?:(?<=[^A-Z])|(?<= [A-Z]))")
"""Matches a number, an identifier or a proper name in a sentence."""

# The end of a sentence. It begins with one set of characters, because such a pattern is searched for fastest.
_STOP = re.compile(r"[.!?…।؟۔。！？；\n](?:(?<=[。！？；\n])|[\"')\]]*\s+)")
# A full stop behind one of these ends no sentence; neither does one behind an initial: "J. Smith".
_SHORTENED = frozenset({
    "approx", "bzw", "ca", "dr", "e.g", "i.e", "mr", "mrs", "ms", "nr", "prof", "st", "vs",
})  # fmt: skip
_MONTH = re.compile(
    r"\d\.\s+(?:Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b"
)
# Marks of headings, lists and quotations, and the number of a list's item.
_MARKS = re.compile(r"\s*(?:(?:[#>*•|-]+|\d{1,2}[.)])\s+)*(?:[#>*•|-]*\s*\d{1,2}[.)]\s*$)?")
_WORD = re.compile(r"[^\W_][\w'’.:/@#-]*")
# An address, a path or a dotted name, a name in code, a word with digits in it.
_IDENTIFIER = re.compile(
    r"\w@\w|\w/[\w-]+[/.]\w|\b[a-z]\w+\.[a-z]\w+|\w_\w|[A-Za-z][#-]?\d{2}|#\w?\d|\d{6}", re.ASCII
)
_DIGIT = re.compile(r"\d")
_LISTED = 3  # a line with more commas that ends with one is a piece of a list
# A time of day to the second, with the day in front of it.
_SECOND = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?"
    r"(?:\d{1,4}[-./ ](?:\d\d|[A-Z][a-z]{2,8})[-./ ]\d{2,4}[T ,]*)?"
    r"\d{1,2}:\d\d:\d\d(?:[.,]\d+)?(?: ?[AP]M)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
)
_LETTER = re.compile(r"[^\W\d_]")
_ASKING = frozenset("?？؟")
_ANNOUNCING = frozenset(":：")
_CALLED = re.compile(r", [A-Z][\w'-]*[.!?]?$")
_WIDE = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_WIDE_COURTESY = re.compile(
    "你好|您好|谢谢|多谢|感谢|不客气|不用谢|再见|拜拜|请问|麻烦你?|好的|好呢|好滴|好极了|太好了|真好|嗯+|哦|是吗|可以吗"
    "|没问题|帮我|帮您|请稍等|祝[您你]"
)
# The date and the name of the speaker at the head of a message.
_DATE = re.compile(
    r"[\[(]?(?:\d{1,2}:\d\d ?(?:[ap]m)?,? (?:on )?)?"
    r"(\d{4}-\d\d-\d\d|\d{1,2} [A-Z][a-z]{2,8},? \d{4}|[A-Z][a-z]{2,8} \d{1,2},? \d{4}"
    r"|\d{4}年\d{1,2}月\d{1,2}日)[\])]?:?\s*"
)
# What a log counts, as in "Tokens: 20,069 sent", is not a name, and neither is the name of a field that has a
# path or code behind it: "File: `src/main.py`".
_NAME = re.compile(
    r"(?!\w*(?:Error|Exception|Warning|Note): )([A-Z][\w'-]{1,20}): +(?=[^\s\d$`/<{\[])(?!\S+[/=_]\S)"
)


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, in order."""
    parts: list[str] = []
    at = 0
    for stop in _STOP.finditer(text):
        if stop[0][0] == "." and not _ends(text, stop.start()):
            continue
        parts.append(text[at : stop.start() + 1])
        at = stop.end()
    parts.append(text[at:])
    return [bare for part in parts if len(bare := _without_marks(part.strip())) > 2]


def _ends(text: str, dot: int) -> bool:
    """Returns False for the full stop of an abbreviation, of an initial, or of a date: "am 14. Juni"."""
    before = text[max(0, dot - 7) : dot].split()
    word = before[-1].lstrip("(\"'") if before else ""
    if "\n" in text[dot : dot + 2]:
        return True
    if len(word) == 1:
        return not word.isupper() or word == "I"
    return word.lower() not in _SHORTENED and not _MONTH.match(text, dot - 1)


def _without_marks(part: str) -> str:
    """Returns a sentence without the marks of a heading, a list or a quotation in front of it."""
    return part if part[:1].isalpha() else _MARKS.sub("", part, 1).strip()


class Told(NamedTuple):
    """A sentence with its speaker and date, if the text has them."""

    speaker: str
    """The name and the date at the head of the line: "Ada, 17 August 2023", "Ada", "2023-08-17" or ""."""
    sentence: str


def read_speech(text: str) -> list[Told]:
    """Returns the sentences of a message that carry information; of many, the first and the last."""
    found: list[Told] = []
    name = date = ""
    for number, line in enumerate(ends_of(text).split("\n")):
        if not line:
            continue
        at = 0
        if head := _DATE.match(line):
            date, at = head[1], head.end()
        # If the first line names no speaker, no line does: "Models: a, b" is a line of a log.
        if (number == 0 or name) and (head := _NAME.match(line, at)):
            name, at = head[1], head.end()
        speaker = f"{name}, {date}" if name and date else name or date
        found += [
            Told(speaker, short)
            for s in sentences(line[at:] if at else line)
            if not _is_code(s)
            and (information(s) >= LEAST or is_standing(s))
            and (short := clean(head_of(s, VALUE_CHARS)))
            if (_LETTER.search(s) or _IDENTIFIER.search(s))
            and not _is_moment(s)  # a bare number tells nothing
        ]
    return found if len(found) <= MOST else found[: MOST - 3] + found[-3:]


def is_courtesy(sentence: str) -> bool:
    """Returns True for a statement that only greets, thanks or agrees: it names nothing and asks nothing."""
    first = _WORD.search(sentence)
    if first is None or sentence[-1:] in _ASKING or "?" in sentence:
        return False
    return first[0].lower().rstrip(".") in COURTESIES and not SPECIFIC.search(sentence, first.end())


@lru_cache(4_000)
def is_standing(sentence: str) -> bool:
    """Returns True for a statement that holds until the end of a conversation: "I am allergic to nuts"."""
    if sentence[-1:] in _ASKING:
        return False
    lowered = sentence.lower().replace("’", "'")
    phrases = _bare_phrases(in_ascii=lowered.isascii())
    # Nearly all sentences contain none of the phrases, which is found out much faster than by the pattern.
    return any(map(lowered.__contains__, phrases)) and _standing_pattern().search(lowered) is not None


@cache
def _standing_phrases() -> list[str]:
    """Returns the phrases of `standing_words.txt`."""
    lines = Path(__file__).with_name("standing_words.txt").read_text("utf-8").splitlines()
    return [phrase for line in lines if not line.startswith("#") for phrase in line.split(", ")]


@cache
def _bare_phrases(*, in_ascii: bool) -> tuple[str, ...]:
    """Returns the phrases without stars: all, or those in ASCII, as a text in ASCII can have no others."""
    bare = [phrase.strip("*") for phrase in _standing_phrases()]
    return tuple([phrase for phrase in bare if not in_ascii or phrase.isascii()])


@cache
def _standing_pattern() -> re.Pattern[str]:
    """Returns the pattern of the phrases with the bounds of words."""
    bounded: list[str] = []
    inside: list[str] = []  # some scripts have no bounds of words to look for
    for phrase in _standing_phrases():
        is_joined = _WIDE.search(phrase) or "가" <= phrase[0] <= "힣"
        (inside if is_joined else bounded).append(re.escape(phrase).replace(r"\*", r"\w*"))
    return re.compile(rf"(?<!\w)(?:{'|'.join(bounded)})(?!\w)|{'|'.join(inside)}")


def _is_moment(sentence: str) -> bool:
    """Returns True for the head of a log or a mail that tells only when: "Date: Wed, 5 Mar 2025 09:12:44"."""
    if sentence.count(":") < 2:  # a time of day to the second has two, and the pattern is searched for slowly
        return False
    moment = _SECOND.search(sentence)
    return moment is not None and information(_SECOND.sub("", sentence)) < LEAST + 1.6


def _is_code(sentence: str) -> bool:
    """Returns True for a tag, a row of `ls -l`, and for code or a list that goes on in the next line."""
    first, last = sentence[0], sentence[-1]
    if last in "([{=\\":
        return True
    if last == "," and (" " not in sentence or sentence.count(",") > _LISTED):
        return True
    return (last == ">" and first == "<") or is_row(sentence)


@lru_cache(4_000)
def information(sentence: str) -> float:
    """Returns the information in a sentence: about 1 for each word that carries meaning."""
    found = _WORD.findall(sentence)
    most = sum(map(_weight, dict.fromkeys(found)))
    is_courtesy = False
    if found:
        first, last = found[0], found[-1]
        lowered = first.lower()
        if lowered != first:  # each sentence begins with a capital letter
            most += _weight(lowered) - _weight(first)
        is_courtesy = lowered.rstrip(".") in COURTESIES
        # "That is great, Ada!": the name behind the comma only says who is spoken to.
        if len(found) > 1 and last[0].isupper() and _CALLED.search(sentence):
            most -= _weight(last)
    if not sentence.isascii():
        most += len(_WIDE.findall(_WIDE_COURTESY.sub("", sentence))) / 3
    if is_courtesy or sentence[-1:] in _ASKING or sentence.rstrip("*_ ")[-1:] in _ANNOUNCING:
        most *= QUESTION
    elif most < LEAST and _DIGIT.search(sentence):
        most = LEAST
    return LEAST if most < LEAST and _IDENTIFIER.search(sentence) else most


@lru_cache(4_000)
def subjects(sentence: str) -> frozenset[str]:
    """Returns the subject words of a sentence, in lower case."""
    found = [word.lower() for word in _WORD.findall(sentence) if _weight(word)]
    return frozenset(found if sentence.isascii() else found + _WIDE.findall(sentence))


@lru_cache(20_000)
def _weight(word: str) -> float:
    lowered = word.lower()
    if lowered in stop_words() or lowered.partition("'")[0] in stop_words():
        return 0.0
    if _DIGIT.search(word):
        return 2.0
    if not word.isascii() and _WIDE.search(word):
        return 0.0  # where no spaces stand between words, characters are counted
    return 1.6 if word[0].isupper() else 0.5 + min(len(word), 10) / 10
