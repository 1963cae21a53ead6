"""A conversation that goes on from a saved state sends the same as one that reads its whole history again."""

from __future__ import annotations

import itertools
import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ullage
from tests.backends import BACKENDS
from ullage import FitPolicy, store
from ullage.context import Context, MemoryJournal
from ullage.context.journal import SavedFold
from ullage.context.window_cache import EVERY
from ullage.errors import ContextOverflowError
from ullage.fitting import snapshot as states
from ullage.testing import FixedTokenizer
from ullage.tokens.calibration import Factor

if TYPE_CHECKING:
    from ullage.context.journal import Journal
    from ullage.fitting import Fitted

PROMPT = "You are a careful engineer who works in a repository through tools."
WORDS = ("parser", "cache", "retry", "session", "budget", "window", "error", "worker", "failed", "config")


class Forgetful:
    """A journal that keeps no state of a fold: all else goes to the journal behind it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def save_fold(self, *_: object) -> bool:
        return False

    def load_fold(self, *_: object) -> None:
        return None


def turns(dice: random.Random, number: int) -> list[dict[str, Any]]:
    """So many messages, or a few more: questions, steps with results of any size, answers."""
    made: list[dict[str, Any]] = []
    while len(made) < number:
        made.append({"role": "user", "content": text(dice, 20)})
        for _ in range(dice.choice((0, 0, 1, 2))):
            names = [f"call{dice.getrandbits(40):x}" for _ in range(dice.choice((1, 1, 2)))]
            calls = [
                {
                    "id": name,
                    "type": "function",
                    "function": {"name": "grep", "arguments": f'{{"q":"{text(dice, 2)}"}}'},
                }
                for name in names
            ]
            made.append({"role": "assistant", "content": None, "tool_calls": calls})
            made += [
                {"role": "tool", "tool_call_id": name, "content": text(dice, dice.choice((5, 40, 300)))}
                for name in names
            ]
        made.append({"role": "assistant", "content": text(dice, 30)})
    return made


def text(dice: random.Random, words: int) -> str:
    some = [f"{dice.choice(WORDS)}{dice.getrandbits(8)}" for _ in range(dice.randint(1, words))]
    return " ".join(some) + dice.choice((".", " \ud800", "\n\N{SNOWMAN}", ""))


def told(fitted: Fitted) -> dict[str, Any]:
    """All that a result says."""
    return {
        "messages": list(fitted.messages),
        "count": fitted.count,
        "changed": fitted.changed,
        "dropped": fitted.dropped,
        "truncated": fitted.truncated,
        "before": fitted.tokens_before,
        "estimate": fitted.estimate,
        "changes": fitted.changes,
    }


def rendered(context: Context) -> dict[str, Any] | str:
    try:
        return told(context.fitted())
    except ContextOverflowError as error:
        return str(error)


def is_restored(context: Context) -> bool:
    return context.renderer.windows.newest.saved.parts > 0


OPTIONS = st.fixed_dictionaries(
    {
        "token_budget": st.sampled_from([500, 900, 2_500]),
        "max_turns": st.sampled_from([None, 12, 40]),
        "policy": st.builds(
            FitPolicy,
            recall=st.booleans(),
            low_water=st.sampled_from([0.4, 0.63, 1.0]),
            digest_share=st.sampled_from([0.0, 0.3]),
            keep_first_user=st.booleans(),
        ),
        "factor": st.sampled_from([Factor(), Factor(ceiling_scale=1.25, ceiling_offset=7)]),
        "system_prompt": st.sampled_from([PROMPT, ""]),
    }
)


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(0, 10**9), OPTIONS, st.sampled_from(["memory", "sqlite-in-memory"]), st.booleans())
def test_resuming_with_a_saved_state_without_it_and_a_stateless_fit_give_the_same(
    seed: int, options: dict[str, Any], backend: str, happens: bool
) -> None:
    with BACKENDS[backend]() as opened:
        assert_same(seed, {"model": "gpt-4o", **options}, opened.journal, happens=happens)


def assert_same(seed: int, options: dict[str, Any], journal: Journal, *, happens: bool) -> int:
    """Has a conversation, resumes it here and there in both ways, and goes on; how many were restored."""
    dice, restored = random.Random(seed), 0  # noqa: S311 - no secret
    looks = set(dice.sample(range(4 * EVERY), 6))
    context = Context(journal=journal, session="one", **options)
    for place, message in enumerate(turns(dice, 4 * EVERY)):
        if message["role"] == "assistant":
            rendered(context)
        context.append(message, pin=place % 97 == 3, priority=int(place % 89 == 1))
        if context.waiting or message["role"] != "assistant":
            continue
        if happens and dice.random() < 0.05:
            context.compact(0.5)
        if happens and dice.random() < 0.02:
            context.undo()
        if looks and place > min(looks):
            looks.remove(min(looks))
            context.append_user(f"and now, at {place}?")
            context = resumed(journal, options, is_plain=not happens)
            restored += is_restored(context)
            context.append({"role": "assistant", "content": "So it is."})
    return restored


def resumed(journal: Journal, options: dict[str, Any], *, is_plain: bool) -> Context:
    """The conversation, resumed with what is saved, after all other ways gave the same."""
    context = Context.resume("one", journal, **options)
    without = Context.resume("one", Forgetful(journal), **options)
    expected = rendered(without)
    assert rendered(context) == expected
    assert context.pop_changes() == without.pop_changes()
    if isinstance(expected, dict):
        assert context.enforce_budget() == without.enforce_budget()
        if is_plain:
            assert stateless(context)["messages"] == expected["messages"]
    return context


def stateless(context: Context) -> dict[str, Any]:
    """The same request by a window that reads everything."""
    window = context.bounds.open_window()
    system = len(context.history()) - len(context.record.state.lines)
    for message in context.history()[:system]:
        window.append(message)
    for line in context.record.state.lines:
        window.append(line.turn.message, pin=line.turn.pin, priority=line.turn.priority)
    return told(window.fitted())


# What is used, and what is not ------------------------------------------------------------------------


PLAIN: dict[str, Any] = {
    "model": "gpt-4o",
    "token_budget": 900,
    "max_turns": None,
    "system_prompt": PROMPT,
    "policy": FitPolicy(recall=True),
}


class Counting(MemoryJournal):
    """A journal that notes each state that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[tuple[str, bytes, bytes, int]] = []

    def save_fold(self, session: str, name: str, state: bytes, part: bytes, number: int, events: int) -> bool:  # noqa: PLR0917 - the protocol's own
        self.saved.append((name, state, part, number))
        return super().save_fold(session, name, state, part, number, events)


