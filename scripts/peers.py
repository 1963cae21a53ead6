"""Runs other projects' own tests of trimming on the functions and classes of ours that stand in for theirs.

    python scripts/peers.py             every peer whose environment is there; `make integrations` makes them
    python scripts/peers.py litellm     one of them

The tests come from the sdist of the installed package, which is downloaded for the run. LiteLLM's sdist has
no such tests, so they come from a checkout: `ULLAGE_PEER_SOURCES` names the folder that has it, under the
name of its repository. Nothing of the tests is kept. Each test ends in one of a few ways (`Peer.outcomes`).
The numbers are kept in `tests/integrations/peers.json`, and `scripts/docs.py` makes the table of
docs/library/integrations.md.
"""
# ruff: noqa: S603 - the commands are our own

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "integrations" / "peers.json"
ENVIRONMENTS = ROOT / ".venv-integrations"
SOURCES = "ULLAGE_PEER_SOURCES"
"""The variable that names the folder of checkouts."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A project whose tests judge ours."""

    package: str
    stands_in: str
    """What of ours takes the place of what the tests test."""
    packed: str | None
    """The tests in the sdist; None if it has none."""
    checkout: str
    """The tests in the folder of checkouts."""
    chosen: Callable[[str], bool]
    """True for the names of the tests that judge."""
    replacements: Callable[[], Mapping[str, Any]]
    """Names in the module of the tests → ours."""
    outcomes: Mapping[str, str]
    """Ways in which a test ends, and why."""


def langchain() -> Mapping[str, Any]:
    """Returns ours in place of LangChain's `trim_messages`."""
    from ullage.integrations.langchain import trim_messages  # noqa: PLC0415 - LangChain may be missing

    def judged(*messages: Any, token_counter: Any = None, **options: Any) -> Any:
        # A function that counts is refused by ours; the tests need some counter, so they get our own.
        is_foreign = inspect.isfunction(token_counter) or token_counter == "approximate"  # noqa: S105 - a name
        return trim_messages(*messages, token_counter=None if is_foreign else token_counter, **options)

    return {"trim_messages": judged}


def litellm() -> Mapping[str, Any]:
    """Returns ours in place of LiteLLM's `trim_messages`."""
    from ullage.integrations.litellm import trim_messages  # noqa: PLC0415 - LiteLLM may be missing

    return {"trim_messages": trim_messages}


def autogen() -> Mapping[str, Any]:
    """Returns ours in place of AutoGen's `TokenLimitedChatCompletionContext`."""
    from ullage.integrations.autogen import FitChatCompletionContext  # noqa: PLC0415 - as above

    return {"TokenLimitedChatCompletionContext": FitChatCompletionContext}


SAME = "the test passes"
ERROR = "an error of another kind"
PEERS = {
    "langchain": Peer(
        package="langchain-core",
        stands_in="`trim_messages`",
        packed="tests/unit_tests/messages/test_utils.py",
        checkout="langchain/libs/core/tests/unit_tests/messages/test_utils.py",
        chosen=lambda name: name.startswith("test_trim_messages"),
        replacements=langchain,
        outcomes={
            "same": SAME,
            "ConfigurationError": "the option is refused by name: it asks to keep the oldest messages, to "
            "cut messages by a splitter, to leave out the system prompt, or to count with a function",
            "ContextOverflowError": "`ContextOverflowError`: what must stay does not fit, where LangChain "
            "returns less than that",
            "AssertionError": "another result: any `token_counter` that is a text is taken for the name of a "
            "model",
            "error": ERROR,
        },
    ),
    "litellm": Peer(
        package="litellm",
        stands_in="`trim_messages`",
        packed=None,
        checkout="litellm/tests/litellm_utils_tests/test_utils.py",
        chosen=lambda name: "trimming" in name,
        replacements=litellm,
        outcomes={
            "same": SAME,
            "ContextOverflowError": "`ContextOverflowError`: the system prompt and the last message do not "
            "fit, where LiteLLM cuts out the middle of the message, leaves out the system prompt, or returns "
            "results without their calls and over the limit",
            "AssertionError": "another result",
            "error": ERROR,
        },
    ),
    "autogen": Peer(
        package="autogen-core",
        stands_in="`TokenLimitedChatCompletionContext`",
        packed="tests/test_model_context.py",
        checkout="autogen/python/packages/autogen-core/tests/test_model_context.py",
        chosen=lambda name: name.startswith("test_token_limited"),
        replacements=autogen,
        outcomes={
            "same": SAME,
            "ContextOverflowError": "`ContextOverflowError`: the limit leaves no room for the header that "
            "the template of Llama 3.3 adds on Ollama, which AutoGen does not count",
            "ConfigurationError": "`ConfigurationError`: no limit is given, and the window that Ollama gives "
            "Llama 3.3 is not known; AutoGen has a fixed number for it",
            "AssertionError": "another result",
            "error": ERROR,
        },
    ),
}


