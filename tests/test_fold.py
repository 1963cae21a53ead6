"""The fold's state is a value: functions make the next one and leave the one before as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import InvalidConversation
from ullage.fitting import FitPolicy, Window, fold
from ullage.fitting.recall import Recall
from ullage.fitting.request import LastRequest, make_request
from ullage.fitting.revision import renew, retract
from ullage.fitting.series import ChangeLog, Handles, Series

if TYPE_CHECKING:
    from ullage.fitting.state import FoldState

LIMIT = 400


def started(**options: Any) -> FoldState:
    return Window(model="gpt-4o", limit=LIMIT, **options).state


def said(role: str, number: int) -> dict[str, Any]:
    return {"role": role, "content": f"{role} {number}: " + f"the parser of src/file{number}.py " * 8}


def talk(state: FoldState, exchanges: int) -> FoldState:
    for number in range(exchanges):
        state = fold.append(state, said("user", number))
        state = fold.append(state, said("assistant", number))
    return state


def sent(state: FoldState) -> Any:
    fitted = make_request(state, Recall(), LastRequest())
    return fitted.messages, fitted.count, fitted.changes, fitted.dropped


def test_a_state_stays_as_it_was_whatever_is_made_of_it() -> None:
    system = {"role": "system", "content": "Be brief."}
    state = talk(fold.append(started(policy=FitPolicy(recall=True)), system), 6)
    asked = fold.append(state, said("user", 6), pin=True)
    before = sent(asked), sent(fold.append(state, said("user", 99)))
    assert asked.trims.number > 0
    fold.append(fold.append(asked, said("assistant", 6)), said("user", 7))
    renew(asked, {"role": "system", "content": "Be long, and say all that there is to say."})
    fold.compact(state, 0.2)
    fold.commit(asked)
    fold.append(retract(asked), said("user", 8))
    talk(state, 8)
    assert (sent(asked), sent(fold.append(state, said("user", 99)))) == before


def test_two_ways_on_from_one_state_are_as_if_the_other_had_not_been() -> None:
    policy = FitPolicy(recall=True)
    state = talk(started(policy=policy), 9)
    one, other = (fold.append(talk(state, count), said("user", count)) for count in (5, 2))
    alone = fold.append(talk(talk(started(policy=policy), 9), 2), said("user", 2))
    assert sent(one) != sent(other)
    assert sent(other) == sent(alone)
    assert list(other.trims.log) == list(alone.trims.log)


def test_retracting_gives_the_state_before_the_question() -> None:
    state = talk(started(), 3)
    asked = fold.append(state, said("user", 3), pin=True, priority=2)
    back = retract(asked)
    assert (back.totals, back.position, back.live) == (state.totals, state.position, state.live)
    assert list(back.history) == list(state.history)
    assert list(back.marks) == []
    with pytest.raises(InvalidConversation):
        retract(back)


def test_a_pin_of_the_policy_outlives_a_question_that_is_put_in_other_words() -> None:
    policy = FitPolicy(pins=frozenset({2}))
    state = fold.append(talk(started(policy=policy), 1), said("user", 1))
    again = fold.append(retract(state), said("user", 2))
    assert again.newest is not None
    assert again.newest.pinned


def test_a_trim_becomes_final_once() -> None:
    state = fold.append(talk(started(), 2), said("user", 2))
    while not state.is_over:
        state = fold.append(fold.append(state, said("assistant", 3)), said("user", 4))
    trimmed = fold.commit(state)
    assert trimmed.is_trimmed
    assert fold.commit(trimmed) is trimmed
    answered = [fold.append(each, said("assistant", 5)) for each in (state, trimmed)]
    assert sent(fold.append(answered[0], said("user", 6))) == sent(fold.append(answered[1], said("user", 6)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=40))
def test_a_series_is_what_a_tuple_would_be(steps: list[tuple[int, int]]) -> None:
    known: list[tuple[Series[int], tuple[int, ...]]] = [(Series(), ())]
    for kind, number in steps:
        series, plain = known[number % len(known)]
        if kind == 0:
            known.append((series.with_item(number), (*plain, number)))
        elif kind == 1:
            known.append((series.with_items([number, 7]), (*plain, number, 7)))
        else:
            known.append((series.without_last(), plain[:-1]))
    for series, plain in known:
        assert tuple(series) == plain
        assert len(series) == len(plain)
        for part in (slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1)):
            assert tuple(series[part]) == plain[part]
        assert [series[place] for place in range(-len(plain), len(plain))] == [*plain, *plain]
        with pytest.raises(IndexError):
            series[len(plain)]


def test_a_longer_series_shares_the_items_of_a_shorter_one() -> None:
    class Counted(list[int]):
        copies = 0

        def __getitem__(self, index: Any) -> Any:
            Counted.copies += isinstance(index, slice)
            return super().__getitem__(index)

    series: Series[int] = Series()
    series._items = Counted()
    for number in range(1_000):
        series = series.with_item(number)
    assert Counted.copies == 0


def test_handles_of_another_way_on_are_not_known() -> None:
    first = Handles({"old": b"0"}).with_handles({"a": b"1"})
    one, other = first.with_handles({"b": b"2"}), first.with_handles({"c": b"3"})
    assert dict(first) == {"old": b"0", "a": b"1"}
    assert dict(one) == {"old": b"0", "a": b"1", "b": b"2"}
    assert dict(other) == {"old": b"0", "a": b"1", "c": b"3"}
    assert other.get("b") is None
    assert first.with_handles({"a": b"1"}) is first
    assert (len(first), len(one), len(ChangeLog())) == (2, 3, 0)
