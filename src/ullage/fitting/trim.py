"""One trim: the passes in their order, then the digest of what they took out."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.fitting.digest import STEADY, Taken, absorb, estimate_block, task_block, write
from ullage.fitting.passes import find_pass
from ullage.fitting.pieces import handle_of, piece_of
from ullage.fitting.shorten import cut_middle
from ullage.fitting.units import Entry, Unit, call_of, first_system, is_output, loose
from ullage.messages import arguments_text, calls_of, split_content, split_recalled, text_of
from ullage.text import split_outputs
from ullage.tokens import Cost

if TYPE_CHECKING:
    from ullage.fitting.draft import Draft, Edit
    from ullage.fitting.policy import Pass
    from ullage.fitting.series import Done
    from ullage.messages import Message
    from ullage.tokens import Counter


def trim(draft: Draft) -> Draft:
    """Returns the draft after all passes of its policy. It may still be over the limit."""
    before, draft = draft, _set_aside_digest(draft)
    for each in draft.options.policy.trim_strategy:
        step = find_pass(each)
        if draft.ceiling > draft.level(step.above) or (step.turns and draft.turns > draft.turns_target):
            draft = _run(draft, step)
    if not draft.taken and draft.digest is before.digest and _has_digest(before):
        return _with_digest_as_it_was(draft, before)
    return _with_digest(draft)


def _set_aside_digest(draft: Draft) -> Draft:
    """Returns the draft with the expected cost of the digest, so that passes make room for it."""
    system = sum([unit.ceiling for unit in draft.units if unit.role == "system"])
    now = system - draft.prompt_ceiling
    digest = estimate_block(draft.digest, draft.digest_room, now, steady=draft.steady)
    return draft._replace(ceiling=draft.ceiling - system + draft.prompt_ceiling + digest, set_aside=digest)


def _run(draft: Draft, step: Pass) -> Draft:
    """Returns the draft after the edits of a pass, which stop when the request is small enough."""
    until, turns_until = draft.level(step.until), draft.turns_target if step.turns else draft.turns
    work = None
    for edit in step.propose(draft):
        work = work or _Work(draft)
        work.apply(edit if edit.kind else edit._replace(kind=step.name))
        if work.ceiling <= until and work.turns <= turns_until:
            break
    return work.draft() if work else draft


class _Work:
    """A draft under the edits of one pass, with its running figures."""

    def __init__(self, draft: Draft) -> None:
        self._before = draft
        self._units: list[Unit | None] = list(draft.units)
        self._starts = [unit.entries[0].place for unit in draft.units]
        self._taken: list[Taken] = []
        self._log: list[Done] = []
        self._digest = draft.digest
        self._digesting = draft.options.policy.digest_share > 0
        self._recalling = draft.options.policy.recall
        self._handles = draft.handles.new_child() if self._recalling else draft.handles
        self.ceiling = draft.ceiling
        self.turns = draft.turns
        self._turn_tokens = draft.turn_tokens
        self._shortened = draft.shortened
        self._set_aside = draft.set_aside

    def apply(self, edit: Edit) -> None:
        """Removes and shortens the messages that the edit names."""
        for unit in edit.gone:
            self._drop(unit, edit.eviction)
        for index, content in edit.contents.items():
            self._shorten(index, edit.kind, content)

    def _drop(self, unit: Unit, kind: str) -> None:
        position = self._position(unit.entries[0].place)
        live = self._units[position]
        if live is None:
            return
        self._units[position] = None
        ceiling = tokens = shortened = 0
        for entry in live.entries:
            ceiling += entry.ceiling
            tokens += entry.tokens
            shortened += entry.form != ""
            handle = self._handle(entry) if self._recalling else ""
            self._log.append((kind, entry.place, entry.tokens, 0, handle))
        self.ceiling -= ceiling
        self.turns -= len(live.entries)
        self._turn_tokens -= tokens
        self._shortened -= shortened
        if self._digesting:
            self._taken += [_make_taken(live, entry) for entry in live.entries if not entry.form]
        if unit.entries[0].place == self._before.task:
            self._keep_task(live.entries[0])

    def _position(self, place: int) -> int:
        """Returns the position of the unit that has the message at this place of the history."""
        return bisect_right(self._starts, place) - 1

    def _keep_task(self, entry: Entry) -> None:
        task = _task_text(self._before, entry.given)
        self._digest = replace(self._digest, task=task)
        cost = self._before.measure(task_block(task, facts=self._digesting))
        self._set_aside += cost
        self.ceiling += cost

    def _shorten(self, index: int, kind: str, content: str) -> None:
        position = self._position(index)
        unit = self._units[position]
        if unit is None:
            return
        offset = index - unit.entries[0].place
        entry = unit.entries[offset]
        message = {**entry.given, "content": content}
        cost = self._before.options.counter.message(message, parallel=unit.parallel)
        if cost.ceiling >= entry.ceiling:
            return
        self.ceiling += cost.ceiling - entry.ceiling
        self._turn_tokens += cost.tokens - entry.tokens
        self._shortened += entry.form == ""
        handle = self._handle(entry) if self._recalling else ""
        self._log.append((kind, entry.place, entry.tokens, cost.tokens, handle))
        if self._digesting and not entry.form:
            self._taken.append(_make_taken(unit, entry))
        short = Entry(entry.place, message, *cost, entry.given, entry.size, entry.error, kind)
        entries = (*unit.entries[:offset], short, *unit.entries[offset + 1 :])
        self._units[position] = Unit(
            unit.role, entries, unit.exchange, unit.step, unit.pinned, unit.priority, loose(entries)
        )

    def _handle(self, entry: Entry) -> str:
        handle, full = handle_of(piece_of(entry.given), self._handles)
        self._handles[handle] = full
        return handle

    def draft(self) -> Draft:
        """Returns the draft with the edits."""
        if not self._log:
            return self._before
        return self._before._replace(
            units=tuple([unit for unit in self._units if unit is not None]),
            digest=self._digest,
            ceiling=self.ceiling,
            set_aside=self._set_aside,
            task=self._before.task if self._digest is self._before.digest else None,
            turns=self.turns,
            turn_tokens=self._turn_tokens,
            shortened=self._shortened,
            handles=self._handles,
            taken=(*self._before.taken, *self._taken),
            log=(*self._before.log, *self._log),
        )


def _make_taken(unit: Unit, entry: Entry) -> Taken:
    message = entry.given
    text = text_of(message.get("content"))
    if is_output(unit, entry):
        return Taken("tool", text, entry.place, (), call_of(unit, entry))
    calls = tuple([(call["function"]["name"], arguments_text(call)) for call in calls_of(message)])
    return Taken(message["role"], text, entry.place, calls)


# The task and the digest -----------------------------------------------------------------------------


def _task_text(draft: Draft, message: Message) -> str:
    """Returns the user's own words in the first user message: whole, or head and tail."""
    _, text = split_outputs(split_recalled(text_of(message.get("content")))[1])
    counter = draft.options.counter
    cost = counter.text(text)
    if cost.ceiling <= draft.task_room:
        return text
    return cut_middle(text, draft.task_room, cost.tokens, draft.measure)


