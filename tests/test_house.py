"""The code reads as the style asks: modules are nouns, names are unique, docstrings name their subject."""

from __future__ import annotations

import pytest
from scripts.house import OURS, Figures, measure

ALLOWED_PRIVATE = {
    "self._content._read_nowait": "aiohttp has no public way to read what has arrived without waiting",
}


@pytest.fixture(scope="module")
def figures() -> Figures:
    return measure(OURS)


@pytest.mark.parametrize("name", ["gerunds", "twice", "cycles", "riddles", "verbless"])
def test_nothing_is_listed(figures: Figures, name: str) -> None:
    assert getattr(figures, name) == []


def test_private_names_of_others_are_used_only_with_a_reason(figures: Figures) -> None:
    assert {access.rpartition(": ")[2] for access in figures.private} == ALLOWED_PRIVATE.keys()


def test_modules_and_functions_stay_small(figures: Figures) -> None:
    assert max(figures.functions) <= 60
    assert sorted(figures.modules)[-len(figures.modules) // 20] <= 400
    assert max(figures.parameters) <= 10
