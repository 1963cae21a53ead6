"""One question passes the modules that docs/inside/architecture.md lists, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.walk import PIER, walk_of_a_question
from ullage.text import DIGEST_OPEN, RECALL_OPEN

if TYPE_CHECKING:
    from tests.walk import Walk

pytestmark = pytest.mark.enable_socket

PAGE = Path(__file__).parents[1] / "docs" / "inside" / "architecture.md"
ROW = re.compile(r"^\| `([\w.]+)` \| `([\w.]+)` \|", re.MULTILINE)
CALL = re.compile(r"^ *([\w.]+) +([\w.]+) {2,}\S", re.MULTILINE)
MOST_DOORS = 25
MOST_MODULES = 90


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Walk, str]:
    return walk_of_a_question(tmp_path_factory.mktemp("walk"))


def section() -> str:
    return PAGE.read_text().partition("\n## The way of one question\n")[2].partition("\n## ")[0]


def test_the_page_lists_every_door_of_a_question_and_nothing_else(walked: tuple[Walk, str]) -> None:
    walk, _ = walked
    assert sorted(module for module, _ in ROW.findall(section())) == sorted(walk.doors)


def test_the_page_names_functions_at_which_a_question_passes_the_doors(walked: tuple[Walk, str]) -> None:
    walk, _ = walked
    assert {*ROW.findall(section())} <= walk.entered


def test_every_call_on_the_page_is_made(walked: tuple[Walk, str]) -> None:
    walk, _ = walked
    calls = CALL.findall(section().partition("```text\n")[2].partition("```")[0])
    assert len(calls) == 13
    assert {*calls} <= walk.called


def test_a_question_passes_few_modules(walked: tuple[Walk, str]) -> None:
    walk, _ = walked
    assert len(walk.doors) <= MOST_DOORS
    assert len(walk.modules) <= MOST_MODULES


def test_the_question_that_is_traced_is_a_hard_one(walked: tuple[Walk, str]) -> None:
    """Its request was trimmed, has a digest, and quotes the passage that it needs."""
    _, request = walked
    quoted = request.partition(RECALL_OPEN)[2]
    assert DIGEST_OPEN in request
    assert PIER in quoted
