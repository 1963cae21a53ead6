"""Connections to PostgreSQL through psycopg, and error messages that say what to do."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError, StoreError, StoreLost
from ullage.patience import Busy, current_limit
from ullage.store.connection import SqlDialect
from ullage.store.postgres.words import WordTable
from ullage.store.values import Damaged, Unreadable, remedy

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus

    from ullage.store.postgres.texts import adapt_texts
except ImportError as error:
    raise ConfigurationError(
        "a store in PostgreSQL needs psycopg. Install it with: pip install 'ullage[postgres]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ullage.store.connection import Cursor
    from ullage.store.postgres.address import Address

POSTGRES = SqlDialect(unindexed="", in_an_event=None, words=WordTable())

# The other side of a broken network is noticed within a minute, by the client and by the server.
_CLIENT = {
    "application_name": "ullage",
    "client_encoding": "utf8",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_SERVER = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}

# Messages for PostgreSQL's error codes, by the beginning of the code.
MEANINGS: Mapping[str, str] = {
    "55P03": "another process has kept it locked for too long. Try again",
    "40P01": "two transactions waited for each other. Try again",
    "53100": "there is no room left on its disk. Free some space, and try again",
    "53300": "it has too many connections. Raise max_connections, or run fewer processes",
    "53": "its server has too few resources. Free some, and try again",
    "28": "its server does not accept the user or the password. Check the URL; a password may also be in "
    "PGPASSWORD or ~/.pgpass",
    "3D": "there is no such database. Create it with `createdb`, or check the URL",
    "42501": "its user may not do this. Grant the user CREATE on the database, or let an administrator make "
    "the schema and own it to the user",
    "25006": "its server is read-only. Use the URL of the primary server",
    "54": "a name or text is longer than PostgreSQL's limit. Shorten it",
    "XX001": "it is damaged. Restore a backup",
    "XX002": "it is damaged. Restore a backup, or make its indexes again with REINDEX",
}

# The same for a connection that was refused, which has no code: by words of the server's message.
CONNECTION_MEANINGS: Mapping[str, str] = {
    "password": MEANINGS["28"],
    "pg_hba.conf": MEANINGS["28"],
    "role": MEANINGS["28"],
    "database": MEANINGS["3D"],
    "too many": MEANINGS["53300"],
}

_NAMED = re.compile(r"(?<![:\w]):([a-z]+)\b")


class PostgresConnection:
    """A connection to a PostgreSQL server, which takes the statements that are written for SQLite too."""

    dialect = POSTGRES

    def __init__(self, address: Address) -> None:
        with store_errors(address.name):
            options: dict[str, Any] = {**_CLIENT, **conninfo_to_dict(address.conninfo)}
            settings = {"search_path": address.schema, **_SERVER}
            given = " ".join(f"-c {name}={value}" for name, value in settings.items())
            options["options"] = f"{options.get('options', '')} {given}".strip()
            self.raw = psycopg.connect(**options, autocommit=True)
            adapt_texts(self.raw)

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor:
        """Runs a statement."""
        return self.raw.execute(_convert_placeholders(statement), values or None)

    @property
    def is_lost(self) -> bool:
        """True if the connection is closed or broken."""
        return self.raw.closed

    @property
    def is_idle(self) -> bool:
        """True if the connection is usable and no transaction is open."""
        return self.raw.info.transaction_status == TransactionStatus.IDLE

    def close(self) -> None:
        """Closes the connection."""
        self.raw.close()


@functools.lru_cache(512)
def _convert_placeholders(statement: str) -> bytes:
    """Returns a statement with psycopg's placeholders instead of `?` and `:name`."""
    return _NAMED.sub(r"%(\1)s", statement.replace("?", "%s")).encode()


@contextlib.contextmanager
def store_errors(
    name: str, connection: PostgresConnection | None = None, *, is_commit: bool = False
) -> Iterator[None]:
    """Turns each error of psycopg, and each damaged row, into a StoreError that says what to do."""
    try:
        yield
    except Damaged as error:
        raise StoreError(f"the store {name} is damaged: {error.what}. {remedy(error.session)}") from error
    except Unreadable as error:
        raise StoreError(f"the store {name} is damaged. Restore a backup. [{error}]") from error
    except psycopg.errors.LockNotAvailable as error:
        if current_limit().is_retried:
            raise Busy from error
        raise _explain_error(name, error) from error
    except psycopg.Error as error:
        if connection is not None and connection.is_lost:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise StoreLost(name, reason, is_unknown=is_commit) from error
        raise _explain_error(name, error) from error


def _explain_error(name: str, error: psycopg.Error) -> StoreError:
    code = error.sqlstate or ""
    detail = " ".join(str(error).split())
    if code:
        known = (meaning for begin, meaning in MEANINGS.items() if code.startswith(begin))
        reason = next(known, "PostgreSQL reported an error")
    else:
        said = (meaning for words, meaning in CONNECTION_MEANINGS.items() if words in detail)
        reason = next(said, "its server cannot be reached. Check the URL, and that the server is running")
    return StoreError(f"the store {name} cannot be used: {reason}. [{code or 'psycopg'}: {detail}]")
