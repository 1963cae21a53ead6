"""Every test runs in a world of its own and leaves nothing behind; the profiles of Hypothesis."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import ullage
from tests.world import left_behind, make_world, observe
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["tests.watchdog"]

# The tests try the same examples each time, so that a red run means that the change is at fault; `make soak`
# is the one that goes looking.
settings.register_profile(
    "default", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak", parent=settings.get_profile("default"), max_examples=3_000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

LONG = ("test_served.py", "test_promises.py", "test_exits.py", "test_savepoint.py")
"""Test files that take long. They begin first, so that no process waits for them at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Makes the world before a test module is imported, so that its constants are made in it too."""
    home = tempfile.mkdtemp(prefix="ullage-tests-")
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    make_world(Path(home))
    # Hypothesis also draws the constants of all modules that are loaded. With every module loaded from the
    # start, its examples do not depend on which tests ran before.
    # The hosts of integrations are large, and only `make integrations` has them.
    for module in pkgutil.walk_packages(ullage.__path__, "ullage."):
        if not module.name.startswith("ullage.integrations."):
            with contextlib.suppress(ImportError, ConfigurationError):  # an extra that is not installed
                importlib.import_module(module.name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long files in front, after all tests were put in random order."""
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names the order of a run that failed, so that it can be repeated."""
    seed = getattr(config.option, "randomly_seed", None)
    if seed is not None and (terminalreporter.stats.keys() & {"failed", "error"}):
        terminalreporter.write_line(f"to repeat this order: --randomly-seed={seed}")


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Fails the test that leaves a process, a thread, a variable, a folder or a signal handler behind."""
    before = observe()
    yield
    told = left_behind(before)
    if told:
        pytest.fail("the test leaves behind:\n" + "\n".join(told), pytrace=False)
