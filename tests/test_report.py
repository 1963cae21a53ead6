"""The notice after a turn says how many turns are no longer sent, and how many outputs are shortened."""

from __future__ import annotations

from collections import Counter

import pytest

from ullage.shell.report import describe_changes


@pytest.mark.parametrize(
    ("changes", "notice"),
    [
        ({}, ""),
        ({"evict": 1}, "1 older turn is no longer sent"),
        ({"evict": 1_600}, "1,600 older turns are no longer sent"),
        ({"cut": 1}, "1 output is sent shortened"),
        (
            {"evict": 2, "cut": 1, "cap": 2},
            "2 older turns are no longer sent, 3 outputs are sent shortened",
        ),
    ],
)
def test_the_notice_has_the_numbers_and_right_plurals(changes: dict[str, int], notice: str) -> None:
    assert describe_changes(Counter(changes)) == notice
