"""The digest: the most useful facts of evicted messages, in bounded room.

A digest is a frozen pool of weighed facts. `absorb` adds the facts of messages that leave, `write`
writes the best of them as a quoted block for the system message, `parse` reads such a block back.
A fact weighs by who said it, how often and how lately, and less by its length. All weights fade at
the same rate, so that nothing in the pool has to be weighed again as time passes.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from math import log
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from ullage.fitting.block import (
    NAMED,
    clean_task,
    read_block,
    read_quoted_lines,
    read_value,
    write_block,
    write_lines,
)
from ullage.fitting.facts import (
    USER,
    Kind,
    Taken,
    field_kind,
    find,
    phrase_kind,
    sentence_kind,
    speaker_of,
)
from ullage.fitting.outputs import ADDRESSES, FILES, NAMES, PATHS
from ullage.fitting.talk import information, is_standing, subjects
from ullage.fitting.values import SEPARATOR, VALUE_CHARS, head_of, tail_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "EMPTY",
    "STEADY",
    "Digest",
    "Fact",
    "Taken",
    "absorb",
    "estimate_block",
    "parse",
    "task_block",
    "write",
]


Fact: TypeAlias = tuple[float, str, str, str, int, int, Kind]
"""A value that is remembered, as (weight, value, name, line, order, seen, kind).

`line` is the label of the line that the value belongs to, `order` its position in the conversation: a line
lists its facts in this order. `seen` is the number of messages that contain the value, 0 if it was read from
a block. A trim makes and sorts hundreds of facts; plain tuples take two thirds of the time of named ones."""


@dataclass(frozen=True, slots=True)
class Digest:
    """The facts of all evicted messages, bounded in number."""

    task: str | None = None
    """The first user message, already shortened by the caller."""
    facts: tuple[Fact, ...] = ()
    """The pool, the heaviest fact first. No two facts have the same value."""
    written: tuple[str, ...] = ()
    """The quoted lines of the block as it was written last."""
    values: frozenset[str] = frozenset()
    """The values in these lines."""


EMPTY = Digest()

MOST_FACTS = 2_000
"""Most facts in the pool; if there are more, the lightest quarter is dropped."""
FEWEST_FACTS = 500
"""The same for the smallest block."""
TOKENS_A_FACT = 8
"""The pool has one fact for so many tokens of the block. The block itself has room for about half of them."""
LINE_SHARE = 0.5
"""Largest share of the block for the facts of one label; more only if the others leave room."""
FEW = 256
"""Up to this many facts, a block is written again with more facts until it is full."""
STEADY = 1_000
"""A block with room for this many tokens is continued and not rewritten, for the prompt cache."""
GROWTH = 0.08
"""The share of the room by which a block is continued at a time, until it is full."""
FRESH = 0.6
"""The share of the room that is filled when such a block is rewritten."""
MISSES = 8
"""After this many facts that do not fit, lighter ones are not tried."""

# What a sighting is worth: the logarithm of how likely such a value is to be needed again.
WORTH: dict[Kind, float] = {
    Kind.TOLD: 2.4,
    Kind.SAID: 1.8,
    Kind.COMMAND: 2.6,
    Kind.ARGUMENT: 3.0,
    Kind.KEY: 3.2,
    Kind.IDENTIFIER: 2.8,
    Kind.RESULT: 1.6,
    Kind.FIELD: 1.0,
    Kind.DETAIL: 0.3,
    Kind.ERROR: 1.2,
    Kind.DECIDED: 1.4,
    Kind.REPORTED: 1.8,
    Kind.STATED: 1.4,
    Kind.USED: 1.6,
    Kind.MENTIONED: 1.2,
    Kind.FOUND: 0.8,
}
FADING = 0.004
"""Loss of weight for each message that came after a fact."""
AGAIN = 1.0
"""The n-th occurrence of a fact adds an n-th of this to its weight."""
DEARNESS = 0.85
"""Exponent of a value's length: a longer value must weigh more to be chosen."""
TELLING = 5.0
"""Information of a sentence whose weight is exactly the weight of its kind."""
LASTING = 2.0
"""More weight of what the user says to hold until the end, so that it outlives hundreds of messages."""
CROWDING = 0.1
"""Exponent by which the n-th fact of a message weighs less than the first one."""

