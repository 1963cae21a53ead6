"""Texts under the hash of their content, each kept once, and the index of their words."""
# ruff: noqa: S608 - the names in these statements are our own

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.context.journal import Piece
from ullage.fitting.shorten import letters_of
from ullage.store.values import column, text_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

# Scripts that put no space between words. Each of their characters is indexed as a word of its own, and a
# word that is looked for is then a phrase of them.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff])"
)
_HANDLE = re.compile("[a-z2-7]+")

_KEPT = "pieces JOIN kept ON kept.piece = pieces.id JOIN sessions ON sessions.id = kept.session"
_PIECE = "SELECT pieces.hash, pieces.text, sessions.name"
_BEGINS = "pieces.hash >= :begin AND pieces.hash < :end"
_OWN = "sessions.name = :name"
_FIRST = "kept.id = (SELECT min(id) FROM kept WHERE piece = pieces.id)"  # the first session that kept it

# The best are picked before anything else is looked up: of the commonest word there may be 100,000.
_IN_ALL = "SELECT rowid AS piece, bm25(words) AS worth, rowid AS age FROM words WHERE words MATCH :query"
_IN_OWN = (
    "SELECT kept.piece, bm25(words) AS worth, kept.id AS age FROM words CROSS JOIN kept "
    "WHERE words MATCH :query AND kept.piece = words.rowid "
    "AND kept.session = (SELECT id FROM sessions WHERE name = :name)"
)


def hashed(texts: Iterable[str]) -> Mapping[str, str]:
    """The texts by their hash, in order."""
    return {letters_of(text): text for text in texts}


def missing(connection: sqlite3.Connection, session: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    """Those that the session has not kept yet."""
    name = column(session)
    kept = f"SELECT 1 FROM {_KEPT} WHERE pieces.hash = ? AND sessions.name = ?"
    return {
        letters: text
        for letters, text in texts.items()
        if connection.execute(kept, (letters, name)).fetchone() is None
    }


def keep(connection: sqlite3.Connection, session: int, texts: Mapping[str, str]) -> None:
    """Keeps each text, if it is new, with its words, and that this session has kept it."""
    for letters, text in texts.items():
        row = connection.execute("SELECT id FROM pieces WHERE hash = ?", (letters,)).fetchone()
        if row is None:
            values = (letters, column(text))
            key = connection.execute("INSERT INTO pieces (hash, text) VALUES (?, ?)", values).lastrowid
            connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (key, spaced(text)))
        else:
            key = row[0]
        connection.execute("INSERT OR IGNORE INTO kept (piece, session) VALUES (?, ?)", (key, session))


def recall(connection: sqlite3.Connection, handle: str, session: str | None) -> Piece | None:
    """The earliest piece whose hash begins with the handle, that session's own first."""
    sought = handle.strip().lower()
    if not _HANDLE.fullmatch(sought):
        return None
    values = {"begin": sought, "end": sought + "{", "name": column(session or "")}  # { comes after z
    for whose in (_FIRST,) if session is None else (_OWN, _FIRST):
        query = f"{_PIECE} FROM {_KEPT} WHERE {_BEGINS} AND {whose} ORDER BY kept.id LIMIT 1"
        row = connection.execute(query, values).fetchone()
        if row is not None:
            return _piece(row)
    return None


def search(connection: sqlite3.Connection, words: str, session: str | None, most: int) -> Sequence[Piece]:
    """The pieces with all the words, the best first and of equals the newest."""
    query = phrases(words)
    if not query or most <= 0:
        return ()
    found, whose = (_IN_ALL, _FIRST) if session is None else (_IN_OWN, _OWN)
    rows = connection.execute(
        f"{_PIECE} FROM ({found} ORDER BY worth, age DESC LIMIT :most) AS found JOIN {_KEPT} "
        f"WHERE pieces.id = found.piece AND {whose} ORDER BY found.worth, found.age DESC",
        {"query": query, "name": column(session or ""), "most": min(most, 2**31)},
    ).fetchall()
    return tuple(map(_piece, rows))


def spaced(text: str) -> str:
    """Text as it is indexed: a space at each character that is a word, and none that UTF-8 cannot write."""
    if text.isascii():
        return text
    return _UNSPACED.sub(r" \1 ", text).encode("utf-8", "replace").decode()


def phrases(words: str) -> str:
    """A query for words as they are: each a quoted phrase, so that none can be taken for syntax."""
    sought = words.replace("\0", " ").replace('"', " ").split()
    return " ".join(f'"{spaced(word)}" *' for word in sought if any(map(str.isalnum, word)))


def _piece(row: tuple[str, str | bytes, str | bytes]) -> Piece:
    return Piece(row[0], text_of(row[1]), text_of(row[2]))
