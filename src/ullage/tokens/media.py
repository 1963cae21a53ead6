"""Counts the parts of a message that are not text: images, audio, video, files, thinking.

Nothing is fetched. The length of audio and video and the number of pages of a PDF are read from the data. If
the data does not contain them, the ceiling assumes the encoding with the fewest bytes per second. Audio,
video or a file that is only named by an id or an address counts as a few pages, with a ceiling of
`UNSEEN_PAGES`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ullage.tokens.duration import seconds_of
from ullage.tokens.images import IMAGES, RULES, image_cost, read_omission
from ullage.tokens.measures import remember_results

Price = Callable[[str], tuple[int, int]]
"""Takes a text and returns its tokens and its ceiling."""


class Rates(NamedTuple):
    """Token rates of one family of models for parts that are not text."""

    second: int = 10
    """Tokens per second of audio."""
    page: int = 1600
    """Tokens per page of a PDF."""
    page_most: int = 5000
    """Most tokens per page: a dense page, charged as text and as an image."""


OPENAI = Rates(page=1050)
RATES: Mapping[str, Rates] = {
    "gemini": Rates(second=32, page=258, page_most=600),
    "gemini-crops": Rates(second=32, page=258, page_most=600),
    "gemini-3": Rates(second=32, page=540, page_most=1200),
    **{name: OPENAI for name in RULES if name.startswith("openai")},
}
"""Image rule of a family → its other rates. A rule that is not listed uses the defaults of `Rates`."""

SOUND_MOST = 32
"""Most tokens per second of audio."""
SOUND_LEAST = 400
"""Tokens added to the ceiling of audio, because some models pad it to 30 seconds."""
FILM = 300
"""Tokens per second of video, including its sound."""
SPOKEN = 8
"""Highest cost of a spoken answer, as a multiple of its transcript's tokens."""
LONGEST_ANSWER = 16_384
"""Most tokens of a spoken answer if only its id is known."""
SEEN_PAGES, UNSEEN_PAGES = 5, 80
"""Pages assumed for a file that is only named: for the estimate, and for the ceiling."""

# Bytes per second: usual, and lowest in use.
SOUND_BYTES: Mapping[str, tuple[int, int]] = {
    "wav": (32_000, 8_000),
    "x-wav": (32_000, 8_000),
    "flac": (50_000, 8_000),
    "pcm16": (48_000, 16_000),
}
OTHER_SOUND = (12_000, 1_500)
FILM_BYTES = (125_000, 2_000)
# Bytes per page if a PDF does not state its pages: usual, and lowest.
PAGE_BYTES = (60_000, 3_000)
FILE_BYTES = 8
"""Bytes per token of any other file. The ceiling is a token per byte, because a server may unpack it."""


def part_cost(part: Mapping[str, Any], rule: str, price: Price) -> tuple[int, int]:
    """Returns the tokens of a part that is not text, and its ceiling."""
    kind = part.get("type")
    if not isinstance(kind, str):
        return price(_json(part))
    if kind in IMAGES:
        return image_cost(part, RULES.get(rule, RULES["flat"]))
    reader = _READERS.get(kind)
    if reader is None:
        return price(_json(part))
    return reader(part, RATES.get(rule, Rates()), price)


def _json(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, default=str, skipkeys=True)


# Audio and video -------------------------------------------------------------------------------------


def _audio(part: Mapping[str, Any], rates: Rates, _: Price) -> tuple[int, int]:
    held = part.get("input_audio", part.get("audio"))
    given = held if isinstance(held, Mapping) else {}
    kind = given.get("format")
    usual = SOUND_BYTES.get(kind, OTHER_SOUND) if isinstance(kind, str) else OTHER_SOUND
    data = _data_of(_text(given.get("data")))
    if data is None:
        return SEEN_PAGES * rates.page, UNSEEN_PAGES * rates.page
    seconds, most = _duration(data, usual)
    return math.ceil(seconds * rates.second), math.ceil(most * SOUND_MOST) + SOUND_LEAST


def _video(part: Mapping[str, Any], rates: Rates, _: Price) -> tuple[int, int]:
    held = part.get("video_url", part.get("video"))
    url = held.get("url") if isinstance(held, Mapping) else held
    data = _data_of(_text(url))
    if data is None:
        return SEEN_PAGES * rates.page, UNSEEN_PAGES * rates.page
    seconds, most = _duration(data, FILM_BYTES)
    return math.ceil(seconds * FILM), math.ceil(most * FILM) + FILM


def _duration(data: str, usual: tuple[int, int]) -> tuple[float, float]:
    """Returns the seconds that base64 data lasts, and an upper bound."""
    known = _seconds(data)
    if known >= 0:
        return known, known + 1
    size = _size(data)
    return size / usual[0], size / usual[1]


def _measure_seconds(data: str) -> float:
    seconds = seconds_of(_bytes(data))
    return -1.0 if seconds is None else seconds


_seconds = remember_results(_measure_seconds, 1000)
"""Returns the seconds that base64 data lasts; -1 if the length is unknown."""


