"""The address of a PostgreSQL store, as a URL."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from ullage.errors import ConfigurationError

SCHEMA = "ullage"
"""Schema of the tables, if the URL names no other."""

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Address(NamedTuple):
    """The parts of a URL that the store needs."""

    conninfo: str
    """URL without our own option, for the driver. It may contain a password."""
    schema: str
    name: str
    """Server, database and schema, for messages to people: without user and password."""


def read_address(url: str) -> Address:
    """Reads `postgresql://user@host/database?schema=ullage`; all other options go to the driver."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:  # the text of the error may contain a password
        raise ConfigurationError(
            "the URL of the store cannot be read. Write postgresql://user@host:5432/database"
        ) from error
    options = parse_qsl(parts.query, keep_blank_values=True)
    schemas = [value for name, value in options if name == "schema"]
    schema = schemas[-1] if schemas else SCHEMA
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ConfigurationError(
            f"{schema!r} cannot be the schema of a store: use small letters, digits and _, at most 63"
        )
    rest = [(name, value) for name, value in options if name != "schema"]
    place = host or dict(rest).get("host") or "the local server"
    database = parts.path.lstrip("/") or "the default database"
    name = f"{place}{f':{port}' if port else ''}/{database}, schema {schema}"
    conninfo = urlunsplit(parts._replace(query=urlencode(rest, quote_via=quote)))
    return Address(conninfo, schema, name)
