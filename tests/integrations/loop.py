"""The loop that every host must run to its end, and the checks that are the same for all hosts.

A host's test module has a function that runs the host's agent against the server, with the glue or without,
and returns what the host has stored afterwards. `check_loop` does the rest.
"""

from __future__ import annotations

import base64
import contextlib
import json
import linecache
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.strict_server import STEPS, pages_of, read_page, strict_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.strict_server import Report, StrictServer

PAGE = Path(__file__).parents[2] / "docs" / "library" / "integrations.md"
LIMIT, RESERVE = 8_192, 1_000
"""The limit of every loop: the server's window, less room for the answer."""
OURS = re.compile(r"\[(?:earlier conversation|recalled from|the user's task|content truncated)")
"""What fitting writes into requests, and what no host may come to store."""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture."""
PICTURE_TOKENS = 255
"""The least tokens that a picture costs with gpt-4o."""
UNTOUCHED = 8
"""Requests at the beginning of a loop that need no trim: with the glue they are the same as without."""


def check_loop(
    run: Callable[[StrictServer, bool], Any],
    record: Callable[[str, object], None],
    *,
    pairs: bool = True,
    serve: Callable[[], AbstractContextManager[StrictServer]] | None = None,
) -> Report:
    """Runs a host with and without the glue, and records its figures.

    `run(server, glued)` returns everything that the host stored, in any form. Without the glue the host may
    raise: the loop must end with an overflow. `serve` starts another server for each run.
    """
    serve = serve or (lambda: strict_server(pairs=pairs))
    with serve() as bare, contextlib.suppress(Exception):
        run(bare, False)
    without = bare.report()
    assert not without.finished, "the loop needs no glue: the test is too weak"
    assert without.overflows > 0
    assert without.invalid == ()
    with serve() as server:
        stored = run(server, True)
    report = server.report()
    assert report.invalid == ()
    assert report.overflows == 0
    assert report.finished
    assert report.steps == STEPS
    check_stored(stored, pairs=pairs)
    lost = differences(bare.bodies[:UNTOUCHED], server.bodies[:UNTOUCHED])
    assert lost == []
    figures = {**asdict(report), "died_at": without.steps, "lost": lost}
    record("loop", json.dumps(figures))
    return report


def check_stored(stored: Any, *, pairs: bool = True) -> None:
    """The host still has every page as it was, and nothing of ours."""
    texts = "\n".join(strings_of(stored))
    for step in range(STEPS):
        for page in pages_of(step, pairs=pairs):
            assert read_page(page) in texts, f"page {page} is no longer stored"
    assert not OURS.search(texts)


def strings_of(value: Any) -> list[str]:
    """All texts in a value: its members, and the attributes of objects."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings_of(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in strings_of(each)]
    return strings_of(vars(value)) if hasattr(value, "__dict__") else []


def differences(bare: list[Any], glued: list[Any]) -> list[str]:
    """A sentence for each request that the glue changed although it fitted."""
    assert len(bare) == len(glued) == UNTOUCHED
    return [
        f"request {place}: {json.dumps(one)[:500]} became {json.dumps(other)[:500]}"
        for place, (one, other) in enumerate(zip(bare, glued, strict=True))
        if one != other
    ]


BLOCK = re.compile(r"^```python no-run host=(?P<host>\w+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


def run_page(host: str) -> dict[str, Any]:
    """Runs the examples of a host on the page of integrations, and returns their names."""
    text = PAGE.read_text("utf-8")
    bodies = [
        "\n" * text.count("\n", 0, match.start("body")) + match["body"]
        for match in BLOCK.finditer(text)
        if match["host"] == host
    ]
    assert bodies, f"the page has no example for {host}"
    names: dict[str, Any] = {"__name__": "__main__"}
    # Some hosts read the source of a function.
    linecache.cache[PAGE.name] = (len(text), None, text.splitlines(keepends=True), PAGE.name)
    for body in bodies:
        exec(compile(body, PAGE.name, "exec"), names)  # noqa: S102 - our own page
    return names
