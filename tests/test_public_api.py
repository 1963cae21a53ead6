"""The names that others build on, and what importing them costs nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ullage
from ullage.call_pairs import check_conversation
from ullage.errors import InvalidConversation

PUBLIC = """
Budget BudgetExceeded BudgetReport Calibration Change Client Compress ConfigurationError Conflict Context
ContextOverflowError Count Draft Edit FitPolicy Fitted FittedRequest InvalidConversation InvalidRequest Ledger
LocalModelError Meter ModelInfo Pass ProviderError RequestWindow StoreError StreamBroken Target
Tokenizer UllageError Usage Window __version__ check_budget count count_request
enforce_context_limit fit fit_request get_tokenizer model_info register_model register_tokenizer
"""


def test_the_public_names_are_these_and_each_is_there() -> None:
    assert sorted(ullage.__all__) == sorted(PUBLIC.split())
    assert dir(ullage) == sorted(ullage.__all__)
    for name in ullage.__all__:
        assert getattr(ullage, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = ullage.fitt  # type: ignore[attr-defined]


def test_importing_ullage_loads_nothing_heavy() -> None:
    code = "import sys, ullage; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"splintr", "rich", "orjson", "json", "argparse", "dataclasses", "typing"}


def call(name: str) -> dict[str, object]:
    return {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def result(name: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": name, "content": "ok"}


def calls(*names: str) -> dict[str, object]:
    return {"role": "assistant", "content": None, "tool_calls": [call(name) for name in names]}


@pytest.mark.parametrize(
    "messages",
    [
        [calls("a", "b"), result("b"), result("a")],
        [calls("a", "a"), result("a"), result("a")],
        [calls("a"), result("a"), calls("a"), result("a")],
        [calls("", ""), result(""), result("")],
    ],
)
def test_results_pair_by_id_in_any_order_and_by_position_where_an_id_is_reused(
    messages: list[object],
) -> None:
    check_conversation(messages)


@pytest.mark.parametrize(
    ("messages", "index"),
    [
        ([result("a")], 0),
        ([calls("a"), result("b")], 1),
        ([calls("a"), result("a"), result("a")], 2),
        ([calls("a"), {"role": "user", "content": "hm"}], 1),
        ([calls("a", "b"), result("a"), calls("c")], 2),
        ([calls("a")], None),
    ],
)
def test_broken_pairs_are_refused_where_they_break(messages: list[object], index: int | None) -> None:
    with pytest.raises(InvalidConversation) as caught:
        check_conversation(messages)
    assert caught.value.index == index
