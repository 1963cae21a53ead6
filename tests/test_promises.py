"""The promises of fitting, as properties. Each test is named after the promise that it holds us to."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ullage
from tests.oracle import encoding
from tests.strategies import TOOLS, Messages, conversations, own_words, policies
from ullage import ContextOverflowError, FitPolicy, Window
from ullage.call_pairs import check_conversation
from ullage.errors import InvalidConversation
from ullage.messages import RESULT_ROLES, calls_of, split_content, split_digest, text_of
from ullage.text import DIGEST_CLOSE, DIGEST_OPEN, TASK_CLOSE, TASK_OPEN
from ullage.tokens import counter_for

if TYPE_CHECKING:
    from collections.abc import Iterator

FRACTIONS = st.floats(0.05, 1.2)
SYSTEM = ("system", "developer")


def limit_of(messages: Messages, fraction: float, tools: Any = None) -> int:
    """A limit between what must stay, more or less, and everything."""
    return max(20, int(ullage.count(messages, tools=tools, model="gpt-4o").ceiling * fraction))


def fit_or_overflow(messages: Messages, limit: int, **options: Any) -> ullage.Fitted:
    """The fitted messages; a conversation whose essential part is over the limit is not drawn."""
    policy = FitPolicy(**options.pop("policy", {}))
    try:
        return ullage.fit(messages, limit=limit, model="gpt-4o", policy=policy, **options)
    except ContextOverflowError:
        assume(False)
        raise


@given(conversations(), FRACTIONS, policies())
def test_never_over(messages: Messages, fraction: float, policy: dict[str, Any]) -> None:
    limit = limit_of(messages, fraction)
    fitted = fit_or_overflow(messages, limit, policy=policy)
    assert fitted.count.ceiling <= limit
    assert (
        ullage.count(fitted.messages, model="gpt-4o").tokens
        == fitted.count.tokens
        == fitted.tokens_after
        <= limit
    )
    assert _by_tiktoken(fitted.messages) <= limit
    assert sum(fitted.count.breakdown.values()) == fitted.count.tokens


@given(conversations(), FRACTIONS, policies())
def test_never_broken_pairs(messages: Messages, fraction: float, policy: dict[str, Any]) -> None:
    fitted = fit_or_overflow(messages, limit_of(messages, fraction), policy=policy)
    check_conversation(fitted.messages)


@given(conversations(), FRACTIONS, policies())
def test_never_broken_order(messages: Messages, fraction: float, policy: dict[str, Any]) -> None:
    fitted = fit_or_overflow(messages, limit_of(messages, fraction), policy=policy)
    assert _faults(fitted.messages) <= _faults(messages)
    places = _places(fitted.messages, messages)
    assert places == sorted(places)


@given(conversations(), FRACTIONS, policies())
def test_never_broken_prompt_and_question(
    messages: Messages, fraction: float, policy: dict[str, Any]
) -> None:
    policy.pop("cut_user", None)  # it allows to cut the question
    fitted = fit_or_overflow(messages, limit_of(messages, fraction), policy=policy)
    for message in messages:
        if message["role"] in SYSTEM:
            own = text_of(split_content(message["content"])[0])
            assert any(own in text_of(kept["content"]) for kept in fitted.messages if kept["role"] in SYSTEM)
    question = next(message for message in reversed(messages) if message["role"] == "user")
    asked = next(message for message in reversed(fitted.messages) if message["role"] == "user")
    assert question == (own_words(asked) if fitted.recalled else asked)
    assert fitted.messages[-1]["role"] == messages[-1]["role"]


@given(conversations(), FRACTIONS, policies(), st.data())
def test_never_lost_pins(
    messages: Messages, fraction: float, policy: dict[str, Any], data: st.DataObject
) -> None:
    pin = data.draw(st.integers(0, len(messages) - 1))
    assume(messages[pin]["role"] not in SYSTEM)
    fitted = fit_or_overflow(
        messages, limit_of(messages, fraction), policy={**policy, "pins": frozenset({pin})}
    )
    assert messages[pin] in [*fitted.messages, *map(own_words, fitted.messages)]
    check_conversation(fitted.messages)
    assert _faults(fitted.messages) <= _faults(messages)


@given(conversations(), policies())
def test_never_needlessly_what_fits_comes_back_as_the_same_object(
    messages: Messages, policy: dict[str, Any]
) -> None:
    policy.pop("max_turns", None)
    fitted = ullage.fit(
        messages,
        limit=ullage.count(messages, model="gpt-4o").ceiling,
        policy=FitPolicy(**policy),
        model="gpt-4o",
    )
    assert fitted.messages is messages
    assert not fitted.changed
    assert fitted.changes == ()
    assert (fitted.dropped, fitted.truncated) == (0, 0)


@given(conversations(), FRACTIONS, policies())
def test_never_twice_fitting_is_idempotent(
    messages: Messages, fraction: float, policy: dict[str, Any]
) -> None:
    limit = limit_of(messages, fraction)
    fitted = fit_or_overflow(messages, limit, policy=policy)
    # A pinned or essential part longer than max_turns stays, so only a result within it is final.
    assume(policy.get("max_turns") is None or _turns(fitted.messages) <= policy["max_turns"])
    again = ullage.fit(fitted.messages, limit=limit, policy=FitPolicy(**policy), model="gpt-4o")
    assert again.messages is fitted.messages


@given(conversations(), FRACTIONS, policies())
def test_never_changed_input(messages: Messages, fraction: float, policy: dict[str, Any]) -> None:
    before = copy.deepcopy(messages)
    fit_or_overflow(messages, limit_of(messages, fraction), policy=policy)
    assert messages == before


@given(conversations(), FRACTIONS, policies())
def test_never_by_chance(messages: Messages, fraction: float, policy: dict[str, Any]) -> None:
    limit = limit_of(messages, fraction)
    first = fit_or_overflow(messages, limit, policy=policy)
    second = ullage.fit(copy.deepcopy(messages), limit=limit, policy=FitPolicy(**policy), model="gpt-4o")
    assert first.messages == second.messages
    assert first.changes == second.changes


@given(conversations(), FRACTIONS, policies())
def test_never_silent(messages: Messages, fraction: float, policy: dict[str, Any]) -> None:
    fitted = fit_or_overflow(messages, limit_of(messages, fraction), policy=policy)
    gone = {change.index for change in fitted.changes if change.evicted}
    short = {change.index for change in fitted.changes if not change.evicted}
    assert len(gone) == fitted.dropped
    assert len(short) == fitted.truncated
    kept = [message for index, message in enumerate(messages) if index not in gone]
    sent = [message for message in fitted.messages if message["role"] not in SYSTEM]
    assert len(sent) == sum(message["role"] not in SYSTEM for message in kept)
    assert set(fitted.recalled) <= gone
    assert bool(fitted.recalled) == (fitted.count.breakdown["recalled"] > 0)
    for change in fitted.changes:
        assert change.tokens_after < change.tokens_before
        assert len(change.handle) >= 8


@given(conversations(), FRACTIONS, policies())
def test_raises_exactly_when_what_must_be_sent_is_over(
    messages: Messages, fraction: float, policy: dict[str, Any]
) -> None:
    limit = limit_of(messages, fraction)
    options = FitPolicy(**policy)
    if ullage.count(_essential(messages), model="gpt-4o").ceiling <= limit:
        ullage.fit(messages, limit=limit, policy=options, model="gpt-4o")
        return
    with pytest.raises(ContextOverflowError, match="Cannot fit request") as caught:
        ullage.fit(messages, limit=limit, policy=options, model="gpt-4o")
    assert caught.value.limit == limit < caught.value.tokens
    assert str(limit) in str(caught.value)
    assert str(caught.value.tokens) in str(caught.value)


@given(conversations(min_exchanges=2), st.floats(0.2, 0.9), policies(), st.booleans())
def test_never_two_minds_a_window_and_a_stateless_fit_send_the_same(
    messages: Messages, fraction: float, policy: dict[str, Any], with_tools: bool
) -> None:
    tools = TOOLS if with_tools else None
    limit = limit_of(messages, fraction, tools)
    options = FitPolicy(**policy)
    window = Window(limit=limit, tools=tools, policy=options, model="gpt-4o")
    for end, message in enumerate(messages, 1):
        window.append(message)
        assert _outcome(window.fitted) == _outcome(
            lambda end=end: ullage.fit(
                messages[:end], tools=tools, limit=limit, policy=options, model="gpt-4o"
            )
        )


@given(conversations(min_exchanges=3), st.floats(0.2, 0.9), policies())
def test_never_needlessly_dear_between_trims_each_request_is_a_prefix_of_the_next(
    messages: Messages, fraction: float, policy: dict[str, Any]
) -> None:
    for before, after in _neighbours(messages, limit_of(messages, fraction), {**policy, "recall_share": 0}):
        assert after[: len(before)] == before


@given(conversations(min_exchanges=3), st.floats(0.2, 0.9), policies())
def test_never_needlessly_dear_only_what_was_recalled_changes_between_trims(
    messages: Messages, fraction: float, policy: dict[str, Any]
) -> None:
    messages = [own_words(message) for message in messages]
    assume(all(own_words(message) == message for message in messages))
    for before, after in _neighbours(messages, limit_of(messages, fraction), policy):
        assert [own_words(message) for message in after[: len(before)]] == [
            own_words(message) for message in before
        ]
        if all(message["role"] != "user" for message in after[len(before) :]):
            # A tool loop keeps the passages of its question, until it needs the room and gives up all.
            assert after[: len(before)] == before or not any(own_words(each) != each for each in after)


@given(conversations(min_exchanges=2), st.floats(0.3, 0.8))
def test_never_growing_results_fed_back_a_hundred_times_keep_the_digest_within_its_share(
    messages: Messages, fraction: float
) -> None:
    limit = max(
        limit_of(messages, fraction), ullage.count(_essential(messages), model="gpt-4o").ceiling + 200
    )
    share = FitPolicy().digest_share
    current = [
        message for message in messages if message["role"] != "assistant" or not message.get("tool_calls")
    ]
    current = [message for message in current if message["role"] != "tool"]
    for turn in range(100):
        current = [*current, {"role": "user", "content": f"and order #W{turn}?"}]
        try:
            fitted = ullage.fit(current, limit=limit, model="gpt-4o")
        except ContextOverflowError:
            assume(False)
        block = split_digest(text_of(fitted.messages[0]["content"]))[1] if fitted.changed else ""
        assert fitted.count.breakdown["summary"] <= share * limit + 1_100
        assert block.count(DIGEST_OPEN) <= 1
        current = [*fitted.messages, {"role": "assistant", "content": f"order #W{turn} is on its way " * 9}]


@given(conversations(), FRACTIONS, policies())
def test_never_out_of_the_fence_what_a_tool_says_stays_quoted(
    messages: Messages, fraction: float, policy: dict[str, Any]
) -> None:
    messages = [message for message in messages if message["role"] not in SYSTEM]
    assume(messages)
    fitted = fit_or_overflow(messages, limit_of(messages, fraction), policy=policy)
    for message in fitted.messages:
        if message["role"] in SYSTEM:
            text = text_of(message["content"])
            if text.startswith(f"{TASK_OPEN}\n"):  # the first user message, and nothing that a tool said
                task, _, text = text.partition(f"\n{TASK_CLOSE}")
                assert TASK_OPEN not in task[1:]
                text = text.removeprefix("\n\n")
            if text:
                lines = text.splitlines()
                assert lines[0] == DIGEST_OPEN
                assert lines[-1] == DIGEST_CLOSE
                assert all(line.startswith("> ") for line in lines[1:-1])


def test_fitted_with_calls_unanswered_raises() -> None:
    window = Window(limit=1000, model="gpt-4o")
    window.append({"role": "user", "content": "go"})
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    window.append({"role": "assistant", "content": None, "tool_calls": [call]})
    with pytest.raises(InvalidConversation, match="without a result"):
        window.fitted()


# What the properties measure by ----------------------------------------------------------------------


def _outcome(fitted: Any) -> Any:
    """The messages, or None for an overflow, or the text of another error."""
    try:
        return list(fitted().messages)
    except ContextOverflowError:
        return None
    except InvalidConversation as error:
        return str(error)


def _neighbours(messages: Messages, limit: int, policy: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Each request of a conversation beside the next, if no trim and no overflow lies between them."""
    window = Window(limit=limit, policy=FitPolicy(**policy), model="gpt-4o")
    before = None
    for message in messages:
        after = _outcome(window.fitted) if message["role"] == "assistant" else None
        trims = window.trims
        window.append(message)
        if message["role"] == "assistant":
            if before is not None and after is not None and window.trims == trims:
                yield before, after
            before = after


