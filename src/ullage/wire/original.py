"""Sends again what a request did not change, exactly as it is in the body that the request was read from.

A body that is only fitted is patched. `Api.read_items` reads the list of its items into messages, each with
its `BodyOrigin`. After fitting, `Api.patch` writes the body again, and an item whose messages did not
change is the very object that was given.

A body that is written anew is restored. A reader accepts several spellings of one thing: null or absent, a
string or a list of one text, camelCase or snake_case. A writer uses one of them. So three versions of a body
are compared: the original, the original as the writer writes it, and the changed request as the writer writes
it. If the last two are equal somewhere, nothing was changed there, and the original is sent.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.wire.parts import text_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ullage.messages import Message
    from ullage.wire.fields import Object

KINDS = ("type", "role")
"""Members that state what an object is. Objects that differ in one of them are not versions of each other."""

Pair = tuple[int, int]
"""Position in the original list, and position in the written list."""


def restore_original(original: Mapping[str, Any], before: Object, written: Object) -> Object:
    """Returns `written` with all that equals `before` as `original` has it.

    `before` is what the writer makes of `original`. Neither the original nor its lists are returned
    themselves, so that a caller may change the body.
    """
    body = _object(original, before, written)
    return {key: list(value) if isinstance(value, list | tuple) else value for key, value in body.items()}


def _value(original: Any, before: Any, written: Any) -> Any:
    if written == before:
        return original
    versions = (original, before, written)
    if all(isinstance(each, dict) for each in versions):
        return _object(*versions) if all(before.get(k) == written.get(k) for k in KINDS) else written
    if all(isinstance(each, list | tuple) for each in versions) and len(original) == len(before):
        return _list(*versions)
    return written


def _object(original: Mapping[str, Any], before: Object, written: Object) -> Object:
    """Merges the members of an object.

    Members of only the original are null or empty, or the writer has another name for them. They are kept as
    long as the writer's own members are unchanged.
    """
    names = _wire_names(original, {**before, **written})
    own = set(names.values())
    renamed_before = {key: value for key, value in before.items() if key not in own}
    renamed_written = {key: value for key, value in written.items() if key not in own}
    is_kept = renamed_before == renamed_written
    merged: Object = {}
    for key, value in original.items():
        name = names.get(key)
        if name is None:
            if is_kept or not value:
                merged[key] = value
        elif name in written:
            merged[key] = _value(value, before[name], written[name]) if name in before else written[name]
    return merged if is_kept else {**merged, **renamed_written}


def _wire_names(original: Mapping[str, Any], wire: Object) -> dict[str, str]:
    """Returns the writer's name of each member of the original, which may be in the other case style."""
    others = {_normal(key): key for key in wire if key not in original}
    names = {key: key if key in wire else others.get(_normal(key)) for key in original}
    return {key: name for key, name in names.items() if name is not None}


def _normal(key: Any) -> str:
    return str(key).replace("_", "").lower()


def _list(original: Sequence[Any], before: Sequence[Any], written: Sequence[Any]) -> list[Any]:
    found = list(written)
    for there, here in _match_elements(before, written):
        found[here] = _value(original[there], before[there], written[here])
    return found


def _match_elements(before: Sequence[Any], written: Sequence[Any]) -> Iterator[Pair]:
    """Yields the elements that are versions of each other: equal ones, and those changed in their place.

    Elements between two equal pairs were changed in their place if there are as many before as after.
    """
    ends = [(-1, -1), *_equal(before, written), (len(before), len(written))]
    for (there, here), (next_there, next_here) in pairwise(ends):
        if here >= 0:
            yield there, here
        if next_there - there == next_here - here:
            yield from zip(range(there + 1, next_there), range(here + 1, next_here), strict=True)


def _equal(before: Sequence[Any], written: Sequence[Any]) -> list[Pair]:
    """Returns the pairs of equal elements, in order.

    The end is compared first, because what leaves a conversation is old: if an element stands there twice,
    the later one is the one that stays.
    """
    most = min(len(before), len(written))
    end = next((at for at in range(most) if before[-1 - at] != written[-1 - at]), most)
    there, here = len(before) - end, len(written) - end
    tail = [(there + at, here + at) for at in range(end)]
    most = min(there, here)
    start = next((at for at in range(most) if before[at] != written[at]), most)
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at in range(start, there):
        places[_key(before[at])].append(at)
    found: list[Pair] = []
    for at in reversed(range(start, here)):
        candidates = places.get(_key(written[at]), [])
        while candidates and candidates[-1] >= there:
            candidates.pop()
        if candidates:
            there = candidates.pop()
            found.append((there, at))
    return [*((at, at) for at in range(start)), *reversed(found), *tail]


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


class BodyOrigin(NamedTuple):
    """The part of a body that a message was read from."""

    items: tuple[int, ...]
    """Positions in the list of items; empty for a system prompt beside the list."""
    blocks: tuple[int, ...] | None = None
    """Positions in the content of the only item, if other messages were read from that item as well."""
    joins: bool = False
    """True for words of the system or the user that stay or go with the message before them."""


class Kept(NamedTuple):
    """A message of a fitted request."""

    message: Message
    before: Message | None
    """The message as it was read: the same object if it did not change, None if fitting made the message."""
    origin: BodyOrigin | None
    """None if fitting made the message."""

    @property
    def is_same(self) -> bool:
        """True if the message did not change."""
        return self.message is self.before


def patch_content(kept: Kept, given: Any) -> Any:
    """Returns the content of a message in the body's own blocks, of which `given` are those that were read.

    A client may have moved cache marks since the message was read, so blocks come from the body of today.
    """
    after = kept.message["content"]
    if isinstance(after, str):
        return after if given is None or isinstance(given, str) else [text_part(after)]
    before: Sequence[Any] = () if kept.before is None else kept.before["content"]
    position = {id(part): index for index, part in enumerate(before)}
    return [given[position[id(part)]] if id(part) in position else text_part(part["text"]) for part in after]