def had(journal: Journal, number: int = 4 * EVERY, **options: Any) -> Context:
    """A conversation of so many messages that ends with a question."""
    context = Context(journal=journal, session="one", **{**PLAIN, **options})
    for message in turns(random.Random(5), number):  # noqa: S311 - no secret
        if message["role"] == "assistant":
            context.fitted()
        context.append(message)
    context.append_user("And now?")
    return context


def test_a_resumed_conversation_reads_little_more_than_what_it_shows() -> None:
    journal = MemoryJournal()
    had(journal, 20 * EVERY)
    counted = {}
    for name, kept in (("with", journal), ("without", Forgetful(journal))):
        tokenizer = FixedTokenizer(9)
        context = Context.resume("one", journal, **{**PLAIN, "tokenizer": tokenizer})
        context.fitted()
        tokenizer.asked.clear()
        context = Context.resume("one", kept, **{**PLAIN, "tokenizer": tokenizer})  # type: ignore[arg-type]
        context.fitted()
        counted[name] = len(tokenizer.asked)
    assert counted["with"] * 5 < counted["without"]


@pytest.mark.parametrize(
    "other",
    [
        {"token_budget": 901},
        {"model": "gpt-4"},
        {"policy": FitPolicy(recall=True, low_water=0.5)},
        {"factor": Factor(scale=1.1)},
        {"system_prompt": PROMPT + " Be brief."},
        {"tools": [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]},
        {"tokenizer": FixedTokenizer(9)},
    ],
)
def test_a_state_of_other_options_is_not_used(other: dict[str, Any]) -> None:
    journal = MemoryJournal()
    had(journal)
    same = Context.resume("one", journal, **PLAIN)
    same.fitted()
    assert is_restored(same)
    changed = Context.resume("one", journal, **{**PLAIN, **other})
    without = Context.resume("one", Forgetful(journal), **{**PLAIN, **other})  # type: ignore[arg-type]
    assert rendered(changed) == rendered(without)
    assert changed.renderer.windows.newest.restored is None


def test_a_state_of_other_rules_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = MemoryJournal()
    had(journal)
    monkeypatch.setattr(states, "rules", lambda: "of another version")
    context = Context.resume("one", journal, **PLAIN)
    context.fitted()
    assert context.renderer.windows.newest.restored is None