def _with_digest(draft: Draft) -> Draft:
    """Returns the draft with the digest of the removed messages in its first system message."""
    digest = draft.digest
    if draft.taken:
        digest = absorb(digest, sorted(draft.taken, key=lambda taken: taken.order), draft.digest_room)
    counter, limit = draft.options.counter, draft.options.limit
    bare, most = draft.ceiling - draft.set_aside, draft.digest_room
    room = min(most, limit - bare)
    place = _BlockPlace(draft.units, counter)
    measure = draft.measure if most < STEADY else place.measure
    while True:
        block, known = write(digest, room, measure, steady=draft.steady)
        units, added = place.put(block)
        ceiling = bare + added.ceiling
        if ceiling <= limit or not block:
            return draft._replace(
                units=units,
                digest=known,
                ceiling=ceiling,
                summary_tokens=added.tokens,
                set_aside=0,
                taken=(),
            )
        room -= max(16, ceiling - limit)


class _BlockPlace:
    """The place of the block in a request. It keeps its last result: the block that fits is put there.

    A large block is counted where it will stand: then the count of the whole message is known as well.
    """

    def __init__(self, units: tuple[Unit, ...], counter: Counter) -> None:
        self._units = units
        self._counter = counter
        self._last: tuple[str | None, tuple[tuple[Unit, ...], Cost]] = (None, (units, Cost(0, 0)))

    def put(self, block: str) -> tuple[tuple[Unit, ...], Cost]:
        """Returns the units with the block, and the cost that it adds."""
        if self._last[0] != block:
            self._last = (block, _with_block(self._units, block, self._counter))
        return self._last[1]

    def measure(self, block: str) -> int:
        """Returns the most that the block costs."""
        return self.put(block)[1].ceiling


def _has_digest(draft: Draft) -> bool:
    first = first_system(draft.units)
    return first is not None and first.form == "digest"


def _with_digest_as_it_was(draft: Draft, before: Draft) -> Draft:
    """Returns the draft with its previous digest, as nothing was removed; rewritten if it does not fit."""
    system = sum([unit.ceiling for unit in before.units if unit.role == "system"])
    ceiling = draft.ceiling - draft.set_aside + system - draft.prompt_ceiling
    if ceiling > draft.options.limit:
        return _with_digest(draft)
    return draft._replace(ceiling=ceiling, set_aside=0)


def _with_block(units: tuple[Unit, ...], block: str, counter: Counter) -> tuple[tuple[Unit, ...], Cost]:
    """Returns the units with `block` at the end of the first system message, and the cost that it adds.

    If there is no system message, one is made; it is removed again if the block is empty.
    """
    position = next((position for position, unit in enumerate(units) if unit.role == "system"), None)
    if position is None or units[position].start < 0:
        others = units if position is None else units[:position] + units[position + 1 :]
        if not block:
            return others, Cost(0, 0)
        made = {"role": "system", "content": block}
        cost = counter.message(made)
        entry = Entry(-1, made, *cost, {"role": "system", "content": ""}, form="digest")
        return (Unit("system", (entry,), 0, 0, pinned=False, priority=0), *others), cost
    unit = units[position]
    given = unit.entries[0].given
    message = with_block(given, block)
    cost = counter.message(message)
    form = "digest"
    if message == given:
        message, form = given, ""  # the caller gets back the very object
    entry = unit.entries[0]._replace(message=message, tokens=cost.tokens, ceiling=cost.ceiling, form=form)
    own = counter.message(with_block(given, ""))
    added = Cost(cost.tokens - own.tokens, cost.ceiling - own.ceiling)
    return (*units[:position], unit._replace(entries=(entry,)), *units[position + 1 :]), added


def with_block(message: Message, block: str) -> Message:
    """Returns a system message with `block` instead of its previous digest, if it has one."""
    own, _ = split_content(message["content"])
    if isinstance(own, str):
        return {**message, "content": "\n\n".join(filter(None, (own, block)))}
    return {**message, "content": [*own, {"type": "text", "text": block}] if block else own}
