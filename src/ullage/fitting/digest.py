"""The digest: what is still known of messages that are gone, most needed first, in bounded room.

A digest is a frozen pool of weighed facts. `absorb` adds the facts of messages that leave, `write`
writes the best of them as a quoted block for the system message, `parse` reads such a block back.
A fact weighs by who said it, how often and how lately, and less by its length. All weights fade at
the same rate, so that nothing in the pool has to be weighed again as time passes.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from math import log
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from ullage.fitting.facts import (
    ASSISTANT,
    LABEL_CHARS,
    SEPARATOR,
    USER,
    VALUE_CHARS,
    Kind,
    Taken,
    clean,
    find,
    one_line,
    phrase_kind,
    sentence_kind,
    shape,
    spoken,
)
from ullage.messages import DIGEST_CLOSE, DIGEST_OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["EMPTY", "Digest", "Fact", "Taken", "absorb", "expected", "parse", "task_block", "write"]


class Fact(NamedTuple):
    """A value that is remembered, with its weight and its place."""

    weight: float
    value: str
    name: str
    line: str
    """The label of the line that it belongs to."""
    order: int
    """Where it was seen, so that a line reads in the order of the record."""
    seen: int
    """In how many messages; 0 when it was read from a block, where it had earned its place."""
    kind: Kind


@dataclass(frozen=True, slots=True)
class Digest:
    """What is known of the messages that left, bounded however many they were."""

    task: str | None = None
    """The first user message, already shortened by the caller; stands first when there is one."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The pool by value; never changed, only replaced."""
    written: tuple[str, ...] = ()
    """The lines of the block as it was written last."""
    values: frozenset[str] = frozenset()
    """The values that stand in them."""


EMPTY = Digest()

MOST_FACTS = 2_000
"""The pool's bound; beyond it the lightest quarter goes."""
TASK = "task"
"""The label of the task's line."""
LINE_CHARS = 240
"""Where a line of the block is broken."""
LINE_SHARE = 0.5
"""The share of the block that one label's facts have, unless the others leave room."""
FEW = 256
"""Up to so many facts a block is written again and again until it is full."""
STEADY = 1_000
"""A block with room for so many tokens is worth keeping as it is, so that prompt caches hold it."""
GROWTH = 0.08
"""The share of the room by which a block is continued at a time, until it is full."""
FRESH = 0.6
"""The share of the room that is written when such a block is written anew."""
MISSES = 8
"""After so many facts that no longer fit, lighter ones are not tried."""

# What a sighting is worth: the logarithm of how likely such a value is to be needed again.
WORTH: dict[Kind, float] = {
    Kind.TOLD: 2.5,
    Kind.SAID: 1.8,
    Kind.COMMAND: 2.6,
    Kind.ARGUMENT: 3.0,
    Kind.IDENTIFIER: 2.5,
    Kind.FIELD: 1.0,
    Kind.DETAIL: 0.3,
    Kind.ERROR: 1.2,
    Kind.DECIDED: 1.4,
    Kind.USED: 1.6,
    Kind.MENTIONED: 1.2,
    Kind.FOUND: 0.8,
}
FADING = 0.01
"""What each message of age takes from a weight."""
AGAIN = 1.0
"""The n-th sighting adds an n-th of this."""
DEARNESS = 0.85
"""The power of a value's length by which it has to be worth more."""
CROWDING = 0.1
"""How much less the n-th fact of a message is worth than its first: the power of n."""

_PHRASES = frozenset({Kind.TOLD, Kind.SAID, Kind.COMMAND, Kind.ERROR})
_STRIDE = 1_000  # places that a message has for its facts
_worth = [WORTH[kind] for kind in Kind]
_dearness = [DEARNESS * log(12 + chars) for chars in range(VALUE_CHARS + 1)]
_crowding = [CROWDING * log(1 + before) for before in range(_STRIDE)]
_weight, _order = itemgetter(0), itemgetter(4)
_NAMED = re.compile(r"([\w.\-\[\]]{1,40})=(.+)", re.DOTALL)
_SHOWN = re.compile(r"\(([\w.\-\[\]]{1,40})=(.{1,60})\)$")


