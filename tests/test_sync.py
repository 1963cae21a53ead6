"""`Window.sync`, `Fitted.sources` and `fit(repair=True)`: a whole history in, only what is new is read."""

from __future__ import annotations

import copy
import gc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from tests.strategies import TOOLS, conversations, policies
from ullage import ContextOverflowError, FitPolicy, InvalidConversation, Window
from ullage.fitting import fold
from ullage.fitting.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSTEM = {"role": "system", "content": "You are terse."}


def talk(turns: int, words: int = 40) -> list[dict[str, Any]]:
    """A system message and so many exchanges."""
    messages: list[dict[str, Any]] = [SYSTEM]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {turn} " + "why " * words})
        messages.append({"role": "assistant", "content": f"answer {turn} " + "so " * words})
    return messages


def asked(messages: Sequence[Any]) -> list[Any]:
    return [*messages, {"role": "user", "content": "And now?"}]


def fitted_or_error(window: Window) -> Any:
    try:
        done = window.fitted()
    except (ContextOverflowError, InvalidConversation) as error:
        return str(error)
    return list(done.messages), done.count, done.dropped, list(done.sources)


@given(conversations(), policies(), st.integers(60, 900), st.data())
def test_sync_returns_what_fit_returns(
    messages: list[Any], options: dict[str, Any], limit: int, data: st.DataObject
) -> None:
    window = Window(limit=limit, policy=FitPolicy(**options))
    for _ in range(3):
        length = data.draw(st.integers(0, len(messages)))
        window.sync(messages[:length])
        other = Window(limit=limit, policy=FitPolicy(**options))
        for message in messages[:length]:
            other.append(message)
        assert fitted_or_error(window) == fitted_or_error(other)


@given(conversations(), st.integers(100, 900), st.data())
def test_a_history_that_changed_is_read_again_from_the_change(
    messages: list[Any], limit: int, data: st.DataObject
) -> None:
    window = Window(limit=limit)
    window.sync(messages)
    fitted_or_error(window)
    changed = copy.deepcopy(messages)
    users = [index for index, message in enumerate(changed) if message["role"] == "user"]
    if users:
        index = data.draw(st.sampled_from(users))
        changed[index] = {"role": "user", "content": "something else"}
    window.sync(changed)
    fresh = Window(limit=limit)
    fresh.sync(changed)
    assert fitted_or_error(window) == fitted_or_error(fresh)


def test_only_new_messages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    append = fold.append

    def noted(state: Any, message: Any, **more: Any) -> Any:
        read.append(len(state.history))
        return append(state, message, **more)

    monkeypatch.setattr(fold, "append", noted)
    messages, window = talk(100), Window(limit=2_000)
    window.sync(messages)
    read.clear()
    window.sync(asked(messages))
    assert read == [len(messages)]
    read.clear()
    window.sync([*messages, {"role": "user", "content": "Another end?"}])
    assert read == [len(messages)]
    read.clear()
    window.sync([*messages[:-4], {"role": "assistant", "content": "Another answer."}])
    assert read == [len(messages) - 4]


def test_a_message_that_its_owner_changed_is_read_again() -> None:
    messages = asked(talk(3))
    window = Window(limit=2_000)
    window.sync(messages)
    before = window.fitted().count.tokens
    messages[1]["content"] += "more " * 100
    window.sync(messages)
    assert window.fitted().count.tokens >= before + 100


def test_other_tools_are_counted_and_none_leaves_them() -> None:
    window = Window(limit=4_000)
    window.sync(talk(2))
    bare = window.count().ceiling
    window.sync(talk(2), tools=TOOLS)
    with_tools = window.count().ceiling
    assert with_tools > bare
    window.sync(talk(2))
    assert window.count().ceiling == with_tools
    window.sync(talk(2), tools=[])
    assert window.count().ceiling == bare


def test_unchanged_messages_are_the_very_objects_that_were_given() -> None:
    messages = asked(talk(60))
    window = Window(limit=2_000)
    window.sync(messages)
    done = window.fitted()
    assert done.changed
    kept = [pair for pair in zip(done.messages, done.sources, strict=True) if pair[1] not in (None, 0)]
    assert len(kept) > 2
    assert all(message is messages[source] for message, source in kept[:-1] if source is not None)
    small = talk(1)
    window.sync(small)
    assert window.fitted().messages is small


@given(conversations(), policies(), st.integers(60, 900))
def test_sources_name_the_messages_in_order(messages: list[Any], options: dict[str, Any], limit: int) -> None:
    try:
        done = ullage.fit(messages, limit=limit, policy=FitPolicy(**options))
    except (ContextOverflowError, InvalidConversation):
        return
    assert len(done.sources) == len(done.messages)
    places = [source for source in done.sources if source is not None]
    assert places == sorted(set(places))
    for message, source in zip(done.messages, done.sources, strict=True):
        if source is None:
            assert message["role"] == "system"
        else:
            assert message["role"] == messages[source]["role"]
    gone = {change.index for change in done.changes if change.evicted}
    assert gone == set(range(len(messages))) - set(places)


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ],
}


def test_repair_answers_open_calls() -> None:
    messages = [
        {"role": "user", "content": "Look."},
        CALL,
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
        {"role": "user", "content": "Well?"},
        CALL,
    ]
    with pytest.raises(InvalidConversation):
        ullage.fit(messages, limit=500)
    done = ullage.fit(messages, limit=500, repair=True)
    assert done.changed
    assert list(done.sources) == [0, 1, 2, None, 3, 4, None, None]
    added = [message for message, source in zip(done.messages, done.sources, strict=True) if source is None]
    assert [message["tool_call_id"] for message in added] == ["b", "a", "b"]
    assert {message["content"] for message in added} == {"[interrupted]"}


def test_repair_leaves_a_whole_conversation_alone() -> None:
    messages = talk(2)
    done = ullage.fit(messages, limit=500, repair=True)
    assert not done.changed
    assert list(done.messages) == messages


def test_a_window_keeps_the_digests_of_two_trims_only() -> None:
    before = digests()
    window = Window(limit=800, policy=FitPolicy(low_water=1.0))
    for message in talk(90, words=20):
        window.append(message)
        window.fitted()
    assert window.trims > 20
    assert digests() - before <= 4  # of two trims; of the one under way, and as it was while it ran


def digests() -> int:
    gc.collect()
    return sum(isinstance(each, Digest) for each in gc.get_objects())
