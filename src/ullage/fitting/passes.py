"""The passes of a trim, in the order in which they run: the most expendable content goes first.

    cap          old tool outputs that are too long, to their head and tail (errors: to their error lines)
    age          tool outputs that are too old, to a placeholder
    placeholder  tool outputs outside the recent exchanges, oldest first, to a placeholder
    evict        exchanges outside the recent ones, to the digest: their steps, then question and answer
    recent       the rest of the recent exchanges except the last message, oldest first
    cut          the outputs of the newest step, in the middle

To add one: write a function from a draft to edits, give it a line in `PASSES` and its name a place in
`policy.PassName`. A caller's own pass stands in `FitPolicy.trim_strategy`, and `find_pass` checks its edits.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ullage.errors import ConfigurationError
from ullage.fitting.draft import Edit
from ullage.fitting.facts import main_argument
from ullage.fitting.fields import list_fields, load_json
from ullage.fitting.pieces import handle_of
from ullage.fitting.policy import Pass, own_pass
from ullage.fitting.shorten import cut_middle, error_lines
from ullage.fitting.units import SHORTEST, call_of, cuttable, exchanges, outputs_of
from ullage.intake import kind_of
from ullage.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ullage.fitting.draft import Draft
    from ullage.fitting.policy import ChangeKind, Propose
    from ullage.fitting.units import Entry, Unit


NEWEST_STEPS = 2
"""Steps whose outputs stay whole, unless the request could not be sent with them."""


def cap(draft: Draft) -> Iterator[Edit]:
    """Cuts long outputs of older steps to head and tail, or to their error lines."""
    most = draft.options.policy.max_tokens_per_output
    for _, entry in _old_outputs(draft, larger_than=most):
        if entry.error:
            yield _errors(draft, entry)
        elif entry.form != "cap":
            text, count = _content(entry), draft.measure
            yield Edit("cap", {entry.place: cut_middle(text, most, entry.size, count, _handle(draft, text))})


def age(draft: Draft) -> Iterator[Edit]:
    """Replaces outputs of steps that are more than `max_age` steps old by placeholders."""
    oldest = draft.steps - draft.options.policy.max_age
    for unit, entry in _old_outputs(draft):
        if unit.step >= oldest:
            break
        yield _shortest("age", draft, unit, entry)


def placeholder(draft: Draft) -> Iterator[Edit]:
    """Replaces outputs of old exchanges, and of the older steps of a long tool loop, by placeholders."""
    recent_from, newest = draft.recent_from, draft.steps - NEWEST_STEPS
    for unit, entry in _old_outputs(draft):
        if unit.exchange >= recent_from and unit.step > newest:
            break
        yield _shortest("placeholder", draft, unit, entry)


def evict(draft: Draft) -> Iterator[Edit]:
    """Removes exchanges that are not recent: lower priorities first, then the oldest first."""
    recent_from = draft.recent_from
    groups = exchanges(draft.units)
    old = itertools.takewhile(lambda group: group[0].exchange < recent_from, groups)
    yield from _evictions(draft, old)


def recent(draft: Draft) -> Iterator[Edit]:
    """Replaces the outputs of recent exchanges by placeholders, then removes these exchanges."""
    for unit, entry in _old_outputs(draft):
        yield _shortest("placeholder", draft, unit, entry)
    yield from _evictions(draft, exchanges(draft.units))


def cut(draft: Draft) -> Iterator[Edit]:
    """Cuts the remaining outputs in the middle, mostly those of the newest step, until they fit."""
    outputs = [
        (unit, entry)
        for unit in draft.units
        if not unit.pinned
        for entry in cuttable(unit, cut_user=draft.options.policy.cut_user)
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
    """Returns a function that counts this message with another content."""
    counter, given, parallel = draft.options.counter, entry.given, unit.parallel
    return lambda text: counter.message({**given, "content": text}, parallel=parallel).ceiling


PASSES: Mapping[str, Pass] = {
    step.name: step
    for step in (
        Pass("cap", cap),
        Pass("age", age),
        Pass("placeholder", placeholder),
        Pass("evict", evict, turns=True),
        Pass("recent", recent, above="limit", turns=True),
        Pass("cut", cut, above="limit", until="limit"),
    )
}


# Passes of a caller's own -----------------------------------------------------------------------------


def find_pass(given: str | Pass | Propose) -> Pass:
    """Returns a built-in pass by its name, or a caller's own pass with a check of its edits."""
    if isinstance(given, str):
        return PASSES[given]
    own = own_pass(given)
    return own._replace(propose=lambda draft: _check_edits(own, draft))


