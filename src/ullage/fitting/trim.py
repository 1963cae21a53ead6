"""One trim: the passes in their order, then the digest of what they took out."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ullage.fitting.digest import Taken, absorb, expected, task_block, write
from ullage.fitting.draft import Done
from ullage.fitting.passes import PASSES
from ullage.fitting.shorten import cut_middle, handle_of
from ullage.fitting.units import Entry, Unit, call_of, loose, piece_of
from ullage.messages import arguments_text, calls_of, split_digest, text_of

if TYPE_CHECKING:
    from ullage.fitting.draft import Draft, Edit, Pass
    from ullage.messages import Message
    from ullage.tokens import Counter


def trim(draft: Draft) -> Draft:
    """The draft made as small as its policy says; it may still be over, which is the caller's to see."""
    draft = _setting_aside(draft)
    for name in draft.options.policy.trim_strategy:
        step = PASSES[name]
        if draft.ceiling > step.above(draft) or (step.turns and draft.turns > draft.turns_target):
            draft = _run(draft, step)
    return _with_digest(draft)


def _setting_aside(draft: Draft) -> Draft:
    """The draft with the digest at what it is expected to cost, so that passes make room for it."""
    system = sum([unit.ceiling for unit in draft.units if unit.role == "system"])
    digest = expected(draft.digest, draft.digest_room, draft.measure)
    return replace(draft, ceiling=draft.ceiling - system + draft.prompt_ceiling + digest, set_aside=digest)


def _run(draft: Draft, step: Pass) -> Draft:
    """The draft after as many of the pass's edits as it takes to come down to its mark."""
    until, turns_until = step.until(draft), draft.turns_target if step.turns else draft.turns
    work = None
    for edit in step.propose(draft):
        work = work or _Work(draft)
        work.apply(edit)
        if work.ceiling <= until and work.turns <= turns_until:
            break
    return work.draft() if work else draft


class _Work:
    """A draft under the edits of one pass, with its running figures."""

    def __init__(self, draft: Draft) -> None:
        self._before = draft
        self._starts = [unit.entries[0].place for unit in draft.units]
        self._units: list[Unit | None] = list(draft.units)
        self._taken: list[Taken] = []
        self._log: list[Done] = []
        self._digest = draft.digest
        self._digesting = draft.options.policy.digest_share > 0
        self._recalling = draft.options.policy.recall
        self._handles = draft.handles.new_child() if self._recalling else draft.handles
        self.ceiling = draft.ceiling
        self.set_aside = draft.set_aside
        self.turns = draft.turns

    def apply(self, edit: Edit) -> None:
        """Takes out what the edit names."""
        for unit in edit.gone:
            self._drop(unit)
        for index, content in edit.contents.items():
            self._shorten(index, edit.kind, content)

    def _drop(self, unit: Unit) -> None:
        position = bisect_right(self._starts, unit.entries[0].place) - 1
        live = self._units[position]
        if live is None:
            return
        self._units[position] = None
        for entry in live.entries:
            self.ceiling -= entry.cost.ceiling
            self._note("evict", live, entry, 0)
        self.turns -= len(live.entries)
        if self._starts[position] == self._before.task:
            self._keep_task(live.entries[0])

    def _keep_task(self, entry: Entry) -> None:
        task = _task_text(self._before, entry.given)
        self._digest = replace(self._digest, task=task)
        cost = self._before.measure(task_block(task))
        self.set_aside += cost
        self.ceiling += cost

    def _shorten(self, index: int, kind: str, content: str) -> None:
        position = bisect_right(self._starts, index) - 1
        unit = self._units[position]
        if unit is None:
            return
        offset = index - self._starts[position]
        entry = unit.entries[offset]
        message = {**entry.given, "content": content}
        cost = self._before.options.counter.message(message, parallel=unit.parallel)
        if cost.ceiling >= entry.cost.ceiling:
            return
        self.ceiling += cost.ceiling - entry.cost.ceiling
        self._note(kind, unit, entry, cost.tokens)
        short = Entry(entry.place, message, cost, entry.given, entry.size, entry.error, kind)
        entries = (*unit.entries[:offset], short, *unit.entries[offset + 1 :])
        self._units[position] = unit._replace(entries=entries, loose=loose(entries))

    def _note(self, kind: str, unit: Unit, entry: Entry, tokens_after: int) -> None:
        handle = ""
        if self._recalling:
            handle, full = handle_of(piece_of(entry.given), self._handles)
            self._handles[handle] = full
        self._log.append(Done(kind, entry, tokens_after, handle))
        if self._digesting and not entry.form:
            self._taken.append(_taken(unit, entry))

    def draft(self) -> Draft:
        """The draft with the edits in it."""
        if not self._log:
            return self._before
        return replace(
            self._before,
            units=tuple([unit for unit in self._units if unit is not None]),
            digest=self._digest,
            ceiling=self.ceiling,
            set_aside=self.set_aside,
            task=self._before.task if self._digest is self._before.digest else None,
            turns=self.turns,
            handles=self._handles,
            taken=(*self._before.taken, *self._taken),
            log=(*self._before.log, *self._log),
        )


