"""Gateway keys in a store: who may use the gateway, and what each key allows.

A secret is `ullage-`, the id of its key, and 256 random bits. Only its SHA-256 hash is stored: a secret with
so many random bits cannot be guessed from its hash, so no slower hash is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.cost.keys import EVERY_MODEL, NO_LIMITS, POLICY_FIELDS, GatewayKey, Limits, check_time
from ullage.errors import ConfigurationError, KeyRefused
from ullage.intake import check_text, whole_number
from ullage.store.connection import KEYS
from ullage.store.values import LARGEST, column, encode_value, fitting, picodollars, read, text_of
from ullage.usage import dollars as read_dollars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.store.connection import Connection, Database

PREFIX = "ullage-"
"""Beginning of every secret, by which people and scanners recognise it."""
CACHED = 1.0
"""Seconds for which a key that was found is not looked up again: the most that a revocation takes to reach
other processes."""
MOST_CACHED = 10_000

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_SECRET = re.compile(rf"{PREFIX}([a-z2-7]{{8}})-[A-Za-z0-9_-]{{43}}")
_ROW = "SELECT id, name, rules, created, expires, revoked FROM keys"


class NewKey(NamedTuple):
    """A key and its secret, which is shown once and stored nowhere."""

    key: GatewayKey
    secret: str


class KeyStore:
    """The gateway keys of a store."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, tuple[float, GatewayKey]] = OrderedDict()
        """Hash of a secret → when it was looked up, and its key."""
        self._counted = float("-inf")
        self._exist = False

    # For the gateway

    def exist(self) -> bool:
        """Returns True if a key was ever made. As long as none was, a gateway is open to its own machine."""
        if not self._exist and time.monotonic() - self._counted >= CACHED:
            with self._database.reading() as connection:
                self._exist = connection.execute("SELECT 1 FROM keys LIMIT 1").fetchone() is not None
            self._counted = time.monotonic()
        return self._exist

    def find(self, secret: str) -> GatewayKey | None:
        """Returns the key of a secret; None if it is unknown, revoked or expired."""
        try:
            return self.get(secret)
        except KeyRefused:
            return None

    def get(self, secret: str) -> GatewayKey:
        """Returns the key of a secret; raises KeyRefused if it is unknown, revoked or expired."""
        named = _SECRET.fullmatch(secret)
        if named is None:
            raise KeyRefused("unknown")
        digest = _hash(secret)
        key = self._find_cached(digest)
        if key is None:
            with self._database.reading() as connection:
                key = self._look_up(connection, named[1], digest)
            self._cache(digest, key)
        check_time(key, self._clock())
        return key

    def _look_up(self, connection: Connection, identity: str, digest: bytes) -> GatewayKey:
        """Returns the key that has a secret with this hash; the comparison takes the same time for all."""
        rows = connection.execute("SELECT hash, until FROM key_secrets WHERE key = ?", (identity,)).fetchall()
        matching = [until for stored, until in rows if hmac.compare_digest(stored, digest)]
        if not matching:
            raise KeyRefused("unknown")
        key = _key(connection.execute(f"{_ROW} WHERE id = ?", (identity,)).fetchone())
        until = matching[0]
        if until is None:
            return key
        return replace(key, expires=until if key.expires is None else min(until, key.expires))

    def _find_cached(self, digest: bytes) -> GatewayKey | None:
        with self._lock:
            at, key = self._found.get(digest, (float("-inf"), None))
        return key if time.monotonic() - at < CACHED else None

    def _cache(self, digest: bytes, key: GatewayKey) -> None:
        with self._lock:
            self._found[digest] = time.monotonic(), key
            self._found.move_to_end(digest)
            if len(self._found) > MOST_CACHED:
                self._found.popitem(last=False)

    def _forget_cached(self) -> None:
        with self._lock:
            self._found.clear()
        self._counted = float("-inf")

    # For the owner

    def create(
        self,
        name: str,
        *,
        models: Sequence[str] = EVERY_MODEL,
        dollars: Limits[Decimal] = NO_LIMITS,
        tokens: Limits[int] = NO_LIMITS,
        requests_a_minute: int | None = None,
        largest_limit: int | None = None,
        policy_fields: Sequence[str] = POLICY_FIELDS,
        may_recall: bool = False,
        is_admin: bool = False,
        expires: float | None = None,
    ) -> NewKey:
        """Makes a key and its secret. Raises ConfigurationError if another valid key has the name."""
        key = GatewayKey(
            id="".join(secrets.choice(_LETTERS) for _ in range(8)),
            name=_check_name(name),
            created=self._clock(),
            models=_check_models(models),
            dollars=Limits(*(_check_dollars(limit) for limit in dollars)),
            tokens=Limits(*(_check_number(limit, "a cap in tokens") for limit in tokens)),
            requests_a_minute=_check_number(requests_a_minute, "requests_a_minute"),
            largest_limit=_check_limit(largest_limit),
            policy_fields=_check_fields(policy_fields),
            may_recall=may_recall,
            is_admin=is_admin,
            expires=expires,
        )
        with self._database.writing(KEYS) as connection:
            if any(each.name == key.name for each in self._all(connection) if self._is_valid(each)):
                raise ConfigurationError(
                    f"there is a key named {key.name!r}. Choose another name, or revoke that key first"
                )
            connection.execute(
                "INSERT INTO keys (id, name, rules, created, expires) VALUES (?, ?, ?, ?, ?)",
                (key.id, column(key.name), encode_value(_rules(key)), key.created, key.expires),
            )
            secret = self._add_secret(connection, key)
        self._forget_cached()
        return NewKey(key, secret)

    def all(self) -> tuple[GatewayKey, ...]:
        """Returns all keys, also those that were revoked, the oldest first."""
        with self._database.reading() as connection:
            return tuple(self._all(connection))

    def revoke(self, key: str) -> GatewayKey:
        """Revokes a key, by its id or name: at once here, and within a second in other processes."""
        with self._database.writing(KEYS) as connection:
            found = self._find_key(connection, key)
            now = self._clock()
            connection.execute("UPDATE keys SET revoked = ? WHERE id = ?", (now, found.id))
        self._forget_cached()
        return replace(found, revoked=now)

    def rotate(self, key: str, grace: float = 0.0) -> NewKey:
        """Gives a key a new secret; the earlier ones are valid for `grace` more seconds.

        The key keeps its id, so its caps and its costs go on.
        """
        with self._database.writing(KEYS) as connection:
            found = self._find_key(connection, key)
            until = self._clock() + grace
            connection.execute(
                "DELETE FROM key_secrets WHERE key = ? AND until < ?", (found.id, self._clock())
            )
            connection.execute(
                "UPDATE key_secrets SET until = ? WHERE key = ? AND (until IS NULL OR until > ?)",
                (until, found.id, until),
            )
            secret = self._add_secret(connection, found)
        self._forget_cached()
        return NewKey(found, secret)

    def _add_secret(self, connection: Connection, key: GatewayKey) -> str:
        secret = f"{PREFIX}{key.id}-{secrets.token_urlsafe(32)}"
        connection.execute("INSERT INTO key_secrets (key, hash) VALUES (?, ?)", (key.id, _hash(secret)))
        return secret

    def _all(self, connection: Connection) -> list[GatewayKey]:
        return [_key(row) for row in connection.execute(f"{_ROW} ORDER BY created, id").fetchall()]

    def _find_key(self, connection: Connection, name: str) -> GatewayKey:
        """Returns the valid key with this id or name."""
        for key in self._all(connection):
            if name in {key.id, key.name} and self._is_valid(key):
                return key
        raise ConfigurationError(f"there is no valid key {name!r}: `ullage keys list` shows all keys")

    def _is_valid(self, key: GatewayKey) -> bool:
        return key.revoked is None and (key.expires is None or key.expires > self._clock())


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _rules(key: GatewayKey) -> dict[str, Any]:
    """Returns what a key allows, as a JSON value."""
    return {
        "models": list(key.models),
        "dollars": [None if limit is None else str(limit) for limit in key.dollars],
        "tokens": list(key.tokens),
        "requests_a_minute": key.requests_a_minute,
        "largest_limit": key.largest_limit,
        "policy_fields": list(key.policy_fields),
        "may_recall": key.may_recall,
        "is_admin": key.is_admin,
    }