def _check_edits(own: Pass, draft: Draft) -> Iterator[Edit]:
    """Yields the edits of a caller's own pass; raises ConfigurationError if one would break the request."""
    groups = {group[0].exchange: group for group in exchanges(draft.units)}
    messages = {entry.place: unit for unit in draft.units for entry in unit.entries}
    gone: set[int] = set()
    for edit in own.propose(draft):
        if not isinstance(edit, Edit):
            raise ConfigurationError(f"the pass {own.name!r} proposed {kind_of(edit)}; it must yield Edits")
        for place, content in edit.contents.items():
            unit = messages.get(place)
            if unit is None or not isinstance(content, str) or _is_fixed(draft, unit):
                raise ConfigurationError(
                    f"the pass {own.name!r} gives message {place} another content; it may only give a text "
                    "to a message of the draft that is not pinned, a system message or the last question"
                )
        gone |= {unit.start for unit in edit.gone}
        for unit in edit.gone:
            if unit.start not in messages or draft.essential(unit):
                raise ConfigurationError(
                    f"the pass {own.name!r} removes message {unit.start}, which must stay; "
                    "leave out the units for which draft.essential(unit) is True"
                )
            _check_exchange(own, groups[unit.exchange], gone)
        yield edit._replace(kind=own.name)


def _is_fixed(draft: Draft, unit: Unit) -> bool:
    """Returns True if no pass may change the contents of this unit."""
    return unit.pinned or unit.role == "system" or (unit.role == "user" and unit.exchange == draft.exchange)


def _check_exchange(own: Pass, units: list[Unit], gone: set[int]) -> None:
    """Refuses to split a question from the end of its answer: roles would no longer alternate."""
    left = [unit for unit in units if unit.start not in gone]
    if left and (left[0] is not units[0] or left[-1] is not units[-1]):
        raise ConfigurationError(
            f"the pass {own.name!r} removes the first or the last message of an exchange and leaves others "
            f"of it, such as message {left[0].start}; remove both in one Edit, or only messages between them"
        )


# What the passes share -------------------------------------------------------------------------------


def _old_outputs(draft: Draft, larger_than: int | None = None) -> Iterable[tuple[Unit, Entry]]:
    """Returns the results of older steps that can still be shortened and that the policy allows to shorten.

    The oldest come first.
    """
    policy, last = draft.options.policy, draft.last
    if larger_than is None:
        larger_than = policy.small_output_threshold - 1 if policy.preserve_small_outputs else 0
    return [
        (unit, entry)
        for unit in draft.units
        if unit.loose > larger_than and not unit.pinned and unit.start != last
        for entry in outputs_of(unit)
        if entry.size > larger_than
        and entry.form not in SHORTEST
        and (not entry.error or entry.size > policy.max_tokens_per_output)
    ]


def _content(entry: Entry) -> str:
    return text_of(entry.given.get("content"))


def _shortest(kind: ChangeKind, draft: Draft, unit: Unit, entry: Entry) -> Edit:
    """Returns the edit that makes one output a placeholder; an error is cut to its error lines instead."""
    if entry.error:
        return _errors(draft, entry)
    shown = _placeholder(draft, unit, entry)
    handle = _handle(draft, _content(entry)) if draft.options.policy.recall else None
    return Edit(kind, {entry.place: f"{shown} recall {handle}" if handle else shown})


def _placeholder(draft: Draft, unit: Unit, entry: Entry) -> str:
    """Returns the policy's placeholder for one output."""
    template, tool, argument = draft.options.policy.placeholder, "", ""
    if "{tool" in template or "{argument" in template:
        tool, arguments = call_of(unit, entry)
        argument = main_argument(list_fields(load_json(arguments), 8))
    age = draft.steps - unit.step
    return template.format(age=age, tokens=entry.size, tool=tool, argument=argument)


def _errors(draft: Draft, entry: Entry) -> Edit:
    """Returns the edit that cuts an error to its error lines."""
    return Edit("errors", {entry.place: error_lines(_content(entry), draft.options.policy.error_marks)})


def _handle(draft: Draft, text: str) -> str | None:
    return handle_of(text, draft.handles)[0] if draft.options.policy.recall else None


def _evictions(draft: Draft, groups: Iterable[list[Unit]]) -> Iterator[Edit]:
    """Yields the evictions in these exchanges, in order."""
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
    """Returns the size to which all larger ones must be cut so that their sum is within `room`."""
    left = room
    ordered = sorted(sizes)
    for position, size in enumerate(ordered):
        level = left // (len(ordered) - position)
        if size > level:
            return level
        left -= size
    return ordered[-1] if ordered else 0
