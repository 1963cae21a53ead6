"""The figures of the last saved runs, in one small file: `results.json`, from which the charts are drawn.

`python -m bench --save NAME …` replaces the figures of the tables that it runs. The others stay as they were.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("results.json")


def saved() -> dict[str, Any]:
    """Table → its command, the date of the run, and the figures; empty if no run was saved yet."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return found


def save(table: str, figures: dict[str, Any]) -> None:
    """Replaces the figures of one table."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    entry = {"command": f"python -m bench {table}", "date": today, "figures": figures}
    whole = {**saved(), table: entry}
    FILE.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n", "utf-8")
