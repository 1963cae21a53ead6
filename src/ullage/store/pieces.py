"""Texts under the hash of their content, each kept once, and the index of their words.

A text that stands in an event of a session is not kept a second time: then the piece names the event, and has
exactly the text that `text_in` returns. So `text_in` is part of the file's format.
"""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ullage.context.journal import Piece
from ullage.context.search import AFTER, BEFORE, Said, hit_of, rank, read_handle, read_query
from ullage.fitting.pieces import letters_of
from ullage.store.values import Damaged, Unreadable, column, read, text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ullage.context.search import Hit
    from ullage.store.connection import Connection

_HANDLE = re.compile("[a-z2-7]+")

_KEPT = "pieces JOIN kept ON kept.piece = pieces.id JOIN sessions ON sessions.id = kept.session"
_PIECE = "SELECT pieces.id, pieces.hash, pieces.text, sessions.name"
_BEGINS = "pieces.hash >= :begin AND pieces.hash < :end"
_OWN = "sessions.name = :name"
_FIRST = "kept.id = (SELECT min(id) FROM kept WHERE piece = pieces.id)"  # the first session that kept it


def hash_texts(texts: Iterable[str]) -> Mapping[str, str]:
    """Returns the texts by their hash, in order."""
    return {letters_of(text): text for text in texts}