REPEATED = 0.4
"""If at most this share of a sentence's subjects is new, the sentence is a repetition."""
MOST_ALIKE: dict[Kind, int] = {
    Kind.KEY: 24,
    Kind.DETAIL: 4,
    Kind.USED: 48,
    Kind.MENTIONED: 48,
    Kind.FOUND: 48,
}
"""Most values with one name in one line, by kind: a longer list of ids, numbers or names tells nothing."""
SHAPES = 3
"""Most sentences or commands that differ only in their numbers, as the lines of a log do."""
BARE = 3
"""Most unnamed values of one label; a longer list would say nothing."""

_OWN = frozenset({Kind.TOLD, Kind.SAID})
_SENTENCES = frozenset({Kind.TOLD, Kind.SAID, Kind.REPORTED, Kind.STATED})
_REPEATING = _SENTENCES | {Kind.RESULT, Kind.ERROR, Kind.DECIDED}
_PHRASES = _SENTENCES | {Kind.COMMAND, Kind.RESULT, Kind.ERROR, Kind.DECIDED}
_GROUPS = (PATHS, FILES, NAMES, ADDRESSES)
_STRIDE = 1_000  # places that a message has for its facts
_worth = [WORTH[kind] for kind in Kind]
_dearness = [DEARNESS * log(12 + chars) for chars in range(VALUE_CHARS + 1)]
_crowding = [CROWDING * log(1 + before) for before in range(_STRIDE)]
_weight, _value, _order = itemgetter(0), itemgetter(1), itemgetter(4)
_MARKS = str.maketrans(dict.fromkeys("$:,;!?()[]{}<>\"'`*=", " "))
_NO_DIGITS = str.maketrans("", "", "0123456789")
_DIGIT = re.compile(r"\d")  # the number in a sentence may belong to something else
_SHOWN = re.compile(r"\(([\w.\-\[\]]{1,40})=(.{1,85})\)$")