def main(chosen: list[str]) -> int:
    """Runs the tests of the chosen peers, or of all. Returns 2 if none could be run."""
    if chosen[:1] == ["--here"]:
        return judge(chosen[1])
    ran = 0
    for name in chosen or PEERS:
        python = ENVIRONMENTS / name / "bin" / "python"
        if not python.exists():
            print(f"skipped: {name} is not installed; run `make integrations HOSTS={name}` first")
            continue
        command = [str(python), str(Path(__file__)), "--here", name]
        ran += subprocess.run(command, check=False).returncode == 0
    return 0 if ran else 2


def judge(name: str) -> int:
    """Runs the tests of a peer with this interpreter, prints each with its outcome, and saves the numbers."""
    peer = PEERS[name]
    installed = version(peer.package)
    with tempfile.TemporaryDirectory() as folder:
        tests = find_tests(peer, installed, Path(folder))
        if tests is None:
            print(
                f"skipped: no tests of {peer.package} {installed}. Its sdist has none or cannot be had; "
                f"{SOURCES} may name a folder with {peer.checkout}"
            )
            return 2
        found = run(peer, tests)
    for test, ended in found.items():
        print(f"{ended:<22}{test}")
    numbers = Counter(found.values())
    rows = [[numbers[each], why] for each, why in peer.outcomes.items() if numbers[each]]
    saved = json.loads(RESULTS.read_text("utf-8"))
    saved[name] = {"package": f"{peer.package} {installed}", "stands_in": peer.stands_in, "outcomes": rows}
    ordered = {each: saved[each] for each in PEERS if each in saved}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")
    return 0


def find_tests(peer: Peer, wanted: str, folder: Path) -> Path | None:
    """Returns the file with the tests: from the sdist, else from a checkout; None if there is neither."""
    if peer.packed is not None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary"]
        subprocess.run(
            [*command, peer.package, f"{peer.package}=={wanted}", "--dest", str(folder)], check=False
        )
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
        found = next(folder.glob(f"*/{peer.packed}"), None)
        if found is not None:
            return found
    named = os.environ.get(SOURCES)
    own = Path(named) / peer.checkout if named else None
    return own if own is not None and own.is_file() else None


def run(peer: Peer, tests: Path) -> dict[str, str]:
    """Returns how each test ends. A test that has parameters is run with each of them."""
    import pytest  # noqa: PLC0415 - the environment of a host has it

    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is fetched for the tests
    judge = Judge(peer)
    quiet = ["-q", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", "-W", "ignore"]
    pytest.main([*quiet, "-c", os.devnull, "--rootdir", str(tests.parent), "--tb=short", str(tests)], [judge])
    return judge.found


class Judge:
    """A plugin of pytest that puts ours in place of theirs, and notes how each test ends."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.found: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leaves the tests that judge, with ours in their module."""
        items[:] = [item for item in items if self._peer.chosen(item.name)]
        for module in {item.module for item in items}:
            vars(module).update(self._peer.replacements())

    def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool | None:
        """Runs a coroutine; no plugin is needed for that."""
        if not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
        asyncio.run(pyfuncitem.obj(**given))
        return True

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Notes how a test ends: an error of its own, or none."""
        if call.excinfo is not None:
            kinds = [kind.__name__ for kind in call.excinfo.type.__mro__]
            known = [kind for kind in kinds if kind in self._peer.outcomes]
            is_claim = call.excinfo.typename == "Failed"  # pytest.fail, and pytest.raises without an error
            self.found[item.name] = known[0] if known else "AssertionError" if is_claim else "error"
        elif call.when == "call":
            self.found[item.name] = "same"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