# Files -----------------------------------------------------------------------------------------------


def _file(part: Mapping[str, Any], rates: Rates, price: Price) -> tuple[int, int]:
    held = part.get("file")
    given = held if isinstance(held, Mapping) else part
    url = _text(given.get("file_data"))
    data = _data_of(url)
    if data is None:
        return SEEN_PAGES * rates.page, UNSEEN_PAGES * rates.page
    mime = url.partition(";")[0].removeprefix("data:")
    name = _text(given.get("filename")).lower()
    if mime == "application/pdf" or name.endswith(".pdf"):
        pages, most = _pages(data)
        return pages * rates.page, most * rates.page_most
    if mime.startswith("text/") or mime == "application/json":
        return price(_bytes(data).decode("utf-8", "replace"))
    size = _size(data)
    return size // FILE_BYTES, size


def _count_pages(data: str) -> tuple[int, int]:
    """Returns the pages of a PDF, and an upper bound."""
    pages = pages_of(_bytes(data))
    if pages:
        return pages, pages
    size = _size(data)
    return 1 + size // PAGE_BYTES[0], 1 + size // PAGE_BYTES[1]


_pages = remember_results(_count_pages, 1000)

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_TOTAL = re.compile(rb"/Count\s+(\d{1,6})(?!\d)")
_PACKED = re.compile(rb"/ObjStm\b.{0,400}?stream\r?\n", re.DOTALL)
UNPACKED = 4_000_000
"""Most bytes that are unpacked from one stream. A list of pages is shorter."""


def pages_of(data: bytes) -> int:
    """Returns the number of pages of a PDF; 0 if it is unknown."""
    texts = [data]
    for found in _PACKED.finditer(data):
        try:
            texts.append(
                zlib.decompressobj().decompress(data[found.end() : found.end() + UNPACKED], UNPACKED)
            )
        except zlib.error:  # Another compression method: use the pages that are listed elsewhere.
            continue
    pages = sum(len(_PAGE.findall(text)) for text in texts)
    totals = [int(total) for text in texts for total in _TOTAL.findall(text)]
    return max(pages, *totals) if totals and pages else pages or max(totals, default=0)


# Thinking and other fields of a message --------------------------------------------------------------


def _thinking(part: Mapping[str, Any], _: Rates, price: Price) -> tuple[int, int]:
    return price(thinking_text(part))


def thinking_text(part: Any) -> str:
    """Returns the text of a thinking block, or the JSON of any other part."""
    thought = part.get("thinking", part.get("text")) if isinstance(part, Mapping) else part
    if isinstance(thought, str):
        return thought
    if isinstance(thought, list | tuple):
        return "".join(map(thinking_text, thought))
    return _json(part)


def beside_content(message: Mapping[str, Any], price: Price) -> tuple[int, int]:
    """Returns the cost of an assistant message's other fields (not content or calls).

    Thinking is often present twice, as text and as blocks, but is sent once.
    """
    thoughts = [thinking_text({"thinking": message[name]}) for name in _THOUGHTS if message.get(name)]
    tokens, ceiling = price(_text(message.get("refusal")))
    for thought in dict.fromkeys(filter(None, thoughts)):
        more, most = price(thought)
        tokens, ceiling = tokens + more, ceiling + most
    if message.get("audio"):
        more, most = _count_spoken_answer(message["audio"], price)
        tokens, ceiling = tokens + more, ceiling + most
    return tokens, ceiling


_THOUGHTS = ("reasoning_content", "reasoning", "thinking_blocks", "reasoning_details")
"""Fields of a message that hold its thinking, as a text or as blocks."""


def _count_spoken_answer(audio: Any, price: Price) -> tuple[int, int]:
    """Returns the cost of an earlier spoken answer, by its transcript if there is one."""
    transcript = audio.get("transcript") if isinstance(audio, Mapping) else None
    if not isinstance(transcript, str) or not transcript:
        return LONGEST_ANSWER // 16, LONGEST_ANSWER
    tokens, ceiling = price(transcript)
    return tokens * SPOKEN // 2, min(ceiling * SPOKEN, LONGEST_ANSWER)


_READERS: Mapping[str, Callable[[Mapping[str, Any], Rates, Price], tuple[int, int]]] = {
    "input_audio": _audio,
    "audio": _audio,
    "video_url": _video,
    "video": _video,
    "file": _file,
    "input_file": _file,
    "thinking": _thinking,
}
"""Type of a part → function that counts it. Any other part is counted as JSON."""


# Base64 ----------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _data_of(url: str) -> str | None:
    """Returns the base64 text of a `data:` URL or of bare base64; None for any other URL."""
    head, mark, data = url.partition(";base64,")
    if mark and head.startswith("data:"):
        return data
    return None if not url or "://" in url[:16] else url


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        return b""


def _size(data: str) -> int:
    """Returns the size of base64 data in bytes; for data that a recording omits, the recorded size."""
    known = read_omission(data).get("bytes")
    return known if isinstance(known, int) and known >= 0 else len(data) * 3 // 4
