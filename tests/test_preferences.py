"""Saved choices: each row reads its own values back, and anything else as its default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ullage import store
from ullage.session.preferences import (
    ALLOWANCES,
    CHOSEN_MODEL,
    PROJECT_TREES,
    ROLLING_CONTEXT,
    Allowance,
    Preference,
    TreeChoice,
    make_trust_preference,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.store.settings import PreferenceStore


ROWS: list[tuple[Preference[Any], Any]] = [
    (CHOSEN_MODEL, "openai/gpt-4o"),
    (ROLLING_CONTEXT, False),
    (PROJECT_TREES, {"/harbour": TreeChoice(depth=2), "/quay": TreeChoice(off=True)}),
    (ALLOWANCES, (Allowance(1, "command", "touch new", "/harbour", "/harbour"),)),
    (make_trust_preference(Path("/harbour/.ullage.toml")), "c0ffee"),
]


@pytest.fixture
def preferences() -> Iterator[PreferenceStore]:
    with store.open("sqlite://:memory:") as kept:
        yield kept.preferences


@pytest.mark.parametrize(("row", "value"), ROWS, ids=lambda each: getattr(each, "name", ""))
def test_a_row_reads_back_its_own_value(
    row: Preference[Any], value: Any, preferences: PreferenceStore
) -> None:
    assert row.get(preferences) == row.default
    row.set(preferences, value)
    assert row.get(preferences) == value
    assert row.update(preferences, lambda before: before) == value


@pytest.mark.parametrize("row", [CHOSEN_MODEL, PROJECT_TREES, ALLOWANCES], ids=lambda row: row.name)
@pytest.mark.parametrize("stored", [7, [7], [["x", 1]], None, {"/harbour": 3}])
def test_a_value_of_another_form_is_the_default(
    row: Preference[Any], stored: Any, preferences: PreferenceStore
) -> None:
    preferences.set(row.name, stored)
    assert row.get(preferences) == row.default


def test_a_choice_that_an_older_version_saved_is_understood(preferences: PreferenceStore) -> None:
    preferences.set("trees", {"/harbour": {"depth": None}, "/quay": {"depth": 3, "off": True}})
    assert PROJECT_TREES.get(preferences) == {"/harbour": TreeChoice(), "/quay": TreeChoice(3, off=True)}