def test_a_state_of_what_was_taken_back_is_not_used() -> None:
    journal = MemoryJournal()
    context = had(journal)
    context.undo()
    context.undo()
    context.append_user("Something else?")
    resumed_now = Context.resume("one", journal, **PLAIN)
    assert rendered(resumed_now) == rendered(Context.resume("one", Forgetful(journal), **PLAIN))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "state",
    [b"", b"no state", zlib.compress(b"[]"), zlib.compress(b'{"about": {}}'), zlib.compress(b"[" * 100_000)],
)
def test_bytes_that_are_no_state_are_not_used(state: bytes) -> None:
    journal = MemoryJournal()
    had(journal)
    for key, saved in journal._folds.items():
        journal._folds[key] = SavedFold(state, saved.log)
    context = Context.resume("one", journal, **PLAIN)
    assert rendered(context) == rendered(Context.resume("one", Forgetful(journal), **PLAIN))  # type: ignore[arg-type]
    assert context.renderer.windows.newest.restored is None


def test_a_state_is_written_only_after_many_messages_and_stays_small() -> None:
    journal = Counting()
    had(journal, 12 * EVERY)
    assert 6 <= len(journal.saved) <= 12
    sizes = [len(state) for _, state, _, _ in journal.saved]
    assert max(sizes) < 100_000  # the digest's pool, mostly, which is bounded
    assert [number for *_, number in journal.saved] == list(range(len(journal.saved)))
    assert sum(len(part) for _, _, part, _ in journal.saved[-2:]) < 4_000  # what is new alone


def test_a_conversation_that_is_never_trimmed_writes_no_state() -> None:
    journal = Counting()
    had(journal, token_budget=10**6)
    assert journal.saved == []


def test_a_stored_state_of_another_history_or_with_a_changed_bit_is_not_there(tmp_path: Any) -> None:
    file = tmp_path / "ullage.db"
    with store.open(file) as kept:
        had(kept.journal)
    with store.open(file) as kept, kept._database.writing() as connection:
        ((name, state),) = connection.execute("SELECT name, state FROM folds").fetchall()
        assert kept.journal.load_fold("one", name) is not None
        flipped = bytes([state[0] ^ 1, *state[1:]])
        connection.execute("UPDATE folds SET state = ?", (flipped,))
        assert kept.journal.load_fold("one", name) is None
        connection.execute("UPDATE folds SET state = ?", (state,))
        assert kept.journal.load_fold("one", name) is not None
        connection.execute("UPDATE folds SET history = ?", (b"0" * 16,))
        assert kept.journal.load_fold("one", name) is None


def test_at_most_four_states_are_kept_for_a_session(tmp_path: Any) -> None:
    with store.open(tmp_path / "ullage.db") as kept:
        context = had(kept.journal)
        for budget in range(910, 980, 10):
            context.lower_limit(budget)
            other = Context.resume("one", kept.journal, **{**PLAIN, "token_budget": budget})
            other.fitted()
        with kept._database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM folds").fetchone() == (4,)
            assert connection.execute("SELECT count(DISTINCT fold) FROM fold_logs").fetchone() == (4,)


def test_two_that_save_in_turn_both_keep_a_whole_log() -> None:
    journal = MemoryJournal()
    context = had(journal)
    for part in itertools.islice(itertools.count(), 3):
        other = Context.resume("one", journal, **PLAIN)
        for message in turns(random.Random(part), 2 * EVERY):  # noqa: S311 - no secret
            if message["role"] == "assistant":
                other.fitted()
            other.append(message)
        other.append_user("And now?")
        assert rendered(Context.resume("one", journal, **PLAIN)) == rendered(
            Context.resume("one", Forgetful(journal), **PLAIN)  # type: ignore[arg-type]
        )
        context = other
    assert context.rendered is not None


def test_summaries_on_the_way_are_renewed_at_the_same_places() -> None:
    def summarize(prior: str | None, gone: Any) -> str:
        return f"{(prior or '')[-200:]} and {len(gone or ())} more"

    journal = MemoryJournal()
    options = {"summarize": summarize, "max_summary_chars": 300}
    had(journal, 6 * EVERY, **options)
    with_state = Context.resume("one", journal, **PLAIN, **options)
    without = Context.resume("one", Forgetful(journal), **PLAIN, **options)  # type: ignore[arg-type]
    assert "more" in with_state.summary
    assert rendered(with_state) == rendered(without)
    assert is_restored(with_state)
    assert with_state.renderer.windows.newest.trail.renewals


def test_ullage_fit_gives_what_a_restored_conversation_sends() -> None:
    journal = MemoryJournal()
    context = had(journal)
    context = Context.resume("one", journal, **PLAIN)
    sent = context.fitted()
    assert is_restored(context)
    messages = [{"role": "system", "content": PROMPT}, *context.turns]
    fitted = ullage.fit(messages, model="gpt-4o", limit=900, policy=PLAIN["policy"])
    assert list(sent.messages) == list(fitted.messages)
    assert sent.changes == fitted.changes