def _key(row: Sequence[Any]) -> GatewayKey:
    identity, name, rules, created, expires, revoked = row
    allowed = read(rules)
    return GatewayKey(
        id=identity,
        name=text_of(name),
        created=created,
        expires=expires,
        revoked=revoked,
        models=tuple(allowed["models"]),
        dollars=Limits(*(None if limit is None else Decimal(limit) for limit in allowed["dollars"])),
        tokens=Limits(*allowed["tokens"]),
        requests_a_minute=allowed["requests_a_minute"],
        largest_limit=allowed["largest_limit"],
        policy_fields=tuple(allowed["policy_fields"]),
        may_recall=allowed["may_recall"],
        is_admin=allowed["is_admin"],
    )


def _check_name(name: str) -> str:
    checked = check_text(name, "the name of a key").strip()
    if not checked or len(checked) > 100 or not checked.isprintable():
        raise ConfigurationError("the name of a key must have 1 to 100 characters that can be printed")
    return checked


def _check_models(models: Sequence[str]) -> tuple[str, ...]:
    patterns = tuple(check_text(pattern, "a pattern of model names").strip() for pattern in models)
    if not patterns or not all(patterns):
        raise ConfigurationError(
            "name at least one model, or a pattern such as 'gpt-4o*'; '*' is every model"
        )
    return patterns


def _check_limit(limit: int | None) -> int | None:
    if limit == 0:
        raise ConfigurationError("the largest limit must be at least 1 token")
    return _check_number(limit, "the largest limit")


def _check_fields(fields: Sequence[str]) -> tuple[str, ...]:
    for field in fields:
        if field not in POLICY_FIELDS:
            raise ConfigurationError(
                f"a request cannot set {field!r} of the policy: choose from {', '.join(POLICY_FIELDS)}"
            )
    return tuple(field for field in POLICY_FIELDS if field in fields)


def _check_dollars(limit: Decimal | None) -> Decimal | None:
    if limit is None:
        return None
    amount = read_dollars(limit, "a cap in dollars")
    fitting(picodollars(amount), "a cap in dollars")
    return amount


def _check_number(limit: int | None, what: str) -> int | None:
    if limit is None:
        return None
    whole_number(limit, what)
    if limit > LARGEST:
        raise ConfigurationError(f"{what} must be at most {LARGEST:,}")
    return limit