def missing(connection: Connection, session: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the texts that the session has not kept yet."""
    name = column(session)
    kept = f"SELECT 1 FROM {_KEPT} WHERE pieces.hash = ? AND sessions.name = ?"
    return {
        letters: text
        for letters, text in texts.items()
        if connection.execute(kept, (letters, name)).fetchone() is None
    }


def keep(connection: Connection, session: int, texts: Mapping[str, str], events: Mapping[str, int]) -> None:
    """Keeps each new text with its words, and notes that this session keeps it.

    `events` names the event of this session in which a text stands, by the hash of the text.
    """
    for letters, text in texts.items():
        event = events.get(letters)
        if event is not None and _text_of_event(connection, session, event) != text:
            event = None
        _keep(connection, session, letters, text, event)


def behind(connection: Connection, session: str | None) -> Mapping[int, str]:
    """Returns the sessions with turns that are not indexed yet, among this one or all: name by key."""
    query = "SELECT id, name FROM sessions WHERE indexed < length AND (:all OR name = :name) ORDER BY id"
    rows = connection.execute(query, {"all": session is None, "name": column(session or "")})
    return {key: text_of(name) for key, name in rows}


def index_turns(connection: Connection, session: int) -> None:
    """Keeps and indexes the texts of the session's turns that are not indexed yet.

    Many at once cost a fraction of one by one: each transaction with new words makes FTS5 write and merge.
    """
    for number, text in _turns_behind(connection, session):
        _keep(connection, session, letters_of(text), text, number)
    connection.execute("UPDATE sessions SET indexed = length WHERE id = ?", (session,))


def _turns_behind(connection: Connection, session: int) -> Iterator[tuple[int, str]]:
    """Returns the texts of the session's turns that are not indexed yet, by the number of their event."""
    turns = connection.execute(
        "SELECT number, data FROM events WHERE session = ? AND kind = 'turn' "
        "AND number >= (SELECT indexed FROM sessions WHERE id = ?) ORDER BY number",
        (session, session),
    )
    while some := turns.fetchmany(1_000):
        for number, data in some:
            with suppress(Unreadable):  # reading the event says so
                text = text_in(read(data)) or ""
                if text.strip():
                    yield number, text


def _keep(connection: Connection, session: int, letters: str, text: str, event: int | None) -> None:
    in_an_event, words = connection.dialect.in_an_event, connection.dialect.words
    value = column(text) if event is None else in_an_event
    row = connection.execute("SELECT id FROM pieces WHERE hash = ?", (letters,)).fetchone()
    if row is None:
        values = (letters, value)
        (key,) = connection.execute(
            "INSERT INTO pieces (hash, text) VALUES (?, ?) RETURNING id", values
        ).fetchone()
        words.add(connection, key, text)
    else:
        key = row[0]
        if event is not None:
            connection.execute("UPDATE pieces SET text = ? WHERE id = ?", (in_an_event, key))
    connection.execute(
        "INSERT INTO kept (piece, session, event) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (key, session, event),
    )


def release(connection: Connection, session: int) -> None:
    """Deletes the pieces that only this session keeps; what another one keeps too stays whole."""
    kept = connection.execute(
        "SELECT pieces.id, pieces.hash, pieces.text FROM pieces JOIN kept ON kept.piece = pieces.id "
        "WHERE kept.session = ?",
        (session,),
    ).fetchall()
    (rest,) = connection.execute("SELECT count(*) FROM kept WHERE session != ?", (session,)).fetchone()
    is_indexed = len(kept) <= rest  # if less stays than goes, indexing the rest again takes less time
    for key, letters, value in kept:
        try:
            text = _text_of_piece(connection, key, letters, value)
        except Unreadable:  # a damaged session can be deleted too
            text = None
        connection.execute("DELETE FROM kept WHERE piece = ? AND session = ?", (key, session))
        others = connection.execute("SELECT event FROM kept WHERE piece = ?", (key,)).fetchall()
        if not others:
            connection.execute("DELETE FROM pieces WHERE id = ?", (key,))
            is_indexed = text is not None and is_indexed
            if is_indexed and text is not None:
                connection.dialect.words.remove(connection, key, text)
        elif text is not None and all(event is None for (event,) in others):
            connection.execute("UPDATE pieces SET text = ? WHERE id = ?", (column(text), key))
    if not is_indexed:
        index_again(connection)


def index_again(connection: Connection) -> None:
    """Builds the index again. Single words cannot be removed from it without the text that they came from."""
    words = connection.dialect.words
    words.clear(connection)
    for key, letters, value in connection.execute("SELECT id, hash, text FROM pieces").fetchall():
        with suppress(Unreadable):
            words.add(connection, key, _text_of_piece(connection, key, letters, value))


def recall(connection: Connection, handle: str, session: str | None) -> Piece | None:
    """Returns the earliest piece whose hash begins with the handle; pieces of that session come first."""
    sought = handle.strip().lower()
    if not _HANDLE.fullmatch(sought):
        return None
    values = {"begin": sought, "end": sought + "{", "name": column(session or "")}  # { comes after z
    for whose in (_FIRST,) if session is None else (_OWN, _FIRST):
        query = f"{_PIECE} FROM {_KEPT} WHERE {_BEGINS} AND {whose} ORDER BY kept.id LIMIT 1"
        row = connection.execute(query, values).fetchone()
        if row is not None:
            return _piece(connection, row)
    newest = _newest_turn(connection, sought, session)
    if newest is not None:
        return newest
    hidden = f"SELECT hash FROM pieces{connection.dialect.unindexed} WHERE {_BEGINS}"
    if connection.execute(hidden, values).fetchone() is not None:
        raise Damaged(f"the index of pieces has lost {sought!r}")
    return None


def _newest_turn(connection: Connection, sought: str, session: str | None) -> Piece | None:
    """Returns the turn with this handle that is not indexed yet; turns of that session come first."""
    own = {} if session is None else behind(connection, session)
    for key, name in {**own, **behind(connection, None)}.items():
        for _, text in _turns_behind(connection, key):
            letters = letters_of(text)
            if letters.startswith(sought):
                return Piece(letters, text, name)
    return None


def find(
    connection: Connection, sought: str, session: str | None, most: int, without: Collection[str]
) -> Iterator[Hit]:
    """Yields the pieces that match the words, the best first; before them, the piece with this handle."""
    query, handle = read_query(sought), read_handle(sought)
    exact = recall(connection, handle, session) if handle else None
    if exact is not None and most > 0 and exact.handle not in without:
        most -= 1
        yield _hit(connection, exact, _event_of(connection, exact))
    key = None if session is None else _session_key(connection, session)
    ranked = (
        rank(connection.dialect.words.of(connection, key), query)
        if session is None or key is not None
        else []
    )
    for number in ranked:
        if most <= 0:
            return
        found = connection.execute(
            f"{_PIECE}, kept.event FROM {_KEPT} WHERE kept.id = ?", (number,)
        ).fetchone()
        if found is None:  # the index of words is damaged
            continue
        *row, event = found
        if row[1] in without or (exact is not None and row[1] == exact.handle):
            continue
        piece = _piece(connection, tuple(row))
        if query.matches(piece.text):
            most -= 1
            yield _hit(connection, piece, event)


def _session_key(connection: Connection, session: str) -> int | None:
    row = connection.execute("SELECT id FROM sessions WHERE name = ?", (column(session),)).fetchone()
    return None if row is None else int(row[0])


def _event_of(connection: Connection, piece: Piece) -> int | None:
    query = f"SELECT kept.event FROM {_KEPT} WHERE pieces.hash = ? AND sessions.name = ?"
    row = connection.execute(query, (piece.handle, column(piece.session))).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _hit(connection: Connection, piece: Piece, event: int | None) -> Hit:
    return hit_of(*piece, event, () if event is None else _around(connection, piece.session, event))


def _around(connection: Connection, session: str, event: int) -> Iterator[tuple[int, Said]]:
    """Returns the turns before and after an event; a damaged one is left out."""
    rows = connection.execute(
        "SELECT number, data FROM events WHERE session = (SELECT id FROM sessions WHERE name = ?) "
        "AND kind = 'turn' AND number BETWEEN ? AND ? ORDER BY number",
        (column(session), event - BEFORE, event + AFTER),
    ).fetchall()
    for number, value in rows:
        with suppress(Unreadable):
            data = read(value)
            text = text_in(data)
            if text is not None:
                yield number, Said(str(data["message"].get("role")), text)


def _piece(connection: Connection, row: tuple[int, str, str | bytes | int | None, str | bytes]) -> Piece:
    key, letters, value, session = row
    return Piece(letters, _text_of_piece(connection, key, letters, value), text_of(session))


def _text_of_piece(connection: Connection, key: int, letters: str, value: str | bytes | int | None) -> str:
    """Returns the text of a piece; raises Damaged if no text with this hash is left."""
    texts = [text_of(value)] if isinstance(value, str | bytes) else _texts_elsewhere(connection, key)
    for text in texts:
        if text is not None and letters_of(text) == letters:
            return text
    raise Damaged(f"the text of piece {letters!s:.12} was changed")


def _texts_elsewhere(connection: Connection, piece: int) -> Iterator[str | None]:
    """Yields the text of each event that should have the piece."""
    events = connection.execute(
        "SELECT session, event FROM kept WHERE piece = ? AND event IS NOT NULL ORDER BY id", (piece,)
    ).fetchall()
    for session, number in events:
        with suppress(Unreadable):
            yield _text_of_event(connection, session, number)


def _text_of_event(connection: Connection, session: int, number: int) -> str | None:
    row = connection.execute(
        "SELECT data FROM events WHERE session = ? AND number = ?", (session, number)
    ).fetchone()
    return None if row is None else text_in(read(row[0]))


def text_in(data: Any) -> str | None:
    """Returns the text of a message with its calls, or a command's output; None if there is neither."""
    if not isinstance(data, Mapping):
        return None
    message = data.get("message")
    if not isinstance(message, Mapping):
        text = data.get("text")
        return text if isinstance(text, str) else None
    try:
        calls = [_call(call) for call in message.get("tool_calls") or ()]
    except (AttributeError, KeyError, TypeError):
        return None
    content = message.get("content")
    return "\n".join(filter(None, (_content(content), *calls))) if calls else _content(content)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(map(_part, content)) if isinstance(content, list) else ""


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text", part.get("refusal", "")) if isinstance(part, Mapping) else ""
    return text if isinstance(text, str) else ""


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f"{function['name']} {arguments}"
