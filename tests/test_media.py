"""What costs tokens beside text is counted, or the ceiling covers it and the count is not called exact."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage.tokens.duration import seconds_of
from ullage.tokens.media import LONGEST_ANSWER, UNSEEN_PAGES, Rates, pages_of

TEXT = "The harbour master wrote down every boat that came in on Monday. " * 20
MODELS = ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-flash", None]


def count(*messages: dict[str, Any], model: str | None = "gpt-4o") -> ullage.Count:
    return ullage.count([{"role": "user", "content": "Go on."}, *messages], model)


def answer(**more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "Yes.", **more}


# Fields of an assistant's message ----------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "more",
    [
        {"refusal": TEXT},
        {"reasoning_content": TEXT},
        {"reasoning": TEXT},
        {"reasoning": [{"type": "text", "text": TEXT}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": TEXT, "signature": "c2ln"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": TEXT}]},
        {"content": [{"type": "thinking", "thinking": TEXT, "signature": "c2ln"}]},
        {"content": [{"type": "refusal", "refusal": TEXT}]},
    ],
)
def test_every_text_of_an_answer_counts_as_text(more: dict[str, Any], model: str | None) -> None:
    bare, whole = count(answer(), model=model), count(answer(**more), model=model)
    text = count(answer(content=TEXT), model=model)
    assert whole.tokens - bare.tokens > 0.9 * (text.tokens - bare.tokens)
    assert whole.ceiling - bare.ceiling > 0.9 * (text.ceiling - bare.ceiling)
    assert not whole.exact


def test_thinking_that_is_there_twice_counts_once() -> None:
    blocks = [{"type": "thinking", "thinking": TEXT[:300]}, {"type": "thinking", "thinking": TEXT[300:]}]
    once, twice = answer(reasoning_content=TEXT), answer(reasoning_content=TEXT, thinking_blocks=blocks)
    assert count(once) == count(twice)
    other = answer(reasoning_content=TEXT, thinking_blocks=[{"type": "thinking", "thinking": TEXT[:300]}])
    assert count(other).tokens > count(once).tokens


def test_fields_that_are_none_leave_a_count_exact() -> None:
    nothing = answer(refusal=None, reasoning_content=None, audio=None, function_call=None, tool_calls=None)
    assert count(nothing) == count(answer())
    assert count(nothing).exact


@pytest.mark.parametrize("more", [{"refusal": "I will not."}, {"audio": {"id": "audio_1"}}])
def test_an_answer_may_be_a_refusal_or_spoken_without_any_content(more: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": None, **more}
    history = [{"role": "user", "content": "Go on."}, message, {"role": "user", "content": "Why?"}]
    assert ullage.fit(history, "gpt-4o", limit=30_000).messages is history
    context = ullage.Context(model="gpt-4o", token_budget=None)
    for each in history:
        context.append(each)
    assert context.to_messages()[1:] == history


def test_a_spoken_answer_is_covered_by_its_transcript_or_by_the_longest() -> None:
    bare = count(answer()).ceiling
    assert count(answer(audio={"id": "audio_1"})).ceiling - bare == LONGEST_ANSWER
    known = count(answer(audio={"id": "audio_1", "transcript": "It is raining in Paris."}))
    assert 40 < known.ceiling - bare < 100
    assert not known.exact


# Calls of other kinds ----------------------------------------------------------------------------------


def custom(text: str, identity: str = "c") -> dict[str, Any]:
    return {"id": identity, "type": "custom", "custom": {"name": "run", "input": text}}


def function(text: str, identity: str = "c") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "run", "arguments": text}}


@pytest.mark.parametrize("model", MODELS)
def test_a_custom_call_costs_what_a_function_with_the_same_text_does(model: str | None) -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    one, other = (answer(tool_calls=[call]) for call in (custom(TEXT), function(TEXT)))
    assert count(one, result, model=model) == count(other, result, model=model)
    assert not count(one, result, model=model).exact


@pytest.mark.parametrize("model", MODELS)
def test_an_older_function_call_costs_what_a_call_does(model: str | None) -> None:
    older = answer(function_call={"name": "run", "arguments": TEXT})
    one = count(older, {"role": "function", "name": "run", "content": TEXT}, model=model)
    other = count(
        answer(tool_calls=[function(TEXT)]),
        {"role": "tool", "tool_call_id": "c", "content": TEXT},
        model=model,
    )
    assert 0 <= one.tokens - other.tokens <= 5  # the name of the function, which the result repeats
    assert not one.exact


def older_steps(number: int) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Read them all."}]
    for place in range(number):
        arguments = f'{{"path": "/src/{place}.py"}}'
        call = {"name": "read", "arguments": arguments}
        history.append({"role": "assistant", "content": None, "function_call": call})
        history.append({"role": "function", "name": "read", "content": f"line {place}\n" * 40})
    return history


def test_older_calls_stay_or_go_with_their_results() -> None:
    history = older_steps(20)
    fitted = ullage.fit(history, "gpt-4o", limit=900)
    assert fitted.count.ceiling <= 900
    assert fitted.changed
    for place, message in enumerate(fitted.messages):
        if message["role"] == "function":
            assert fitted.messages[place - 1]["function_call"]["name"] == "read"
    assert fitted.messages[-1] is history[-1]
    assert "read" in fitted.messages[0]["content"]  # the digest knows what the call was
    with pytest.raises(ullage.InvalidConversation, match="answers no open call") as caught:
        ullage.fit(history[2:], "gpt-4o", limit=900)
    assert caught.value.field == "name"


def test_custom_calls_stay_or_go_with_their_results() -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Run them all."}]
    for place in range(20):
        history.append(answer(tool_calls=[custom(f"print({place})", f"c{place}")]))
        history.append({"role": "tool", "tool_call_id": f"c{place}", "content": f"line {place}\n" * 40})
    fitted = ullage.fit(history, "gpt-4o", limit=900)
    assert fitted.changed
    assert fitted.messages[-2] is history[-2]
    assert any(change.kind == "evict" for change in fitted.changes)


def test_a_context_goes_on_from_an_older_call_that_was_never_answered() -> None:
    journal = ullage.Context(model="gpt-4o").journal
    context = ullage.Context(model="gpt-4o", journal=journal, session="s")
    for message in older_steps(1)[:2]:
        context.append(message)
    again = ullage.Context.resume("s", journal, model="gpt-4o")
    again.append_user("Well?")
    assert again.turns[-2] == {"role": "function", "name": "read", "content": "[interrupted]"}
    plain = ullage.Context(model="gpt-4o", use_tool_role=False)
    for message in older_steps(1):
        plain.append(message)
    assert "[tool: read]" in plain.to_messages()[-1]["content"]


def test_calls_of_other_kinds_are_written_for_other_apis() -> None:
    from ullage import wire

    result = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    step = [answer(tool_calls=[custom("print(1)")]), result, answer(content=None, refusal="No.")]
    request = wire.Request(model="m", messages=(*older_steps(1), *step))
    anthropic = wire.write(request, "anthropic.messages")["messages"]
    assert anthropic[1]["content"][0]["name"] == "read"
    assert anthropic[1]["content"][0]["id"] == anthropic[2]["content"][0]["tool_use_id"]
    assert anthropic[-1]["content"] == "No."
    responses = wire.write(request, "openai.responses")["input"]
    assert {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "print(1)"} in responses
    assert wire.write(request, "openai.chat")["messages"] == list(request.messages)


# Sound and film ----------------------------------------------------------------------------------------


def wav(seconds: float, rate: int = 16_000) -> bytes:
    size = int(seconds * rate * 2)
    head = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", size + 36, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16
    )
    return head + b"data" + struct.pack("<I", size) + bytes(size)


def flac(seconds: float) -> bytes:
    packed = (44_100 << 44) | int(seconds * 44_100)
    return b"fLaC\x00\x00\x00\x22" + bytes(10) + packed.to_bytes(8, "big") + bytes(40)


def opus(seconds: float) -> bytes:
    last = struct.pack("<q", int(seconds * 48_000))
    return b"OggS" + bytes(24) + b"OpusHead" + bytes(300) + b"OggS\x00\x04" + last + bytes(60)


def mp4(seconds: float) -> bytes:
    moov = b"mvhd" + bytes(12) + struct.pack(">II", 1000, int(seconds * 1000)) + bytes(80)
    return b"\x00\x00\x00\x18ftypmp42" + bytes(400) + moov


def mp3(seconds: float, head: bytes = b"\xff\xfb\x50\xc4") -> bytes:  # 64 kbit/s, 44.1 kHz
    return head + bytes(int(seconds * 8_000) - 4)


def mp3_of_varying_rate(seconds: float) -> bytes:
    frames = int(seconds * 44_100 / 1152)
    return b"\xff\xfb\x50\xc4" + bytes(32) + b"Xing\x00\x00\x00\x01" + struct.pack(">I", frames) + bytes(900)


@pytest.mark.parametrize("make", [wav, flac, opus, mp4, mp3, mp3_of_varying_rate])
def test_data_tells_how_long_it_lasts(make: Any) -> None:
    for seconds in (2.0, 61.5, 600.0):
        assert seconds_of(make(seconds)) == pytest.approx(seconds, rel=0.01)


@given(st.sampled_from([b"", b"RIFF", b"fLaC", b"OggS", b"0000ftypmvhd", b"ID3", b"\xff\xfb"]), st.binary())
def test_no_data_is_too_broken_to_be_looked_at(head: bytes, data: bytes) -> None:
    seconds = seconds_of(head + data)
    assert seconds is None or seconds >= 0
    assert pages_of(b"%PDF-1.7" + data) >= 0


def sound(data: bytes, kind: str) -> dict[str, Any]:
    audio = {"data": base64.b64encode(data).decode(), "format": kind}
    return {"role": "user", "content": [{"type": "input_audio", "input_audio": audio}]}


@pytest.mark.parametrize("model", MODELS)
def test_sound_costs_by_its_length(model: str | None) -> None:
    short, long = (count(sound(wav(each), "wav"), model=model) for each in (10, 100))
    assert 800 < long.tokens - short.tokens < 3_000
    assert long.ceiling - long.tokens < 4_000
    assert not long.exact


@pytest.mark.parametrize("model", MODELS)
def test_ten_megabytes_of_anything_are_not_ten_kilobytes(model: str | None) -> None:
    data = b"\x00" * 10_000_000
    film = {
        "type": "video_url",
        "video_url": {"url": f"data:video/mp4;base64,{base64.b64encode(data).decode()}"},
    }
    for message in (sound(data, "mp3"), {"role": "user", "content": [film]}, file(data, "application/pdf")):
        counted = count(message, model=model)
        assert counted.ceiling > 90_000
        assert counted.tokens > 4_000
        assert not counted.exact


# Files -------------------------------------------------------------------------------------------------


def file(data: bytes, mime: str) -> dict[str, Any]:
    url = f"data:{mime};base64,{base64.b64encode(data).decode()}"
    return {"role": "user", "content": [{"type": "file", "file": {"file_data": url, "filename": "a"}}]}


def pdf(pages: int) -> bytes:
    leaves = b"".join(b"%d 0 obj << /Type /Page /Parent 2 0 R >> endobj\n" % (9 + n) for n in range(pages))
    return b"%%PDF-1.4\n2 0 obj << /Type /Pages /Count %d >> endobj\n" % pages + leaves + b"%%EOF"


def packed_pdf(pages: int) -> bytes:
    packed = zlib.compress(b" ".join([b"<< /Type/Page /Parent 2 0 R >>"] * pages))
    return b"%PDF-1.5\n7 0 obj << /Type /ObjStm /Filter /FlateDecode >> stream\r\n" + packed + b"\nendstream"


@pytest.mark.parametrize("make", [pdf, packed_pdf])
@pytest.mark.parametrize("pages", [1, 40])
def test_a_pdf_costs_by_its_pages(make: Any, pages: int) -> None:
    assert pages_of(make(pages)) == pages
    for model, least in (("gpt-4o", 1_000), ("claude-sonnet-4-5", 1_500), ("gemini-2.5-flash", 258)):
        counted = count(file(make(pages), "application/pdf"), model=model)
        assert least * pages <= counted.tokens < 2_000 * pages + 50
        assert counted.tokens < counted.ceiling < 5_000 * pages + 100


def test_a_file_of_text_counts_as_its_text() -> None:
    counted = count(file(TEXT.encode(), "text/plain"))
    text = count({"role": "user", "content": [{"type": "text", "text": TEXT}]})
    assert counted.tokens == text.tokens


@pytest.mark.parametrize("named", [{"file_id": "file-1"}, {"file_url": "https://a.example/b.pdf"}, {}])
def test_a_file_that_is_only_named_has_the_ceiling_of_many_pages(named: dict[str, str]) -> None:
    part = {"type": "file", "file": named}
    counted = count({"role": "user", "content": [part]}, model="claude-sonnet-4-5")
    assert counted.ceiling > UNSEEN_PAGES * Rates().page
    assert not counted.exact
