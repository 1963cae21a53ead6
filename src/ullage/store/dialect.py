"""SQLite's connection and its dialect."""

from __future__ import annotations

import sqlite3

from ullage.store.connection import SqlDialect
from ullage.store.words import FtsIndex

IN_AN_EVENT = 0
"""Value in the column of a piece's text if the text is in an event of a session that uses the piece."""

SQLITE = SqlDialect(unindexed=" NOT INDEXED", in_an_event=IN_AN_EVENT, words=FtsIndex())


class SqliteConnection(sqlite3.Connection):
    """A connection to an SQLite file."""

    dialect = SQLITE