def absorb(digest: Digest, taken: Sequence[Taken]) -> Digest:
    """The digest with the facts of these messages in it."""
    pool = dict(digest.facts)
    for message in taken:
        _note(pool, message)
        if len(pool) > 2 * MOST_FACTS:
            pool = _lightened(pool)
    return replace(digest, facts=_lightened(pool))


def _lightened(pool: dict[str, Fact]) -> dict[str, Fact]:
    if len(pool) <= MOST_FACTS:
        return pool
    heaviest = sorted(pool.values(), key=_weight, reverse=True)[: MOST_FACTS * 3 // 4]
    return {fact.value: fact for fact in heaviest}


def _note(pool: dict[str, Fact], message: Taken) -> None:
    new = tuple.__new__  # half the time of `Fact(...)`, and this loop is the hottest
    recent = FADING * message.order
    first = place = message.order * _STRIDE
    for kind, line, name, value in find(message)[: _STRIDE - 1]:
        if not value:
            continue
        if not name and "=" in value and (named := _NAMED.fullmatch(value)):
            name, value = named.groups()  # noqa: PLW2901 - the same fact, read as the block will be
        place += 1
        weight = _worth[kind] + recent - _dearness[len(value)] - _crowding[place - first]
        old = pool.get(value)
        if old is None:
            pool[value] = new(Fact, (weight, value, name, line, place, 1, kind))
            continue
        seen = max(1, old.seen)
        weight = max(old.weight, weight)
        if not first < old.order < first + _STRIDE:  # in another message
            seen += 1
            weight += AGAIN / seen
        if kind <= old.kind:
            pool[value] = new(Fact, (weight, value, name or old.name, line, place, seen, kind))
        else:
            pool[value] = new(Fact, (weight, value, old.name, old.line, old.order, seen, old.kind))


def write(
    digest: Digest, room: int, count: Callable[[str], int], *, steady: bool = True
) -> tuple[str, Digest]:
    """The block, at most `room` tokens and "" where nothing sensible fits, and the digest that knows it.

    A large block that is to be `steady` is continued where it ends and written anew only when it is full,
    so that most of a request's prefix outlives a trim.
    """
    steady = steady and room >= STEADY
    head = _fitting_task(digest.task, room, count)
    if head is None:
        return "", replace(digest, written=(), values=frozenset())
    ranked = sorted(digest.facts.values(), key=_weight, reverse=True)
    if head:
        told = " ".join(head)
        ranked = [fact for fact in ranked if fact.line != USER or fact.value not in told]
    if steady and digest.written[: len(head)] == tuple(head):
        continued = _continued(digest, ranked, room, count)
        if continued is not None:
            return continued
    share = FRESH if steady else 1.0
    chosen = _fitting(head, ranked, room, share, count)
    if not head and not chosen:
        return "", replace(digest, written=(), values=frozenset())
    lines = (*head, *_lines(chosen))
    values = frozenset([fact.value for fact in chosen])
    return _block(lines), replace(digest, written=lines, values=values)


def expected(digest: Digest, room: int, count: Callable[[str], int], *, steady: bool = True) -> int:
    """How many of `room` tokens the next block will have, more or less."""
    if not steady or room < STEADY:
        return room
    tokens = count(_block(digest.written))
    return int(FRESH * room if _full(digest, tokens, room) else tokens + GROWTH * room)


def _full(digest: Digest, tokens: int, room: int) -> bool:
    """Whether a block of so many tokens, or none, is to be written anew."""
    return not digest.values or tokens > room * (1 - GROWTH)


def _continued(
    digest: Digest, ranked: Sequence[Fact], room: int, count: Callable[[str], int]
) -> tuple[str, Digest] | None:
    """The block as it was with the heaviest new facts behind it; None where it is full."""
    before = _block(digest.written)
    tokens = count(before)
    if _full(digest, tokens, room):
        return None
    new = [fact for fact in ranked if fact.value not in digest.values]
    chars = int(GROWTH * room * len(before) / tokens)
    for _ in range(3):
        chosen, _ = _choose(new, chars)
        lines = (*digest.written, *_lines(chosen))
        text = _block(lines)
        if count(text) <= room:
            values = digest.values.union([fact.value for fact in chosen])
            return text, replace(digest, written=lines, values=values)
        chars = chars * 2 // 3
    return None


def _fitting(
    head: Sequence[str], ranked: Sequence[Fact], room: int, share: float, count: Callable[[str], int]
) -> list[Fact]:
    """The heaviest facts that fill about this share of `room` tokens behind the head."""
    best: list[Fact] = []
    frame = count(_block(head))
    aim = max(0, int(room * share) - frame)
    chars = _first_guess(ranked, aim, count)
    enough = 0.95 if share == 1 or len(ranked) <= FEW else 0.8
    for _ in range(5):
        chosen, spent = _choose(ranked, chars)
        if not chosen:
            break
        tokens = count(_block((*head, *_lines(chosen))))
        if tokens <= frame + aim:
            best = chosen
            if chars == sys.maxsize or tokens >= enough * (frame + aim):
                break
        chars = int(spent * (1 + enough) / 2 * aim / max(1, tokens - frame))
    return best


def _first_guess(ranked: Sequence[Fact], room: int, count: Callable[[str], int]) -> int:
    """How many characters of facts `room` tokens will hold, by a sample of them."""
    if len(ranked) <= FEW:
        return sys.maxsize  # perhaps all of them
    likely = ranked[: room // 8]
    sample = SEPARATOR.join([f"{f.name}={f.value}" for f in likely[:: 1 + len(likely) // 80]])
    chars = room * len(sample) // max(1, count(sample))
    return sys.maxsize if sum([len(fact.value) for fact in ranked]) < chars else int(0.9 * chars)


def _choose(ranked: Sequence[Fact], chars: int) -> tuple[list[Fact], int]:
    """The heaviest facts that about this many characters hold, and how many they take."""
    chosen: list[Fact] = []
    spent: dict[str, int] = {}
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
            left -= cost
            spent[line] = before + cost
            chosen.append(fact)
    return _without_echoes(chosen), chars - left


def _without_echoes(chosen: list[Fact]) -> list[Fact]:
    """The facts less the bare words that a sentence, a command or an error line among them has."""
    told = set(spoken(" ".join([fact.value for fact in chosen if fact.kind in _PHRASES])))
    return [fact for fact in chosen if fact.kind < Kind.USED or fact.value not in told or not fact.seen]


def _block(lines: Iterable[str]) -> str:
    text = "\n".join([f"> {line}" for line in lines])
    for marker in (DIGEST_OPEN, DIGEST_CLOSE):
        if marker in text:  # a quoted text may not end the quotation
            text = text.replace(marker, f"({marker[1:-1]})")
    return f"{DIGEST_OPEN}\n{text}\n{DIGEST_CLOSE}"


def _lines(chosen: Sequence[Fact]) -> Iterator[str]:
    """The facts by line, the line of the heaviest fact first, each in the order of the record."""
    lines: dict[str, list[Fact]] = {}
    for fact in chosen:
        if fact.line in lines:
            lines[fact.line].append(fact)
        else:
            lines[fact.line] = [fact]
    for title in [title for title, facts in lines.items() if len(facts) == 1]:
        if _shown(title) == lines[title][0].value:  # the label says it all: one line for all such calls
            lines.setdefault(f"{title.partition('(')[0]}()", []).extend(lines.pop(title))
    for title, facts in lines.items():
        facts.sort(key=_order)
        # A value without a name that stood after one with a name would inherit it.
        yield from _wrapped(title, [f for f in facts if not f.name] + [f for f in facts if f.name])


def _shown(title: str) -> str:
    """The value of the argument that a label shows."""
    return title.partition("=")[2][:-1] if title[-1:] == ")" else ""


def _wrapped(title: str, facts: Sequence[Fact]) -> Iterator[str]:
    line, start, name = "", f"{title}: ", ""
    shown = _shown(title)
    for _, value, own, _, _, _, _ in facts:
        if value == shown:
            continue
        if line and len(line) + len(value) > LINE_CHARS:
            yield line
            line, start, name = "", "  ", ""
        item = value if own == name and not ("=" in value and _NAMED.fullmatch(value)) else f"{own}={value}"
        line = f"{line}{SEPARATOR}{item}" if line else start + item
        name = own
    if line:
        yield line


def task_block(task: str) -> str:
    """The block that has the task alone."""
    return _block(_task_lines(task))


def _task_lines(task: str) -> list[str]:
    lines = "\n".join(one_line(line).rstrip() for line in task.splitlines()).strip().split("\n")
    return [f"{TASK}: {lines[0]}", *(f"| {line}" for line in lines[1:])] if lines[0] else []


def _fitting_task(task: str | None, room: int, count: Callable[[str], int]) -> list[str] | None:
    """The task's lines, head and tail where the whole does not fit; None where not even those do."""
    text = task or ""
    for _ in range(6):
        head = _task_lines(text)
        if not head:
            return []
        tokens = count(_block(head))
        if tokens <= room:
            return head
        half = int(len(text) * (room / tokens) * 0.4)
        if half < 20:
            break
        text = f"{text[:half].strip()}\n…\n{text[-half:].strip()}"
    return None


def parse(block: str) -> Digest:
    """The digest that a rendered block shows, its lines as heavy as their order says."""
    task, lines = _read(block)
    pool: dict[str, Fact] = {}
    titles: list[Fact] = []
    place = -_STRIDE * MOST_FACTS
    heaviest = max(_worth)
    for title, items in lines:
        kinds = [_kind_in(title, name, value) for name, value in items]
        weights = [
            _worth[kind] - _dearness[len(value)] - _crowding[min(after, _STRIDE - 1)]
            for after, kind, (_, value) in zip(range(len(items) - 1, -1, -1), kinds, items, strict=True)
        ]
        excess = max(0.0, max(weights) - heaviest)
        heaviest = min(heaviest, max(weights)) - 1e-6  # the next line stays behind this one
        for kind, weight, (name, value) in zip(kinds, weights, items, strict=True):
            place += 1
            pool.setdefault(value, Fact(weight - excess, value, name, title, place, 0, kind))
        if (shown := _SHOWN.search(title)) is not None:
            titles.append(Fact(max(weights) - excess, shown[2], shown[1], title, place, 0, Kind.ARGUMENT))
    for fact in titles:  # a line's own items come first: each was written because it stood nowhere else
        pool.setdefault(fact.value, fact)
    written = tuple([line[2:] for line in block.split("\n") if line.startswith("> ")])
    return Digest(task, pool, written, frozenset(pool))


def _kind_in(title: str, name: str, value: str) -> Kind:
    if name:
        return shape(value)
    if title == USER:
        return sentence_kind(value) if " " in value else Kind.USED
    if title == ASSISTANT:
        return Kind.DECIDED if " " in value else Kind.MENTIONED
    return phrase_kind(value)


def _read(block: str) -> tuple[str | None, list[tuple[str, list[tuple[str, str]]]]]:
    """The task, and the label and (name, value) pairs of each line."""
    task: list[str] = []
    lines: list[tuple[str, list[tuple[str, str]]]] = []
    for quoted in block.split("\n"):
        line = quoted.removeprefix("> ")
        if line == quoted:
            continue
        if not lines and task and line.startswith("|"):
            task.append(line[2:])
        elif not lines and not task and line.startswith(f"{TASK}: "):
            task.append(line.removeprefix(f"{TASK}: "))
        elif line.startswith("  ") and lines:
            lines[-1][1].extend(_items(line[2:]))
        else:
            title, _, rest = line.partition(": ")
            lines.append((title[:LABEL_CHARS], _items(rest)))
    return "\n".join(task) or None, [(title, items) for title, items in lines if items]


def _items(text: str) -> list[tuple[str, str]]:
    """The (name, value) pairs of a line's text; a value without a name has that of the one before."""
    items: list[tuple[str, str]] = []
    name = ""
    for item in text.split(SEPARATOR):
        value = clean(item)
        if "=" in value and (named := _NAMED.fullmatch(value)):
            name, value = named.groups()
        if value:
            items.append((name, value[:VALUE_CHARS]))
    return items