def _taken(unit: Unit, entry: Entry) -> Taken:
    message = entry.given
    return Taken(
        role=message["role"],
        text=text_of(message.get("content")),
        order=entry.place,
        calls=tuple([(call["function"]["name"], arguments_text(call)) for call in calls_of(message)]),
        call=call_of(unit, entry) if message["role"] == "tool" else None,
    )


# The task and the digest -----------------------------------------------------------------------------


def _task_text(draft: Draft, message: Message) -> str:
    """The first user message as it stands at the head of the digest: whole, or head and tail."""
    text = text_of(message.get("content"))
    counter = draft.options.counter
    cost = counter.text(text)
    if cost.ceiling <= draft.task_room:
        return text
    return cut_middle(text, draft.task_room, cost.tokens, draft.measure)


def _with_digest(draft: Draft) -> Draft:
    """The draft with the digest of all that was taken out in its first system message."""
    digest = draft.digest
    if draft.taken:
        digest = absorb(digest, sorted(draft.taken, key=lambda taken: taken.order))
    counter, limit = draft.options.counter, draft.options.limit
    bare = draft.ceiling - draft.set_aside
    room = min(draft.digest_room, limit - bare)
    while True:
        block, known = write(digest, room, draft.measure)
        units, added = _with_block(draft.units, block, counter)
        if bare + added <= limit or not block:
            return replace(draft, units=units, digest=known, ceiling=bare + added, set_aside=0, taken=())
        room -= max(16, bare + added - limit)


def _with_block(units: tuple[Unit, ...], block: str, counter: Counter) -> tuple[tuple[Unit, ...], int]:
    """The units with `block` at the end of the first system message, and what it adds to the ceiling.

    A system message is made where there is none, and goes again when there is nothing to say in it.
    """
    position = next((position for position, unit in enumerate(units) if unit.role == "system"), None)
    if position is None or units[position].start < 0:
        others = units if position is None else units[:position] + units[position + 1 :]
        if not block:
            return others, 0
        made = {"role": "system", "content": block}
        cost = counter.message(made)
        entry = Entry(-1, made, cost, {"role": "system", "content": ""}, form="digest")
        return (Unit("system", (entry,), 0, 0, pinned=False, priority=0), *others), cost.ceiling
    unit = units[position]
    given = unit.entries[0].given
    message = with_block(given, block)
    cost = counter.message(message)
    form = "" if message == given else "digest"
    entry = unit.entries[0]._replace(message=message, cost=cost, form=form)
    added = cost.ceiling - counter.message(with_block(given, "")).ceiling
    return (*units[:position], unit._replace(entries=(entry,)), *units[position + 1 :]), added


def with_block(message: Message, block: str) -> Message:
    """A system message with `block` in the place of the digest that it may have."""
    content: Any = message.get("content")
    if isinstance(content, str):
        own, _ = split_digest(content)
        return {**message, "content": "\n\n".join(filter(None, (own, block)))}
    parts = [part for part in content if not split_digest(text_of([part]))[1]]
    return {**message, "content": [*parts, {"type": "text", "text": block}] if block else parts}
