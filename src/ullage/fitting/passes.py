"""The passes, in the order in which a conversation can best do without what they take.

    cap          old tool outputs that are too long, to their head and tail (errors: to their error lines)
    age          tool outputs that are too old, to a placeholder
    placeholder  tool outputs outside the recent exchanges, oldest first, to a placeholder
    evict        exchanges outside the recent ones, to the digest: their steps, then question and answer
    recent       what is left of the recent exchanges but the last message, oldest first
    cut          the outputs of the newest step, in the middle

To add one: write a function from a draft to edits, give it a line in `PASSES` and its name a place in
`policy.STRATEGY`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ullage.fitting.draft import Edit, Pass
from ullage.fitting.shorten import cut_middle, error_lines, handle_of
from ullage.fitting.units import SHORTEST, exchanges
from ullage.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ullage.fitting.draft import Draft
    from ullage.fitting.units import Entry, Unit


def cap(draft: Draft) -> Iterator[Edit]:
    """Long outputs of older steps: head and tail, or what went wrong."""
    most = draft.options.policy.max_tokens_per_output
    for _, entry in _old_outputs(draft, larger_than=most):
        if entry.error:
            yield _errors(draft, entry)
        elif entry.form != "cap":
            text, count = _content(entry), draft.measure
            yield Edit("cap", {entry.place: cut_middle(text, most, entry.size, count, _handle(draft, text))})


def age(draft: Draft) -> Iterator[Edit]:
    """Outputs of steps that are more than `max_age` steps back."""
    oldest = draft.steps - draft.options.policy.max_age
    for unit, entry in _old_outputs(draft):
        if unit.step >= oldest:
            break
        yield _shortest("age", draft, unit, entry)


def placeholder(draft: Draft) -> Iterator[Edit]:
    """Outputs of exchanges that are not recent."""
    recent_from = draft.recent_from
    for unit, entry in _old_outputs(draft):
        if unit.exchange >= recent_from:
            break
        yield _shortest("placeholder", draft, unit, entry)


def evict(draft: Draft) -> Iterator[Edit]:
    """Exchanges that are not recent, those of a lower priority first, then the oldest first."""
    recent_from = draft.recent_from
    groups = exchanges(draft.units)
    old = itertools.takewhile(lambda group: group[0].exchange < recent_from, groups)
    yield from _evictions(draft, old)


def recent(draft: Draft) -> Iterator[Edit]:
    """Recent exchanges: first their tool outputs, then they themselves."""
    for unit, entry in _old_outputs(draft):
        yield _shortest("placeholder", draft, unit, entry)
    yield from _evictions(draft, exchanges(draft.units))


def cut(draft: Draft) -> Iterator[Edit]:
    """The outputs that are left, those of the newest step above all, so that they fit together."""
    outputs = [
        (unit, entry)
        for unit in draft.units
        if unit.step and not unit.pinned
        for entry in unit.entries[1:]
        if entry.form not in SHORTEST
    ]
    sizes = [_in_place(draft, unit, entry)(_content(entry)) for unit, entry in outputs]
    left = draft.options.limit - draft.ceiling + sum([entry.ceiling for _, entry in outputs])
    # What the model is about to read comes before what it may remember: the digest gives way by half.
    level = _water_level(sizes, max(left, (left + draft.set_aside) // 2))
    contents = {}
    for (unit, entry), size in zip(outputs, sizes, strict=True):
        if size > level:
            text, count = _content(entry), _in_place(draft, unit, entry)
            contents[entry.place] = cut_middle(text, level, size, count, _handle(draft, text))
    if contents:
        yield Edit("cut", contents)


def _in_place(draft: Draft, unit: Unit, entry: Entry) -> Callable[[str], int]:
    """What the message of this entry costs with a given content."""
    counter, given, parallel = draft.options.counter, entry.given, unit.parallel
    return lambda text: counter.message({**given, "content": text}, parallel=parallel).ceiling


def _to_target(draft: Draft) -> int:
    return draft.target


def _to_limit(draft: Draft) -> int:
    return draft.options.limit


PASSES: Mapping[str, Pass] = {
    "cap": Pass(cap, above=_to_target, until=_to_target),
    "age": Pass(age, above=_to_target, until=_to_target),
    "placeholder": Pass(placeholder, above=_to_target, until=_to_target),
    "evict": Pass(evict, above=_to_target, until=_to_target, turns=True),
    "recent": Pass(recent, above=_to_limit, until=_to_target, turns=True),
    "cut": Pass(cut, above=_to_limit, until=_to_limit),
}


# What the passes share -------------------------------------------------------------------------------


def _old_outputs(draft: Draft, larger_than: int | None = None) -> Iterable[tuple[Unit, Entry]]:
    """The results of older steps that the policy lets be shortened, and that can be, oldest first."""
    policy, last = draft.options.policy, draft.last
    if larger_than is None:
        larger_than = policy.small_output_threshold - 1 if policy.preserve_small_outputs else 0
    return [
        (unit, entry)
        for unit in draft.units
        if unit.loose > larger_than and not unit.pinned and unit.start != last
        for entry in unit.entries[1:]
        if entry.size > larger_than
        and entry.form not in SHORTEST
        and (not entry.error or entry.size > policy.max_tokens_per_output)
    ]


def _content(entry: Entry) -> str:
    return text_of(entry.given.get("content"))


def _shortest(kind: str, draft: Draft, unit: Unit, entry: Entry) -> Edit:
    """A placeholder for one output; of an error, what went wrong."""
    if entry.error:
        return _errors(draft, entry)
    shown = draft.options.policy.placeholder.format(age=draft.steps - unit.step, tokens=entry.size)
    handle = _handle(draft, _content(entry)) if draft.options.policy.recall else None
    return Edit(kind, {entry.place: f"{shown} recall {handle}" if handle else shown})


def _errors(draft: Draft, entry: Entry) -> Edit:
    """Of an error, what went wrong."""
    return Edit("errors", {entry.place: error_lines(_content(entry), draft.options.policy.error_marks)})


def _handle(draft: Draft, text: str) -> str | None:
    return handle_of(text, draft.handles)[0] if draft.options.policy.recall else None


def _evictions(draft: Draft, groups: Iterable[list[Unit]]) -> Iterator[Edit]:
    """What goes of these exchanges, in order."""
    if any(unit.priority for unit in draft.units):
        groups = sorted(groups, key=lambda group: max(unit.priority for unit in group))
    for group in groups:
        # First its inner units, one by one: the question and its answer stay longest, and the roles still
        # alternate around what is kept.
        *others, answer = group
        kept = draft.essential(answer)
        for unit in others:
            if draft.essential(unit):
                kept = True
            elif unit.role != "user":
                yield Edit("evict", gone=(unit,))
        if not kept:
            yield Edit("evict", gone=[*(unit for unit in others if unit.role == "user"), answer])


def _water_level(sizes: list[int], room: int) -> int:
    """The level to which the largest sizes must be lowered so that all together are within `room`."""
    left = room
    ordered = sorted(sizes)
    for position, size in enumerate(ordered):
        level = left // (len(ordered) - position)
        if size > level:
            return level
        left -= size
    return ordered[-1] if ordered else 0
