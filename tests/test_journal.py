"""What every journal must do, wherever it keeps things."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends import BACKENDS, QUICK
from ullage.context.journal import Journal, JournalEvent, Piece
from ullage.errors import Conflict
from ullage.fitting.pieces import handle_of, letters_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

any_text = st.text(st.characters(codec=None, categories=None), max_size=40)  # lone surrogates among it
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(params=BACKENDS)
def journal(request: pytest.FixtureRequest) -> Iterator[Journal]:
    with BACKENDS[request.param]() as backend:
        yield backend.journal


def turn(number: int) -> JournalEvent:
    return JournalEvent("turn", {"role": "user", "content": f"turn {number}"})


def texts(found: Sequence[Piece]) -> set[str]:
    return {piece.text for piece in found}


def test_events_come_back_in_the_order_in_which_they_were_kept(journal: Journal) -> None:
    for number in range(20):
        journal.append("one", number, turn(number))
        journal.append("other", number, turn(-number))
    assert list(journal.events("one")) == [turn(number) for number in range(20)]
    assert list(journal.events("other")) == [turn(-number) for number in range(20)]


def test_a_session_that_is_not_known_has_no_events(journal: Journal) -> None:
    assert list(journal.events("nobody")) == []


@pytest.mark.parametrize("number", [0, 1, 3, 100, -1])
def test_a_taken_number_or_a_gap_is_a_conflict_and_changes_nothing(journal: Journal, number: int) -> None:
    for each in range(2):
        journal.append("one", each, turn(each))
    with pytest.raises(Conflict) as raised:
        journal.append("one", number, turn(99))
    assert (raised.value.session, raised.value.number, raised.value.length) == ("one", number, 2)
    assert list(journal.events("one")) == [turn(0), turn(1)]
    journal.append("one", 2, turn(2))


def test_several_events_are_kept_together_or_not_at_all(journal: Journal) -> None:
    journal.append("one", 0, turn(0), turn(1))
    with pytest.raises(Conflict):
        journal.append("one", 1, turn(1), turn(2))
    journal.append("one", 2, turn(2), turn(3), turn(4))
    assert list(journal.events("one")) == [turn(number) for number in range(5)]


def test_a_session_that_begins_with_a_gap_is_a_conflict_and_does_not_begin(journal: Journal) -> None:
    with pytest.raises(Conflict):
        journal.append("one", 1, turn(1))
    assert list(journal.events("one")) == []


@pytest.mark.parametrize("backend", QUICK)
@given(session=any_text, kind=any_text, data=st.dictionaries(any_text, json_values, max_size=4))
def test_an_event_comes_back_exactly(backend: str, session: str, kind: str, data: dict[str, Any]) -> None:
    with BACKENDS[backend]() as opened:
        opened.journal.append(session, 0, JournalEvent(kind, data))
        (event,) = opened.journal.events(session)
    assert event == JournalEvent(kind, data)
    assert repr(event.data) == repr(data)  # 1 is not 1.0 and not True, 0.0 is not -0.0


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), -float("inf"), 2**64, -(2**200), 1e308, 5e-324]
)
def test_odd_numbers_come_back_as_they_were(journal: Journal, number: float) -> None:
    journal.append("one", 0, JournalEvent("turn", {"number": number, "nothing": None}))
    (event,) = journal.events("one")
    assert repr(event.data) == repr({"number": number, "nothing": None})


def test_threads_that_append_to_one_session_each_win_some_numbers_and_never_the_same(
    journal: Journal,
) -> None:
    won: list[tuple[int, int]] = []

    def work(worker: int) -> None:
        for _ in range(20):
            number = len(journal.events("one"))
            try:
                journal.append("one", number, JournalEvent("turn", {"worker": worker}))
            except Conflict:
                continue
            won.append((number, worker))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for number, _ in sorted(won)] == list(range(len(won)))
    assert [event.data["worker"] for event in journal.events("one")] == [worker for _, worker in sorted(won)]


@pytest.mark.parametrize("backend", QUICK)
@given(pieces=st.lists(any_text, min_size=1, max_size=5))
def test_a_piece_comes_back_exactly(backend: str, pieces: list[str]) -> None:
    with BACKENDS[backend]() as opened:
        opened.journal.keep("one", pieces)
        for text in pieces:
            handle, _ = handle_of(text, {})
            assert opened.journal.recall(handle) == Piece(letters_of(text), text, "one")


@pytest.mark.parametrize(
    "text", ["", "a\0b", "\ud800", "\ufeffx", "\r\n\t", "x" * 3_000_000, "\U0010ffff", "é", "e\u0301"]
)
def test_no_text_is_changed_by_being_kept(journal: Journal, text: str) -> None:
    journal.keep("one", [text])
    piece = journal.recall(letters_of(text))
    assert piece is not None
    assert piece.text == text


def test_a_handle_is_found_in_any_case_with_spaces_around_it_and_at_any_length(journal: Journal) -> None:
    journal.keep("one", ["some text"])
    letters = letters_of("some text")
    for handle in (letters, letters[:8], letters[:1], letters[:8].upper(), f"  {letters[:8]}\n"):
        found = journal.recall(handle)
        assert found is not None
        assert found.text == "some text"


@pytest.mark.parametrize(
    "handle", ["", " ", "%", "_", "a%", "a_", "zzzzzzzz", "0189", "ü", "a b", "a\0", "'", "\ud800"]
)
def test_what_is_no_handle_of_a_piece_finds_nothing(journal: Journal, handle: str) -> None:
    journal.keep("one", ["some text", "another"])
    assert journal.recall(handle) is None
    assert journal.recall(handle, "one") is None


def test_of_several_that_fit_the_sessions_own_comes_first_then_the_earliest(journal: Journal) -> None:
    same = [text for text in map(str, range(400)) if letters_of(text).startswith("a")][:4]
    assert len(same) == 4
    journal.keep("one", same[:2])
    journal.keep("two", same[2:])
    for session, text in ((None, same[0]), ("one", same[0]), ("two", same[2]), ("three", same[0])):
        assert journal.recall("a", session) == Piece(
            letters_of(text), text, session if session == "two" else "one"
        )


def test_a_text_that_two_sessions_keep_belongs_to_both(journal: Journal) -> None:
    journal.keep("one", ["shared words", "shared words"])
    journal.keep("two", ["shared words"])
    for session in ("one", "two"):
        found = journal.recall(letters_of("shared words")[:8], session)
        assert found is not None
        assert found.session == session
        assert [piece.session for piece in journal.search("shared", session)] == [session]


def test_a_search_finds_words_in_any_order_and_case_the_best_first(journal: Journal) -> None:
    journal.keep("one", ["The parser failed in line 7", "The lexer failed", "nothing at all"])
    found = [hit.text for hit in journal.search("failed PARSER")]
    assert found == ["The parser failed in line 7", "The lexer failed"]
    assert texts(journal.search("FAILING")) == {"The parser failed in line 7", "The lexer failed"}
    assert texts(journal.search("pars")) == {"The parser failed in line 7"}
    assert texts(journal.search("lexer nowhere")) == {"The lexer failed"}
    assert texts(journal.search("nowhere")) == set()


def test_a_search_is_of_one_session_or_of_all_and_gives_no_more_than_asked(journal: Journal) -> None:
    journal.keep("one", [f"word in one {number}" for number in range(5)])
    journal.keep("two", [f"word in two {number}" for number in range(5)])
    assert len(journal.search("word")) == 10
    assert {piece.session for piece in journal.search("word", "two")} == {"two"}
    assert len(journal.search("word", most=3)) == 3
    assert len(journal.search("word", "one", most=3)) == 3
    assert list(journal.search("word", "three")) == []
    assert list(journal.search("word", most=0)) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Die Größe der Straße", "größe"),
        ("Это простая проверка", "ПРОВЕРКА"),
        ("東京都庁は新宿にある", "新宿"),
        ("会議は明日です", "明日"),
        ("สวัสดีชาวโลก", "ชาวโลก"),
        ("안녕하세요 세계", "세계"),
        ("नमस्ते दुनिया", "दुनिया"),
        ("see src/ullage/store/book.py:41", "src/ullage/store/book.py"),
        ("def test_never_over(): pass", "test_never_over"),
        ("error E1042 at 0x7ffe", "0x7ffe"),
        ("naïve café", "café"),
        ("mail to a.b@example.org", "a.b@example.org"),
    ],
)
def test_words_of_many_scripts_and_names_of_code_are_found(journal: Journal, text: str, word: str) -> None:
    journal.keep("one", [text, "something else entirely"])
    assert texts(journal.search(word)) == {text}


@pytest.mark.parametrize(
    "words",
    [
        *(
            '"',
            '"word',
            "word*",
            "*",
            "NEAR(word",
            "word AND",
            "NOT",
            "-word",
            "text:word",
            "^word",
            "(",
            "+",
        ),
        *("{a b}:c", "\0", "word\0more", "\ud800", "'; DROP TABLE pieces; --", "a" * 10_000, "word " * 500),
        *("", " \n"),
    ],
)
def test_nothing_in_the_words_is_taken_for_syntax(journal: Journal, words: str) -> None:
    journal.keep("one", ["a word and more"])
    assert texts(journal.search(words)) <= {"a word and more"}
    assert texts(journal.search("word")) == {"a word and more"}


@pytest.mark.parametrize("backend", QUICK)
@given(words=any_text)
def test_no_search_fails(backend: str, words: str) -> None:
    with BACKENDS[backend]() as opened:
        opened.journal.keep("one", [words])
        opened.journal.search(words)
        opened.journal.search(words, "one")


def test_items_are_numbered_kept_in_order_and_forgotten_for_good(journal: Journal) -> None:
    items = [journal.remember(f"fact {number}", "fact" * (number % 2)) for number in range(3)]
    assert list(journal.items()) == items
    assert [item.kind for item in items] == ["", "fact", ""]
    assert journal.forget(items[2].number)
    assert not journal.forget(items[2].number)
    assert not journal.forget(10**30)
    later = journal.remember("\ud800\0")
    assert later.number > items[2].number
    assert list(journal.items()) == [*items[:2], later]
