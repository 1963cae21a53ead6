"""The fold's state beyond appending: taking back, renewing the prompt, looking ahead, calibrating."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ullage
from tests.strategies import TEXTS, TOOLS, Messages, conversations, policies
from ullage import ContextOverflowError, FitPolicy, InvalidConversation, Window
from ullage.messages import DIGEST_CLOSE, DIGEST_OPEN
from ullage.testing import FixedTokenizer
from ullage.tokens.calibration import Factor

QUESTION = {"role": "user", "content": "And then?"}


def filled(messages: Messages, limit: int, **options: Any) -> Window:
    window = Window(limit=limit, tools=TOOLS, policy=FitPolicy(**options), model="gpt-4o")
    for message in messages:
        window.append(message)
    return window


def sent(window: Window) -> tuple[Any, ...]:
    """All that a window says of the request here."""
    try:
        fitted = window.fitted()
    except ContextOverflowError as error:
        return (error.tokens, error.limit)
    return (list(fitted.messages), fitted.count, fitted.changes, fitted.tokens_before, fitted.truncated)


@pytest.mark.parametrize("name", ["model", "target", "limit", "tools", "policy"])
def test_what_a_window_was_opened_with_cannot_be_set(name: str) -> None:
    window = Window(model="gpt-4o", limit=1_000, tools=TOOLS)
    before = getattr(window, name)
    with pytest.raises(AttributeError):
        setattr(window, name, before)
    assert window.model == "gpt-4o"


def pickled(given: Any) -> Any:
    """A copy by way of a pickle, as another process gets it."""
    return pickle.loads(pickle.dumps(given))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("exchanges", [3, 60])
def test_a_copy_of_a_window_goes_on_as_the_window_and_for_itself(again: Any, exchanges: int) -> None:
    window = filled(talk(exchanges), 1_000)
    other = again(window)
    other.append(QUESTION)
    assert len(window) == len(other) - 1
    window.append(QUESTION)
    assert other.fitted() == window.fitted()
    window.sync(messages := [*talk(exchanges + 2), QUESTION])
    assert again(window).fitted() == window.fitted() == ullage.fit(messages, "gpt-4o", TOOLS, 1_000)


def test_a_window_that_cannot_be_pickled_tells_which_part_of_it() -> None:
    def own(_: Any) -> tuple[()]:
        return ()

    with pytest.raises((pickle.PicklingError, AttributeError), match="own"):
        pickle.dumps(Window(limit=500, policy=FitPolicy(trim_strategy=("cap", own))))


def test_results_with_the_same_messages_and_changes_are_equal() -> None:
    messages = [*talk(60), QUESTION]
    one, same = (ullage.fit(list(messages), "gpt-4o", limit=1_000) for _ in range(2))
    assert one.changed
    assert one == same == pickled(one)
    assert one != ullage.fit(messages, "gpt-4o", limit=1_001)
    assert one != ullage.fit([*talk(61), QUESTION], "gpt-4o", limit=1_000)
    body = {"model": "gpt-4o", "messages": messages}
    assert ullage.fit_request(body, "openai.chat", limit=1_000) == ullage.fit_request(
        copy.deepcopy(body), "openai.chat", limit=1_000
    )


def talk(exchanges: int) -> Messages:
    messages: Messages = []
    for number in range(exchanges):
        messages += [
            {"role": "user", "content": f"Question {number} " + "word " * 20},
            {"role": "assistant", "content": f"Answer {number} " + "more " * 20},
        ]
    return messages


@given(conversations(), TEXTS, st.floats(0.2, 1.2), policies())
def test_a_message_that_was_taken_back_was_never_there(
    messages: Messages, text: str, fraction: float, policy: dict[str, Any]
) -> None:
    limit = max(30, int(ullage.count(messages, tools=TOOLS, model="gpt-4o").ceiling * fraction))
    window, other = (filled(messages, limit, **policy) for _ in range(2))
    window.append({"role": "user", "content": text}, pin=True, priority=3)
    sent(window)
    window.retract()
    assert sent(window) == sent(other)
    for each in (window, other):
        each.append({"role": "user", "content": "And then?"})
        each.append({"role": "assistant", "content": "Then " + text})
    assert sent(window) == sent(other)


@pytest.mark.parametrize("messages", [[], talk(1)])
def test_only_a_question_can_be_taken_back(messages: Messages) -> None:
    with pytest.raises(InvalidConversation, match="taken back"):
        filled(messages, 1_000).retract()


def test_checking_a_message_changes_nothing() -> None:
    window = filled(talk(2), 1_000)
    before = sent(window)
    waiting, cost = window.check(QUESTION)
    assert (waiting, cost.tokens) == ((), ullage.count([QUESTION], model="gpt-4o").tokens - 3)
    with pytest.raises(InvalidConversation):
        window.check({"role": "tool", "tool_call_id": "a", "content": ""})
    assert sent(window) == before


@given(conversations(), TEXTS, st.floats(0.4, 1.2))
def test_a_renewed_prompt_is_counted_and_keeps_the_digest(
    messages: Messages, text: str, fraction: float
) -> None:
    assume(messages[0]["role"] == "system")
    limit = max(40, int(ullage.count(messages, tools=TOOLS, model="gpt-4o").ceiling * fraction))
    window = filled(messages, limit)
    try:
        before = window.fitted()
        window.renew({"role": "system", "content": text})
        after = window.fitted()
    except ContextOverflowError:
        return
    assert ullage.count(after.messages, tools=TOOLS, model="gpt-4o").ceiling <= after.count.ceiling <= limit
    assert ullage.count(after.messages, tools=TOOLS, model="gpt-4o").tokens == after.count.tokens
    assert sum(after.count.breakdown.values()) == after.count.tokens
    window.renew(messages[0])
    if not before.record.pending and not after.record.pending:
        assert list(window.fitted().messages) == list(before.messages)


def test_a_prompt_that_brings_its_digest_comes_back_as_it_was_given() -> None:
    given = {"role": "system", "content": f"\n{DIGEST_OPEN}\n> user: Count.\n{DIGEST_CLOSE}"}
    window = filled([given, QUESTION], 100)
    window.renew({"role": "system", "content": ""})
    window.renew(given)
    assert list(window.fitted().messages) == [given, QUESTION]


def test_a_renewed_prompt_leaves_what_was_decided_before() -> None:
    system = {"role": "system", "content": "Be brief."}
    window = filled([system, *talk(40)], 920)
    before = window.fitted()
    longer = {"role": "system", "content": "Be brief, and kind."}
    window.renew(longer)
    after = window.fitted()
    assert list(after.messages[1:]) == list(before.messages[1:])
    assert after.messages[0]["content"].startswith("Be brief, and kind.\n\n")
    with pytest.raises(InvalidConversation, match="replaced"):
        window.renew(QUESTION)
    with pytest.raises(InvalidConversation, match="replaced"):
        filled(talk(1), 900).renew(longer)


def test_the_forecast_names_what_the_next_trim_evicts() -> None:
    window = filled(talk(15), 1_000)
    assert 0.75 < window.utilization < 0.95
    forecast = set(window.forecast())
    while not (fitted := window.fitted()).dropped:
        for message in talk(1):
            window.append(message)
    gone = {change.index for change in fitted.changes}
    assert forecast <= gone
    assert len(forecast) >= 0.7 * len(gone)


def test_the_forecast_minds_the_number_of_turns() -> None:
    window = filled(talk(9), 100_000, max_turns=20)
    assert window.utilization == 0.9
    assert set(window.forecast()) == set(range(10))


def test_a_window_counts_by_the_tokenizer_that_it_is_given() -> None:
    window = Window(limit=1_000, tokenizer=FixedTokenizer(50), model="gpt-4o")
    window.append(QUESTION)
    assert window.count().tokens == 57


def test_a_window_counts_what_stands_there_while_calls_wait() -> None:
    window = Window(limit=1_000, model="gpt-4o")
    window.append(QUESTION)
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    window.append({"role": "assistant", "content": None, "tool_calls": [call]})
    assert window.waiting == ("a",)
    assert window.count().tokens > ullage.count([QUESTION], model="gpt-4o").tokens


@given(
    conversations(), st.floats(0.3, 1.2), st.sampled_from([1.0, 1.1, 1.4]), st.sampled_from([0.9, 1.0, 1.3])
)
def test_a_calibrated_window_is_a_window_with_another_limit(
    messages: Messages, fraction: float, ceiling: float, tokens: float
) -> None:
    factor = Factor(scale=tokens, ceiling_scale=ceiling, offset=3, ceiling_offset=7)
    limit = max(40, int(ullage.count(messages, model="gpt-4o").ceiling * fraction))
    window, plain = (
        Window(limit=limit, factor=factor, model="gpt-4o"),
        Window(limit=max(1, factor.limit(limit)), model="gpt-4o"),
    )
    for message in messages:
        window.append(message)
        plain.append(message)
    try:
        other = plain.fitted()
    except ContextOverflowError:
        with pytest.raises(ContextOverflowError) as caught:
            window.fitted()
        assert caught.value.limit == limit < caught.value.tokens
        return
    fitted = window.fitted()
    assert list(fitted.messages) == list(other.messages)
    assert fitted.count == factor.count(other.count)
    assert fitted.count.ceiling <= limit == fitted.limit
    assert fitted.estimate == (other.count.tokens, other.count.ceiling)
    assert sum(fitted.count.breakdown.values()) == fitted.count.tokens


def test_another_factor_reads_the_history_again() -> None:
    window = filled(talk(30), 1_220)
    before = len(window.fitted().messages)
    window.refold(factor=Factor(ceiling_scale=1.5))
    fitted = window.fitted()
    assert len(fitted.messages) < before
    assert fitted.count.ceiling <= 1_220
