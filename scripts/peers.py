"""Runs the tests of LangChain's `trim_messages` on the function that stands in for it.

    .venv-integrations/langchain/bin/python scripts/peers.py

The tests come from the sdist of the installed langchain-core, which is downloaded for the run; nothing of it
is kept. Each test ends in one of a few ways (`OUTCOMES`). The numbers are kept in
`tests/integrations/peers.json`, and `scripts/docs.py` makes the table of docs/library/integrations.md.
"""
# ruff: noqa: S603 - the commands are our own

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "integrations" / "peers.json"
PACKAGE = "langchain-core"
TESTS = "tests/unit_tests/messages/test_utils.py"
APPROXIMATE = ("approximate",)
"""Names of LangChain's own counters."""
OUTCOMES = {
    "same": "the test passes",
    "refused": "the option is refused by name: it asks to keep the oldest messages, to cut messages by a "
    "splitter, to leave out the system prompt, or to count with a function",
    "overflow": "`ContextOverflowError`: what must stay does not fit, where LangChain returns less than that",
    "other": "another result: any `token_counter` that is a text is taken for the name of a model",
    "error": "an error of another kind",
}
"""Ways in which a test ends, and why."""


def main() -> int:
    """Runs the tests, prints each with its outcome and saves the numbers. Returns 2 if they cannot be had."""
    try:
        installed = version(PACKAGE)
    except PackageNotFoundError:
        print(f"skipped: {PACKAGE} is not installed here; run `make integrations HOSTS=langchain` first")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        tests = fetch(installed, Path(folder))
        if tests is None:
            print(f"skipped: the sdist of {PACKAGE} {installed} cannot be downloaded, or has no tests")
            return 2
        found = {name: outcome(test) for name, test in cases(load(tests)).items()}
    for name, ended in found.items():
        print(f"{ended:<10}{name}")
    numbers = Counter(found.values())
    rows = [[numbers[each], why] for each, why in OUTCOMES.items() if numbers[each]]
    saved = {"package": f"{PACKAGE} {installed}", "outcomes": rows}
    RESULTS.write_text(json.dumps(saved, indent=1) + "\n", "utf-8")
    return 0


def fetch(wanted: str, folder: Path) -> Path | None:
    """Downloads the sdist, and returns the file with the tests; None if that is not possible."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
    subprocess.run([*command, f"{PACKAGE}=={wanted}", "--dest", str(folder)], check=False)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return next(folder.glob(f"*/{TESTS}"), None)


def load(path: Path) -> dict[str, Any]:
    """Returns the names of the tests' module, with our function in place of LangChain's."""
    from ullage.integrations.langchain import trim_messages  # noqa: PLC0415 - LangChain may be missing

    spec = importlib.util.spec_from_file_location("peer_tests", path)
    assert spec is not None  # noqa: S101 - the path is a file
    assert spec.loader is not None  # noqa: S101 - the same
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def judged(*messages: Any, token_counter: Any = None, **options: Any) -> Any:
        # A function that counts is refused by ours; the tests need some counter, so they get our own.
        is_foreign = inspect.isfunction(token_counter) or token_counter in APPROXIMATE
        return trim_messages(*messages, token_counter=None if is_foreign else token_counter, **options)

    names = vars(module)
    names["trim_messages"] = judged
    return names


def cases(names: dict[str, Any]) -> dict[str, Any]:
    """Returns the tests of `trim_messages` that need no fixture."""
    return {
        name: test
        for name, test in names.items()
        if name.startswith("test_trim_messages") and not inspect.signature(test).parameters
    }


def outcome(test: Any) -> str:
    """Runs a test, and returns the way in which it ends."""
    import pytest  # noqa: PLC0415 - the environment of a host has it

    from ullage.errors import ConfigurationError, ContextOverflowError  # noqa: PLC0415 - as above

    try:
        with contextlib.redirect_stdout(sys.stderr):
            test()
    except ConfigurationError:
        return "refused"
    except ContextOverflowError:
        return "overflow"
    except (AssertionError, pytest.fail.Exception):
        return "other"
    except Exception:  # noqa: BLE001 - a judge reports whatever the test says
        return "error"
    return "same"


if __name__ == "__main__":
    sys.exit(main())
