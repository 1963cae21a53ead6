"""Images: their size read from the data, their price by the family's rule."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage.tokens import counter_for
from ullage.tokens.families import family, rows
from ullage.tokens.images import RULES, image_cost, image_size

SIDES = st.integers(1, 16_000)


def address(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def png(width: int, height: int) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\x00\x00\x00"
    )


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00" * 8


def jpeg(width: int, height: int) -> bytes:
    thumbnail = b"\xff\xe1" + struct.pack(">H", 3000) + b"\x00" * 2998
    return (
        b"\xff\xd8" + thumbnail + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03" * 12
    )


def webp(kind: bytes, head: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + head + b"\x00" * 12


def webp_lossless(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    return webp(b"VP8L", b"\x00\x00\x00\x00\x2f" + struct.pack("<I", bits))


def webp_extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\x0a\x00\x00\x00" + b"\x00" * 4 + sides)


def webp_lossy(width: int, height: int) -> bytes:
    return webp(
        b"VP8 ", b"\x00\x00\x00\x00" + b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)
    )


@pytest.mark.parametrize("make", [png, gif, jpeg, webp_lossless, webp_extended, webp_lossy])
@given(width=SIDES, height=SIDES)
def test_the_size_stands_in_the_head_of_the_data(make: Any, width: int, height: int) -> None:
    assert image_size(address(make(width, height))) == (width, height)


def test_a_recording_keeps_the_size_of_what_it_leaves_out() -> None:
    known = json.dumps({"mime": "image/png", "bytes": 9, "width": 640, "height": 480})
    assert image_size(f"data:image/png;base64,<ELIDED {known}>") == (640, 480)


@pytest.mark.parametrize(
    "url", ["", "https://a.example/b.png", "data:image/png;base64,", "data:image/png;base64,%%%"]
)
def test_an_unknown_size_is_none(url: str) -> None:
    assert image_size(url) is None


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8", b"RIFF0000WEBP"]),
)
def test_no_data_is_too_broken_to_be_looked_at(data: bytes, head: bytes) -> None:
    size = image_size(address(head + data))
    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4o", (100, 100), 255),
        ("gpt-4o", (640, 480), 425),
        ("gpt-4o", (1024, 1024), 765),
        ("gpt-4o", (2048, 4096), 1105),
        ("gpt-4o-mini", (640, 480), 14_167),
        ("gpt-4.1-mini", (640, 480), 488),
        ("gpt-5", (640, 480), 350),
        ("gpt-5-mini", (640, 480), 361),
        ("gpt-5-nano", (640, 480), 451),
        ("gpt-5.5", (1245, 1395), 2061),
        ("o4-mini", (640, 480), 517),
        ("claude-sonnet-4-5", (750, 750), 754),
        ("claude-sonnet-4-5", (6000, 6000), 1604),
        ("gemini-2.5-flash", (640, 480), 258),
        ("gemini-2.0-flash", (256, 256), 258),
        ("gemini-2.0-flash", (1024, 1024), 1290),
        ("no-such-model", (640, 480), 1000),
    ],
)
def test_an_image_costs_what_its_size_costs(model: str, size: tuple[int, int], tokens: int) -> None:
    part = {"type": "image_url", "image_url": {"url": address(png(*size))}}
    rule = RULES[counter_for(model).family.image]
    assert image_cost(part, rule)[0] == tokens
    assert image_cost(part, rule)[1] >= tokens


def test_low_detail_costs_the_base() -> None:
    part = {"type": "image_url", "image_url": {"url": address(png(4000, 4000)), "detail": "low"}}
    assert image_cost(part, RULES["openai"]) == (85, 85)


@pytest.mark.parametrize("rule", RULES)
@given(width=SIDES, height=SIDES)
def test_no_image_costs_more_than_one_of_unknown_size_may(rule: str, width: int, height: int) -> None:
    unknown = image_cost({"image_url": {"url": "https://a.example/b"}}, RULES[rule])
    known = image_cost({"image_url": {"url": address(png(width, height))}}, RULES[rule])
    assert known[0] <= known[1]
    if rule != "gemini-crops":  # a strip has crops without end
        assert known[0] <= unknown[1]


def test_an_image_is_never_exact_and_counts_in_its_message() -> None:
    part = {"type": "image_url", "image_url": {"url": address(png(640, 480))}}
    counted = ullage.count(
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}, part]}], model="gpt-4o"
    )
    assert counted.tokens == 3 + 4 + 1 + 425
    assert not counted.exact


def test_every_family_names_a_rule_that_is_there() -> None:
    assert {family(name).image for name in rows()} <= set(RULES)


def test_parts_that_are_neither_text_nor_media_count_as_their_json() -> None:
    part = {"type": "search_result", "source": "https://a.example", "title": "A"}
    assert 10 < counter_for("gpt-4o").message({"role": "user", "content": [part]}).tokens < 40
