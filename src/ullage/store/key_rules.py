"""A migration step for gateway keys: a key says what the headers of its requests may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.store.values import encode_value, read

if TYPE_CHECKING:
    from ullage.store.connection import Connection

FIELDS = (
    *("max_age", "max_tokens_per_output", "preserve_errors", "preserve_small_outputs"),
    *("small_output_threshold", "preserve_recent_turns", "keep_first_user", "digest_share", "recall_share"),
    *("low_water", "max_turns"),
)
"""The fields of the policy that every request could set before keys had a say."""


def add_header_rules(connection: Connection) -> None:
    """Lets each key go on without new restrictions: no largest limit, and every field of the policy."""
    for identity, rules in connection.execute("SELECT id, rules FROM keys").fetchall():
        changed = {**read(rules), "largest_limit": None, "policy_fields": [*FIELDS]}
        connection.execute("UPDATE keys SET rules = ? WHERE id = ?", (encode_value(changed), identity))