def _by_tiktoken(messages: Any) -> int:
    """An independent count: 4 a message, 3 a call and 3 a request, beside the texts."""
    encode = encoding("o200k_base").encode_ordinary
    total = 3
    for message in messages:
        total += 4 + sum(len(encode(part)) for part in _texts(message["content"]))
        older = [{"function": message["function_call"]}] if "function_call" in message else []
        for call in [*(message.get("tool_calls") or ()), *older]:
            name, said = (call.get("function") or call["custom"]).values()
            total += 3 + len(encode(name)) + len(encode(said))
    return total


def _texts(content: Any) -> list[str]:
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return [part["text"].encode("utf-16", "surrogatepass").decode("utf-16", "replace") for part in parts]


def _turns(messages: Any) -> int:
    return sum(message["role"] not in SYSTEM for message in messages)


def _faults(messages: Any) -> int:
    """Neighbours that a strict template refuses: two users or two assistants in a row, or no user first."""
    roles = [message["role"] for message in messages if message["role"] not in SYSTEM]
    pairs = sum(a == b and a in ("user", "assistant") for a, b in itertools.pairwise(roles))
    return pairs + (bool(roles) and roles[0] != "user")


def _places(fitted: Any, messages: Messages) -> list[int]:
    """Where each message that was kept as it was stands in the input, first match after the one before."""
    places, start = [], 0
    for message in fitted:
        for index in range(start, len(messages)):
            if messages[index] is message:
                places.append(index)
                start = index + 1
                break
    return places


def _essential(messages: Messages) -> Messages:
    """What must be sent: system prompts, the last user message, and the last step with its outputs cut."""
    turns = [index for index, message in enumerate(messages) if message["role"] not in SYSTEM]
    last_user = max(index for index in turns if messages[index]["role"] == "user")
    start = max(index for index in turns if messages[index]["role"] not in RESULT_ROLES)
    kept: Messages = []
    for index, message in enumerate(messages):
        if message["role"] in SYSTEM:
            own, _ = split_content(message["content"])
            kept.append({**message, "content": own})
        elif index in (last_user, start):
            kept.append(message)
        elif index > start:
            kept.append(_cut_short(message, parallel=len(calls_of(messages[start])) > 1))
    return kept


def _cut_short(message: dict[str, Any], parallel: bool) -> dict[str, Any]:
    counter = counter_for("gpt-4o")
    whole = counter.message({**message, "content": text_of(message["content"])}, parallel=parallel).ceiling
    mark = {**message, "content": f"[... {whole} tokens cut ...]"}
    return min(message, mark, key=lambda each: counter.message(each, parallel=parallel).ceiling)