def absorb(digest: Digest, taken: Sequence[Taken], room: int | None = None) -> Digest:
    """Returns the digest with the facts of these messages added.

    `room` is the size of the block in tokens. A small block has a small pool; None allows the largest pool.
    """
    most = MOST_FACTS if room is None else min(MOST_FACTS, max(FEWEST_FACTS, room // TOKENS_A_FACT))
    pool = {fact[1]: fact for fact in digest.facts}
    for message in taken:
        _note(pool, message)
        if len(pool) > 2 * most:
            pool = {fact[1]: fact for fact in _rank_facts(pool, most)}
    return replace(digest, facts=_rank_facts(pool, most))


def _rank_facts(pool: dict[str, Fact], most: int = MOST_FACTS) -> tuple[Fact, ...]:
    """Returns the facts of a pool, the heaviest first; without the lightest ones if there are too many."""
    # Most of the pool is in order already, and a sort takes little time then.
    ranked = sorted(pool.values(), key=_weight, reverse=True)
    if len(ranked) > most:
        del ranked[most * 3 // 4 :]
    return tuple(ranked)


def _note(pool: dict[str, Fact], message: Taken) -> None:
    recent = FADING * message.order
    first = place = message.order * _STRIDE
    for kind, line, name, value in find(message)[: _STRIDE - 1]:
        if not value:
            continue
        if not name and "=" in value and (named := NAMED.fullmatch(value)):
            name, value = named.groups()  # noqa: PLW2901 - the same fact, read as the block will be
        place += 1
        weight = _worth[kind] + recent - _dearness[len(value)] - _crowding[place - first]
        if kind in _SENTENCES:
            weight += log(max(1.0, information(value)) / TELLING)
            if kind in _OWN and is_standing(value):
                weight += LASTING
        old = pool.get(value)
        if old is None:
            pool[value] = (weight, value, name, line, place, 1, kind)
            continue
        before, _, old_name, old_line, old_place, seen, old_kind = old
        weight = max(before, weight)
        if seen == 0:
            seen = 1
        if not first < old_place < first + _STRIDE:  # in another message
            seen += 1
            if kind not in _SENTENCES:  # a sentence that is said again says nothing new
                weight += AGAIN / seen
        if kind <= old_kind:
            pool[value] = (weight, value, name or old_name, line, place, seen, kind)
        else:
            pool[value] = (weight, value, old_name, old_line, old_place, seen, old_kind)


def write(
    digest: Digest, room: int, count: Callable[[str], int], *, steady: bool = True
) -> tuple[str, Digest]:
    """Returns the block, in at most `room` tokens, and the digest that remembers it.

    The block is empty if nothing useful fits. With `steady`, a large block is continued at its end and
    rewritten only when it is full, so that most of a request's prefix survives a trim.
    """
    steady = steady and room >= STEADY
    task = _shorten_task(digest.task, room, count)
    if task is None:
        return "", replace(digest, written=(), values=frozenset())
    ranked: Sequence[Fact] = digest.facts
    if steady:
        continued = _continue_block(digest, task, ranked, room, count)
        if continued is not None:
            return continued
    if told := " ".join(task.split()):
        ranked = [fact for fact in ranked if not _is_told(fact, told)]
    chosen, lines = _fill_block(task, ranked, room, FRESH if steady else 1.0, count)
    values = frozenset(map(_value, chosen))
    return write_block(task, lines), replace(digest, written=lines, values=values)


def estimate_block(digest: Digest, room: int, tokens: int, *, steady: bool = True) -> int:
    """Estimates how many of `room` tokens the next block will use; the last one uses `tokens`."""
    if not steady or room < STEADY:
        return room
    return int(FRESH * room if _must_rewrite(digest, tokens, room) else tokens + GROWTH * room)


def _must_rewrite(digest: Digest, tokens: int, room: int) -> bool:
    """Returns True if a block of this size must be rewritten, because it is full or empty."""
    return not digest.values or tokens > room * (1 - GROWTH)


def _is_told(fact: Fact, task: str) -> bool:
    """Returns True if the user says this in the task, which stands above the facts."""
    _, value, _, line, _, _, _ = fact
    return line[:4] == USER and value in task


def _continue_block(
    digest: Digest, task: str, ranked: Sequence[Fact], room: int, count: Callable[[str], int]
) -> tuple[str, Digest] | None:
    """Returns the block continued with the heaviest new facts; None if it is full."""
    before = write_block(task, digest.written)
    tokens = count(before)
    if _must_rewrite(digest, tokens, room):
        return None
    told = " ".join(task.split())
    chars = int(GROWTH * room * len(before) / tokens)
    for _ in range(3):
        # Only the heaviest facts are looked at, not all of them.
        new = (fact for fact in ranked if fact[1] not in digest.values and not _is_told(fact, told))
        chosen, _ = _choose(new, chars)
        lines = (*digest.written, *_lines(chosen))
        text = write_block(task, lines)
        if count(text) <= room:
            values = digest.values.union(map(_value, chosen))
            return text, replace(digest, written=lines, values=values)
        chars = chars * 2 // 3
    return None


def _fill_block(
    task: str, ranked: Sequence[Fact], room: int, share: float, count: Callable[[str], int]
) -> tuple[list[Fact], tuple[str, ...]]:
    """Returns the heaviest facts that fill about this share of the room behind the task, and their lines."""
    best: tuple[list[Fact], tuple[str, ...]] = ([], ())
    frame = count(write_block(task, ["."]))
    aim = max(0, int(room * share) - frame)
    chars = _first_guess(ranked, aim, count)
    enough = 0.95 if share == 1 or len(ranked) <= FEW else 0.8
    for _ in range(5):
        chosen, spent = _choose(ranked, chars)
        if not chosen:
            break
        lines = tuple(_lines(chosen))
        tokens = count(write_block(task, lines))
        if tokens <= frame + aim:
            best = chosen, lines
            if chars == sys.maxsize or tokens >= enough * (frame + aim):
                break
        chars = int(spent * (1 + enough) / 2 * aim / max(1, tokens - frame))
    return best


def _first_guess(ranked: Sequence[Fact], room: int, count: Callable[[str], int]) -> int:
    """Estimates from a sample how many characters of facts fit into `room` tokens."""
    if len(ranked) <= FEW:
        return sys.maxsize  # perhaps all of them
    likely = ranked[: room // 8]
    sample = SEPARATOR.join([f"{name}={value}" for _, value, name, *_ in likely[:: 1 + len(likely) // 80]])
    chars = room * len(sample) // max(1, count(sample))
    return sys.maxsize if sum([len(fact[1]) for fact in ranked]) < chars else int(0.9 * chars)


def _choose(ranked: Iterable[Fact], chars: int) -> tuple[list[Fact], int]:
    """Returns the heaviest facts that fit into about this many characters, and their characters."""
    chosen: list[Fact] = []
    spent: dict[str, int] = {}
    chosen_before = _Chosen()
    waiting: list[Fact] = []
    left = chars
    for most, facts in ((int(chars * LINE_SHARE), ranked), (chars, waiting)):
        misses = 0
        for fact in facts:
            _, value, name, line, _, _, _ = fact
            cost = len(value) + len(name) + 3
            before = spent.get(line, 0)
            if not before:
                if not line.endswith(f"={value})"):  # else the label and the fact are one
                    cost += len(line) + 4
            elif before > most:
                waiting.append(fact)
                continue
            if cost > left:
                misses += 1
                if misses > MISSES:
                    break
                continue
            if chosen_before.tell(fact):
                continue
            left -= cost
            spent[line] = before + cost
            chosen.append(fact)
    return _without_echoes(chosen), chars - left


class _Chosen:
    """The chosen facts, by what they say: a fact that adds nothing to them is left out."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()
        self._times: Counter[tuple[str, str]] = Counter()

    def tell(self, fact: Fact) -> bool:
        """Returns True if another fact like this one tells nothing; if not, the fact counts as chosen."""
        _, value, name, line, _, seen, kind = fact
        if not name and " " not in value and value.isascii():
            return self._is_full(line, "", BARE)
        if (kind is Kind.COMMAND or (kind is Kind.ARGUMENT and "(" in value)) and _DIGIT.search(value):
            return self._is_full(line.partition("(")[0], value.translate(_NO_DIGITS), SHAPES)
        if kind in _REPEATING and seen:
            if _DIGIT.search(value):
                return self._is_full(line, value.translate(_NO_DIGITS), SHAPES)
            return kind in _SENTENCES and self._is_repeated(value)
        most = MOST_ALIKE.get(kind)
        return most is not None and name != "" and self._is_full(line, name, most)

    def _is_repeated(self, sentence: str) -> bool:
        about = subjects(sentence)
        if about and len(about - self._subjects) <= REPEATED * len(about):
            return True
        self._subjects |= about
        return False

    def _is_full(self, line: str, name: str, most: int) -> bool:
        times = self._times[line, name]
        self._times[line, name] = times + 1
        return times >= most


def _without_echoes(chosen: list[Fact]) -> list[Fact]:
    """Returns the facts without the unnamed words that another fact, such as a sentence, contains."""
    text = " ".join([value for _, value, _, _, _, _, kind in chosen if kind in _PHRASES])
    told = {*text.split(), *text.translate(_MARKS).split()}

    def is_echo(value: str) -> bool:
        return value in told or (" " in value and value in text)

    return [fact for fact in chosen if fact[6] < Kind.USED or not fact[5] or not is_echo(fact[1])]


def _lines(chosen: Sequence[Fact]) -> Iterator[str]:
    """Yields the lines of the facts, the line with the heaviest fact first."""
    lines: dict[str, list[Fact]] = {}
    for fact in chosen:
        line = fact[3]
        if line in lines:
            lines[line].append(fact)
        else:
            lines[line] = [fact]
    for title in [title for title, facts in lines.items() if len(facts) == 1]:
        if read_value(title) == lines[title][0][1]:  # the label says it all: one line for all such calls
            lines.setdefault(f"{title.partition('(')[0]}()", []).extend(lines.pop(title))
    for title, facts in lines.items():
        facts.sort(key=_order)
        yield from write_lines(title, [(name, value) for _, value, name, *_ in sorted(facts, key=_group)])


def _group(fact: Fact) -> tuple[int, str]:
    """Returns the sort key of a fact in its line: texts, then words by group, then values with names.

    A command stands among the texts, in front of its result.
    """
    _, value, name, _, _, _, kind = fact
    if name in _GROUPS:
        folder = value.rpartition("/")[0] if name == PATHS else ""
        return 1 + _GROUPS.index(name), folder
    return (9, "") if name and kind is not Kind.COMMAND else (0, "")


def task_block(task: str, *, facts: bool) -> str:
    """Returns a block without facts: the task, and the fence of the facts if there will be some."""
    return write_block(clean_task(task), [""] if facts else ())


def _shorten_task(task: str | None, room: int, count: Callable[[str], int]) -> str | None:
    """Returns the task, or its head and tail if it does not fit; None if these do not fit either."""
    text = clean_task(task)
    for _ in range(6):
        if not text:
            return ""
        tokens = count(write_block(text, ()))
        if tokens <= room:
            return text
        half = int(len(text) * (room / tokens) * 0.4)
        if half < 20:
            break
        text = f"{head_of(text, half)}\n…\n{tail_of(text, half)}"
    return None


def parse(block: str) -> Digest:
    """Returns the digest of a rendered block. Earlier lines get a higher weight."""
    task, lines = read_block(block)
    pool: dict[str, Fact] = {}
    titles: list[Fact] = []
    place = -_STRIDE * MOST_FACTS
    heaviest = max(_worth)
    for title, items in lines:
        kinds = [_kind_in(title, name, value) for name, value in items]
        weights = [
            _worth[kind]
            + (LASTING if kind in _OWN and is_standing(value) else 0.0)
            - _dearness[len(value)]
            - _crowding[min(after, _STRIDE - 1)]
            for after, kind, (_, value) in zip(range(len(items) - 1, -1, -1), kinds, items, strict=True)
        ]
        excess = max(0.0, max(weights) - heaviest)
        heaviest = min(heaviest, max(weights)) - 1e-6  # the next line stays behind this one
        for kind, weight, (name, value) in zip(kinds, weights, items, strict=True):
            place += 1
            pool.setdefault(value, (weight - excess, value, name, title, place, 0, kind))
        if (shown := _SHOWN.search(title)) is not None:
            titles.append((max(weights) - excess, shown[2], shown[1], title, place, 0, Kind.ARGUMENT))
    for fact in titles:  # a line's own items come first: each was written because it stood nowhere else
        pool.setdefault(fact[1], fact)
    return Digest(task, _rank_facts(pool), read_quoted_lines(block), frozenset(pool))


def _kind_in(title: str, name: str, value: str) -> Kind:
    role = speaker_of(title)
    word = {USER: Kind.USED, "": Kind.FOUND}.get(role, Kind.MENTIONED)
    if name:
        return word if name in _GROUPS else field_kind(name, value)
    if role:
        return word if " " not in value and value.isascii() else sentence_kind(value, role)
    return phrase_kind(value)
