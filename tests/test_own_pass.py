"""A pass of a caller's own works wherever a policy does, and cannot break a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ullage
from tests.strategies import drop_exchanges, name_results
from ullage import Context, Draft, Edit, FitPolicy, Pass, Window, store
from ullage.batch.fitted_request import fit_body, fit_line
from ullage.batch.job import Job
from ullage.cli.verdicts import verdicts
from ullage.context.window_cache import EVERY
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting.passes import PASSES
from ullage.fitting.policy import STRATEGY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OWN = FitPolicy(trim_strategy=(name_results, drop_exchanges, "recent", "cut"))


def talk(exchanges: int) -> list[dict[str, Any]]:
    """Exchanges with a step in the middle of each."""
    messages: list[dict[str, Any]] = []
    for number in range(exchanges):
        function = {"name": "look", "arguments": "{}"}
        messages += [
            {"role": "user", "content": f"How many boats are at pier {number}?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} boats. " * 30},
            {"role": "assistant", "content": f"There are {number} boats."},
        ]
    return [*messages, {"role": "user", "content": "And in all?"}]


def test_its_changes_have_its_name() -> None:
    messages = talk(30)
    changes = ullage.fit(messages, model="gpt-4o", limit=900, policy=OWN).changes
    assert {change.kind for change in changes} == {"name_results", "drop_exchanges"}
    assert {change.kind for change in changes if change.evicted} == {"drop_exchanges"}
    assert all((change.tokens_after == 0) == change.evicted for change in changes)


def test_a_built_in_pass_without_a_kind_of_change_gives_its_changes_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PASSES, "cap", Pass("cap", name_results))
    policy = FitPolicy(trim_strategy=("cap", "evict", "recent", "cut"))
    changes = ullage.fit(talk(30), model="gpt-4o", limit=900, policy=policy).changes
    assert {change.kind for change in changes} == {"cap", "evict"}


def test_a_window_comes_to_the_same_request() -> None:
    messages = talk(30)
    window = Window(model="gpt-4o", limit=900, policy=OWN)
    for message in messages:
        window.append(message)
    fitted = ullage.fit(messages, model="gpt-4o", limit=900, policy=OWN)
    assert window.fitted().messages == fitted.messages
    assert window.fitted().dropped == fitted.dropped > 0


def test_a_conversation_reports_it_and_reads_its_history_again_to_the_same_request(tmp_path: Path) -> None:
    messages = talk(EVERY)
    with store.open(tmp_path / "kept.db") as kept:
        options: dict[str, Any] = {"model": "gpt-4o", "token_budget": 900, "max_turns": None, "policy": OWN}
        context = Context(session="s", journal=kept.journal, **options)
        for message in messages:
            if message["role"] == "assistant":
                context.fitted()
            context.append(message)
        fitted = context.fitted()
        counted = context.pop_changes()
        assert counted["evict"] == fitted.dropped > 0
        assert counted["name_results"] > 0
        assert {change.kind for change in context.changes} == {"name_results", "drop_exchanges"}
        again = Context.resume("s", kept.journal, **options)
        assert again.fitted().messages == fitted.messages
        assert [hit for hit in again.search("pier 3") if "pier 3" in hit.text]


def test_explain_shows_its_changes_under_its_name() -> None:
    job = Job("explain", limit=900, policy=OWN)
    body = {"messages": talk(30), "model": "gpt-4o"}
    shown = {(each.what, each.why) for each in verdicts(fit_body(job, body), OWN)}
    assert ("name_results", "changed by the pass 'name_results'") in shown
    assert ("drop_exchanges", "evicted by the pass 'drop_exchanges'") in shown
    assert ("drop_exchanges", "the task: now above the digest") in shown or all(
        what != "evicted" for what, _ in shown
    )
    _, figures, _ = fit_line(job, body)
    assert {each["kind"] for each in figures["changes"] if each["evicted"]} == {"drop_exchanges"}


def test_a_pass_runs_only_above_its_level() -> None:
    ran: list[int] = []

    def spy(draft: Draft) -> Iterator[Edit]:
        ran.append(draft.ceiling)
        yield from ()

    messages = talk(30)
    policy = FitPolicy(trim_strategy=(*STRATEGY, Pass("spy", spy, above="limit", until="limit")))
    ullage.fit(messages, model="gpt-4o", limit=900, policy=policy)
    assert ran == []
    with pytest.raises(ContextOverflowError):
        ullage.fit(messages, model="gpt-4o", limit=8, policy=policy)
    assert ran


def _drop(which: Callable[[Draft], Any]) -> Callable[[Draft], Iterator[Edit]]:
    def drop(draft: Draft) -> Iterator[Edit]:
        yield Edit(gone=which(draft))

    return drop


def _write(which: Callable[[Draft], Any]) -> Callable[[Draft], Iterator[Edit]]:
    def write(draft: Draft) -> Iterator[Edit]:
        yield Edit(contents=which(draft))

    return write


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (_drop(lambda draft: [draft.units[0]]), "which must stay"),  # the system prompt
        (_drop(lambda draft: [draft.units[-1]]), "which must stay"),  # the last question
        (_drop(lambda draft: [draft.units[1]]), "first or the last message of an exchange"),
        (_drop(lambda draft: [draft.units[3]]), "first or the last message of an exchange"),
        (_write(lambda _: {0: "short"}), "message 0 another content"),
        (_write(lambda draft: {draft.last: "short"}), "another content"),
        (_write(lambda _: {10_000: "short"}), "message 10000 another content"),
        (_write(lambda _: {3: None}), "message 3 another content"),
        (lambda _: ["shorter"], "must yield Edits"),
    ],
)
def test_an_edit_that_would_break_the_request_is_refused(
    own: Callable[[Draft], Iterator[Edit]], reason: str
) -> None:
    messages = [{"role": "system", "content": "You count boats."}, *talk(10)]
    policy = FitPolicy(trim_strategy=(Pass("own", own), *STRATEGY))
    with pytest.raises(ConfigurationError, match=f"the pass 'own' .*{reason}"):
        ullage.fit(messages, model="gpt-4o", limit=400, policy=policy)


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (("shrink",), f"no pass is called 'shrink'; the passes are {', '.join(STRATEGY)}"),
        ((3,), "a pass must be a name, a function or a Pass, not .*the names are cap, "),
        ((lambda _: (), "cut"), "a pass cannot be called '<lambda>'"),
        ((Pass("evict", drop_exchanges),), "already a pass or a change called 'evict'"),
        ((name_results, name_results), "already a pass or a change called 'name_results'"),
        ((Pass("own", name_results, above="high"),), "low_water or limit, not 'high'"),  # type: ignore[arg-type]
        ("cap", "a tuple of passes"),
        (Pass("own", name_results), "a tuple of passes"),
    ],
)
def test_a_strategy_that_cannot_run_is_an_error_at_once(strategy: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        FitPolicy(trim_strategy=strategy)
