"""Names a saved fold by a hash of the rules, the options and the events that made it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.context.blocks import Blocks
    from ullage.context.bounds import Bounds
    from ullage.context.state import Compaction

PROBE = "Where did we put the parser? src/parser.py:17 0x7f3a 東京 \N{SNOWMAN}\n"
"""A text that different tokenizers are very unlikely to count alike."""


def name_of(bounds: Bounds, first: Blocks) -> str | None:
    """Returns a name made of everything that decides the fold's result; None if JSON cannot hold it."""
    from ullage.fitting.snapshot import rules  # noqa: PLC0415 - most conversations are never trimmed

    counter, tokenizer = bounds.counter(), bounds.tokenizer
    options = {
        "rules": rules(),
        "target": asdict(bounds.target),
        "limit": bounds.limit,
        "policy": asdict(bounds.applied),
        "tools": bounds.tools,
        "factor": asdict(bounds.factor),
        "tokenizer": None if tokenizer is None else [type(tokenizer).__qualname__, tokenizer.name],
        "probe": [counter.text(PROBE), counter.message({"role": "user", "content": PROBE}), counter.exact],
        "blocks": first,
    }
    try:
        return _hash(options)
    except (TypeError, ValueError):
        return None


def describe(renewals: Sequence[Any], compactions: Sequence[Compaction], rewound: int) -> dict[str, Any]:
    """Returns the renewals, compactions and rewinds of a fold as a few numbers."""
    return {
        "renewals": len(renewals),
        "blocks": _hash(renewals),
        "compactions": len(compactions),
        "shares": _hash(list(compactions)),
        "rewound": rewound,
    }


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Returns a set in sorted order; raises TypeError for any other value."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
