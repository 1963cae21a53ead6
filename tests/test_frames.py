"""What a stream's frames are, wherever the network cut its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.broker.dialect import Frame
from ullage.broker.frames import JsonLinesFramer, SseFramer
from ullage.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ullage.broker.dialect import Framer


def framed(framer: Framer, chunks: Iterable[bytes]) -> list[Frame]:
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    return frames + list(framer.end())


def events(*chunks: bytes) -> list[tuple[str, str]]:
    return [(frame.event, frame.data) for frame in framed(SseFramer(), chunks)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: one\n\n", [("", "one")], id="one event"),
        pytest.param(b"data:one\n\ndata: two\n\n", [("", "one"), ("", "two")], id="the space is optional"),
        pytest.param(b"data:  one\n\n", [("", " one")], id="only one space is taken"),
        pytest.param(b"data: a\ndata: b\ndata\n\n", [("", "a\nb\n")], id="data lines are joined"),
        pytest.param(b": hello\n\n:\ndata: x\n: inside\n\n", [("", "x")], id="comments are nothing"),
        pytest.param(
            b"event: ping\ndata: {}\n\ndata: 2\n\n", [("ping", "{}"), ("", "2")], id="names last once"
        ),
        pytest.param(b"event: ping\n\ndata: 2\n\n", [("", "2")], id="an event without data is none"),
        pytest.param(b"data\n\n", [("", "")], id="a field without a colon is an empty one"),
        pytest.param(b"data:\n\n", [("", "")], id="an empty value is a value"),
        pytest.param(b"id: 7\nretry: 10\nother: x\ndata: y\n\n", [("", "y")], id="other fields are nothing"),
        pytest.param(b" data: x\ndata : y\nDATA: z\n\n", [], id="names are exact"),
        pytest.param(
            b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [("", "a"), ("", "b"), ("", "c")], id="line ends"
        ),
        pytest.param(b"data: a\r\ndata: b\rdata: c\n\r\n", [("", "a\nb\nc")], id="mixed line ends"),
        pytest.param(b"\xef\xbb\xbfdata: x\n\n", [("", "x")], id="a byte order mark"),
        pytest.param(
            b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [("", "x")], id="a mark counts at the start only"
        ),
        pytest.param("data: é😀\n\n".encode(), [("", "é😀")], id="UTF-8"),
        pytest.param(b"data: \xff\n\n", [("", "\ufffd")], id="bytes that are no UTF-8"),
        pytest.param(
            "data: a\u2028b\x0bc\x85d\n\n".encode(), [("", "a\u2028b\x0bc\x85d")], id="no line ends"
        ),
        pytest.param(b"data: one\n\ndata: two\n", [("", "one")], id="an unfinished event is dropped"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_events_are_read_by_the_rules(stream: bytes, expected: list[tuple[str, str]]) -> None:
    assert events(stream) == expected
    assert events(*(stream[i : i + 1] for i in range(len(stream)))) == expected


LINES = st.sampled_from([
    b"data: x", b"data:", b"data", b"data: \xe2\x82\xac\xf0\x9f\x98\x80", b"event: e", b": c", b"", b"id: 1",
    b"\xef\xbb\xbfdata: m", b"data: \xff\xc3", b'{"a": 1}', b'{"b": "\xc3\xa9"}', b"{",
])  # fmt: skip
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n", b""]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@given(STREAMS, st.data())
@pytest.mark.parametrize("framer", [SseFramer, JsonLinesFramer])
def test_any_split_of_the_bytes_gives_the_same_frames(
    framer: type[SseFramer | JsonLinesFramer], stream: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert framed(framer(), chunks) == framed(framer(), [stream])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")), min_size=1))
def test_what_is_written_as_an_event_is_read_as_it(lines: list[str]) -> None:
    stream = "".join(f"data: {line}\n" for line in lines) + "\n"
    assert events(stream.encode()) == [("", "\n".join(lines))]


@pytest.mark.parametrize("framer", [SseFramer, JsonLinesFramer])
def test_a_line_that_does_not_end_is_refused_and_not_kept(framer: type[SseFramer | JsonLinesFramer]) -> None:
    full = framer(most=1000)
    with pytest.raises(ProviderError, match="a line of more than 1,000 bytes"):
        framed(full, [b"x"] * 1001)


def test_an_event_that_does_not_end_is_refused() -> None:
    framer = SseFramer(most=1000)
    with pytest.raises(ProviderError, match="an event of more than 1,000 bytes"):
        framed(framer, [b"data: 123456789\n"] * 101)


def test_events_before_the_one_that_is_too_large_are_handed_on() -> None:
    frames = SseFramer(most=20).feed(b"data: 1\n\ndata: 2\n\ndata: " + b"3" * 30)
    seen = [next(frames).data, next(frames).data]
    with pytest.raises(ProviderError):
        next(frames)
    assert seen == ["1", "2"]


def test_a_line_of_json_is_a_frame_and_a_cut_one_is_not() -> None:
    stream = b'{"a": 1}\r\n\n  \n{"b": "\xc3\xa9"}\n'
    assert framed(JsonLinesFramer(), [stream]) == [Frame('{"a": 1}'), Frame('{"b": "é"}')]
    assert framed(JsonLinesFramer(), [stream + b'{"c": 1}'])[2:] == [Frame('{"c": 1}')]
    assert framed(JsonLinesFramer(), [stream + b'{"c": 1'])[2:] == []


def test_an_error_in_a_field_of_its_own_is_read_as_one() -> None:
    framer = SseFramer()
    (frame,) = framer.feed(b'error: {"code": 400, "message": "too long"}\n\n')
    assert frame.data == '{"error":{"code": 400, "message": "too long"}}'
    assert list(framer.feed(b"error: none\n\n")) == []
