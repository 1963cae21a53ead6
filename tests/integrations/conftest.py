"""Every test here needs the host of its module, and a server on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.strict_server import strict_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.strict_server import StrictServer


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leaves these tests alone if they are not asked for: most hosts are not installed then."""
    return True if "not integrations" in config.option.markexpr else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.integrations)
            item.add_marker(pytest.mark.enable_socket)


@pytest.fixture(autouse=True)
def _addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that the SDKs ask for; nothing reaches a provider."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")
    for name in ("LANGSMITH_TRACING", "OPENAI_AGENTS_DISABLE_TRACING"):
        monkeypatch.setenv(name, "1" if name.startswith("OPENAI") else "false")


@pytest.fixture
def page_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictServer]:
    """A server of a few steps, at the address that the SDKs take from the environment."""
    with strict_server(steps=3) as server:
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):  # LlamaIndex has a name of its own for it
            monkeypatch.setenv(name, f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


@pytest.fixture(autouse=True)
def _nothing_left() -> None:
    """Takes the place of the check for leftovers: hosts keep threads for their logs and pools."""
