"""Writes a fold's state as bytes, so that a fold can continue without reading its history again.

`write` turns a state into bytes, `read` reads them, and `restore` makes the state out of them, for the same
options. The bytes are compressed JSON: reading them runs no code. Their size is bounded by the window's limit
and the digest's pool; the history itself is not in them. The log of what the passes did grows with the
history, so it is written in parts, and read only when somebody asks for it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.fitting.digest import Digest
from ullage.fitting.facts import Kind
from ullage.fitting.pieces import handle_of, piece_of
from ullage.fitting.series import ChangeLog, Handles, SavedLog, Series
from ullage.fitting.state import FoldState, Position, SystemPrompt, Totals, Trims
from ullage.fitting.units import Entry, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ullage.fitting.options import Options
    from ullage.fitting.series import Done
    from ullage.fitting.state import Mark
    from ullage.messages import Message

LARGEST = 4_000_000
"""The largest state in bytes that is saved."""
_PLAIN = 16 * LARGEST  # the most that they may be before they were compressed
_MADE: dict[str, Any] = {"role": "system", "content": ""}  # what stands behind a system message of our own

_KINDS = tuple(Kind)


def write(state: FoldState, about: Any) -> bytes | None:
    """Returns a state as bytes, with the JSON value `about` that identifies it; None if it is too large."""
    trims = state.trims
    plain = {
        "about": about,
        "length": len(state.history),
        "units": [_plain_unit(unit) for unit in state.live],
        "waiting": state.waiting,
        "totals": state.totals,
        "position": state.position,
        "prompt": state.prompt,
        "trims": [trims.number, trims.dropped, trims.shortened],
        "logged": len(trims.log),
        "digest": _plain_digest(trims.digest),
        "recall_room": state.recall_room,
    }
    data = _pack_json(plain)
    return data if len(data) <= LARGEST else None


def read(data: bytes) -> dict[str, Any]:
    """Returns the plain data of bytes from `write`; raises ValueError or TypeError for other bytes."""
    plain = _unpack_json(data)
    if not isinstance(plain, dict):
        raise TypeError("a state is an object")
    return plain


def restore(
    options: Options,
    plain: dict[str, Any],
    history: Sequence[Message],
    marks: Iterable[Mark],
    parts: Sequence[bytes],
) -> FoldState:
    """Returns the state that was written, for the same options.

    `history` has the messages that the fold had read, `marks` their pins and priorities, and `parts` the log.
    Raises ValueError, TypeError, KeyError or IndexError if the data is not a state of this history.
    """
    messages = list(history)
    if len(messages) != plain["length"]:
        raise ValueError("a state of another history")
    units = [_unit(unit, messages) for unit in plain["units"]]
    saved = SavedLog(plain["logged"], lambda: [row for part in parts for row in _unpack_json(part)])
    number, dropped, shortened = plain["trims"]
    trims = Trims(
        number,
        _digest(plain["digest"]),
        dropped,
        shortened,
        ChangeLog(saved),
        Handles(_Shown(saved, messages)),
    )
    return FoldState(
        options,
        Series(messages),
        Series(marks),
        Series(units[:-1]),
        units[-1] if units else None,
        tuple(plain["waiting"]),
        Totals(*plain["totals"]),
        Position(*plain["position"]),
        SystemPrompt(*plain["prompt"]),
        trims,
        plain["recall_room"],
    )


def _plain_digest(digest: Digest) -> list[Any]:
    facts = [[*fact[:6], int(fact[6])] for fact in digest.facts]
    return [digest.task, facts, digest.written, sorted(digest.values)]


def _digest(plain: Sequence[Any]) -> Digest:
    task, facts, written, values = plain
    pool = tuple([(*fact[:6], _KINDS[fact[6]]) for fact in facts])
    return Digest(task, pool, tuple(written), frozenset(values))


def _plain_unit(unit: Unit) -> list[Any]:
    return [
        unit.role,
        [_plain_entry(entry) for entry in unit.entries],
        unit.exchange,
        unit.step,
        unit.pinned,
        unit.priority,
        unit.loose,
    ]


def _plain_entry(entry: Entry) -> list[Any]:
    """Returns the figures of an entry, and its content if a pass has changed it."""
    own = entry.message.get("content")
    same = entry.message is entry.given or own == entry.given.get("content")
    return [entry.place, entry.tokens, entry.ceiling, entry.size, entry.error, entry.form, same or [own]]


def _unit(plain: Sequence[Any], history: list[Message]) -> Unit:
    role, entries, exchange, step, pinned, priority, loose = plain
    return Unit(
        role, tuple([_entry(entry, history) for entry in entries]), exchange, step, pinned, priority, loose
    )


def _entry(plain: Sequence[Any], history: list[Message]) -> Entry:
    place, tokens, ceiling, size, error, form, own = plain
    if place >= 0:
        # A message that its owner changes later is sent as it was counted.
        given: Message = deepcopy(dict(history[place]))
        history[place] = given
    else:
        given = dict(_MADE)
    message = given if own is True else {**given, "content": own[0]}
    return Entry(place, message, tokens, ceiling, given, size, error, form)


# The log ----------------------------------------------------------------------------------------------


def write_log(done: Iterable[Done]) -> bytes:
    """Returns a part of a log as bytes."""
    return _pack_json(list(done))


class _Shown(Mapping[str, bytes]):
    """The hashes behind the handles of a saved log, worked out on demand."""

    def __init__(self, log: SavedLog, history: Sequence[Message]) -> None:
        self._log = log
        self._history = history

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {handle: place for _, place, _, _, handle in self._log.read_entries() if handle}

    def __getitem__(self, handle: str) -> bytes:
        _, full = handle_of(piece_of(self._history[self._places[handle]]), {})
        return full

    def __contains__(self, handle: object) -> bool:
        return handle in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


# Bytes ------------------------------------------------------------------------------------------------


def _pack_json(plain: Any) -> bytes:
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)


def _unpack_json(data: bytes) -> Any:
    opener = zlib.decompressobj()
    try:
        plain = opener.decompress(data, _PLAIN)
        if not opener.eof:
            raise ValueError("a state that is too large, or has no end")
        return json.loads(plain)
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from error


@functools.cache
def rules() -> str:
    """Returns a hash of the code that a fold runs, so that no other version continues a saved fold."""
    made = hashlib.sha256()
    package = Path(__file__).parent.parent
    for folder in ("fitting", "tokens", "context"):
        for file in sorted((package / folder).rglob("*.*")):
            if file.suffix in {".py", ".toml", ".txt"}:
                made.update(file.read_bytes())
    for name in ("messages.py", "call_pairs.py", "text.py"):
        made.update((package / name).read_bytes())
    return made.hexdigest()
