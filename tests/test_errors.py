"""Errors: each survives the way between processes, and its text speaks of what its reader can do."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from multiprocessing import get_context

import pytest

import ullage
from ullage.batch.request_text import InputError
from ullage.config.problems import InvalidSettings, Problem
from ullage.context.summary import SummaryRefused
from ullage.errors import (
    BudgetExceeded,
    ConfigurationError,
    Conflict,
    ContextOverflowError,
    InvalidConversation,
    InvalidRequest,
    KeyRefused,
    LocalModelError,
    MissingExtra,
    MissingHost,
    NotBooked,
    NotSaved,
    ProviderError,
    RateLimited,
    StoreError,
    StoreLost,
    StreamBroken,
    UllageError,
)
from ullage.shell.remedies import REMEDIES, error_text
from ullage.shell.screen import NoTerminal
from ullage.store.values import TooLarge
from ullage.tokens.request_count import BLOCKS

EVERY = [
    UllageError("something"),
    InvalidConversation("no role", index=3, field="role"),
    InvalidRequest("no model", api="openai.chat", field="model"),
    ConfigurationError("no such option"),
    MissingExtra("Parquet files need", "batch", ["pyarrow"]),
    MissingHost("LangChain", "langchain>=1.4", "No module named 'langchain'"),
    ContextOverflowError(900, 600, {"system": 700, "turns": 200}, reported=890, trimmed=False),
    BudgetExceeded("session", "monday", Decimal(1), Decimal("0.5"), Decimal(0), Decimal("0.7")),
    BudgetExceeded("key-day", "k 2026-11-18", Decimal(9), Decimal(5), Decimal(1), Decimal(4), "tokens"),
    RateLimited("laptop", 60, 12.5),
    KeyRefused("model", key="laptop", model="gpt-4o", allowed=("claude-*",)),
    Conflict("monday", 3, 5),
    StoreError("damaged"),
    StoreLost("at db.example", "the server ended", is_unknown=True),
    NotBooked("the disk is full", Decimal("0.02"), is_last=True),
    NotSaved("the disk is full", is_answer_kept=False, is_booked=True, cost=None),
    TooLarge("a number is too large"),
    LocalModelError("no file"),
    ProviderError("busy", status=429, code="rate_limit", may_retry=True, retry_after=2.5),
    StreamBroken("cut", may_retry=True),
    InvalidSettings([Problem("a.toml:3", ("context", "max"), "no such key")]),
    InputError("no JSON", line=4, column=7),
    SummaryRefused("it is empty"),
    NoTerminal("run it?"),
]


def descendants(kind: type[UllageError]) -> set[type[UllageError]]:
    return {kind}.union(*map(descendants, kind.__subclasses__()))


def test_every_class_of_error_is_among_those_that_are_tried() -> None:
    known = {kind for kind in descendants(UllageError) if kind.__module__.startswith("ullage.")}
    assert known == {type(error) for error in EVERY}


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_is_the_same_after_pickling_and_copying(error: UllageError, protocol: int) -> None:
    error.add_note("seen on Monday")
    pickled = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - made by this test
    for made in (pickled, copy.copy(error), copy.deepcopy(error)):
        assert type(made) is type(error)
        assert (str(made), made.args) == (str(error), error.args)
        assert made.__dict__ == error.__dict__
    del error.__notes__


def overflow(_: int) -> None:
    ullage.fit([{"role": "user", "content": "word " * 500}], model="gpt-4o", limit=100)


def test_an_overflow_in_a_process_pool_reaches_its_caller() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(overflow, 0).exception(timeout=120)
    assert isinstance(error, ContextOverflowError)
    assert error.limit == 100
    assert error.tokens > 500
    assert "Cannot fit request" in str(error)


def test_an_overflow_tells_the_library_of_its_own_means_and_the_shell_of_its_commands() -> None:
    for block in BLOCKS:
        error = ContextOverflowError(900, 600, {block: 900})
        for text in (str(error), error_text(error)):
            assert text.startswith("Cannot fit request: 900 tokens after trimming, 600 allowed.")
            assert "Narrow the scope or start a new session." in text
            assert f"The biggest block is {block} (900 tokens): " in text
        assert " :" not in str(error)
        assert error_text(error).endswith(f"{REMEDIES[block]}.")
    off = ContextOverflowError(900, 600, {"project": 900}, trimmed=False)
    assert "Context.set_trimming(True)" in str(off)
    assert ":rolling-context on" in error_text(off)
    assert ":tree off" in error_text(off)
    assert error_text(StoreError("damaged")) == "damaged"


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", None])
def test_the_figures_of_an_overflow_are_all_ceilings(model: str | None) -> None:
    messages = [{"role": "system", "content": "Be brief. " * 300}, {"role": "user", "content": "word " * 20}]
    with pytest.raises(ContextOverflowError) as caught:
        ullage.fit(messages, model=model, limit=100)
    assert sum(caught.value.breakdown.values()) == caught.value.tokens
    assert caught.value.tokens == ullage.count(messages, model).ceiling
