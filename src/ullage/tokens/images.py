"""Counts images by their size and the requested detail.

The size is read from the first bytes of the data (PNG, JPEG, GIF, WebP); nothing is fetched. An image of
unknown size is estimated as a square of 1,024 pixels. Its ceiling is the rule's maximum.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PixelSize = tuple[int, int]
"""Width and height, in pixels."""


class ImageRule(NamedTuple):
    """The image tokens of one family of models."""

    estimate: Callable[[PixelSize], float]
    """Returns the tokens of an image of this size."""
    most: int
    """Tokens of the largest image."""
    low: int | None = None
    """Tokens of an image of low detail, at any size; None if the family has no low detail."""
    slack: int = 4
    """Tokens by which recorded counts are above the estimate, at most."""


def _tiles(base: int, tile: int) -> ImageRule:
    """Counts for OpenAI's older models: fits into 2,048 pixels, shorter side into 768, then tiles of 512."""

    def estimate(size: PixelSize) -> float:
        shrink = min(1.0, 2048 / max(size))
        shrink = min(shrink, 768 / min(size))
        across, down = (math.ceil(round(side * min(1.0, shrink), 3) / 512) for side in size)
        return base + tile * across * down

    return ImageRule(estimate, base + 8 * tile, base, 0)


def _patches(factor: float, most: int) -> ImageRule:
    """Counts for OpenAI's newer models: patches of 32 pixels, at most `most` of them, times a factor."""

    def estimate(size: PixelSize) -> float:
        patches = math.ceil(size[0] / 32) * math.ceil(size[1] / 32)
        return min(patches, most) * factor + 1

    return ImageRule(estimate, math.ceil(most * factor) + 1)


def _area(size: PixelSize) -> float:
    """Counts for Anthropic: area divided by 750, after the longer side is scaled down to 1,568 pixels."""
    shrink = min(1.0, 1568 / max(size))
    return min(1600.0, size[0] * size[1] * shrink * shrink / 750) + 4


def _crops(size: PixelSize) -> float:
    """Counts for Gemini 2.0: 258 tokens up to 384 pixels, else 258 for each crop and for the whole image."""
    if max(size) <= 384:
        return 258
    unit = min(768, max(256, math.floor(min(size) / 1.5)))
    return 258 * (math.ceil(size[0] / unit) * math.ceil(size[1] / unit) + 1)


RULES: Mapping[str, ImageRule] = {
    "flat": ImageRule(lambda _: 1000, 1000, slack=0),
    "openai": _tiles(85, 170),
    "openai-4o-mini": _tiles(2833, 5667),
    "openai-o1": _tiles(75, 150),
    "openai-5": _tiles(70, 140),
    "openai-4.1-mini": _patches(1.62, 1536),
    "openai-4.1-nano": _patches(2.46, 1536),
    "openai-o4-mini": _patches(1.72, 1536),
    "openai-5-mini": _patches(1.2, 1536),
    "openai-5-nano": _patches(1.5, 1536),
    "openai-5.4": _patches(1.2, 2500),
    "anthropic": ImageRule(_area, 1604, slack=30),
    "gemini": ImageRule(lambda _: 258, 2580, slack=10),
    "gemini-crops": ImageRule(_crops, 3354, slack=10),
    "gemini-3": ImageRule(lambda _: 1100, 1120, slack=20),
}
"""The image rules that a family can name."""

UNKNOWN: PixelSize = (1024, 1024)
IMAGES = frozenset({"image_url", "image", "input_image"})


def image_cost(part: Mapping[str, Any], rule: ImageRule) -> tuple[int, int]:
    """Returns the tokens of an image, and its ceiling."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else image
    detail = image.get("detail") if isinstance(image, Mapping) else part.get("detail")
    if detail == "low" and rule.low is not None:
        return rule.low, rule.low
    size = image_size(url) if isinstance(url, str) else None
    tokens = math.ceil(rule.estimate(size or UNKNOWN))
    return tokens, max(tokens, rule.most) if size is None else tokens + rule.slack


def image_size(url: str) -> PixelSize | None:
    """Returns the size of an image in a `data:` URL, or None if its first bytes do not contain the size."""
    head, mark, data = url.partition(";base64,")
    if not mark or not head.startswith("data:"):
        return None
    if data.startswith("<ELIDED "):  # A recording replaces data by a mark that keeps its size.
        return _read_omitted_size(data)
    try:
        start = base64.b64decode(
            data[:87_380], validate=False
        )  # 64 KB: a JPEG's size comes after its thumbnail
    except (binascii.Error, ValueError):
        return None
    for read in (_png, _gif, _webp, _jpeg):
        size = read(start)
        if size is not None:
            return size if min(size) > 0 else None
    return None


def read_omission(data: str) -> Mapping[str, Any]:
    """Returns the facts that a recording keeps about omitted data; empty if the data is present."""
    if not data.startswith("<ELIDED "):
        return {}
    try:
        known = json.loads(data.removeprefix("<ELIDED ").rpartition(">")[0])
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _read_omitted_size(data: str) -> PixelSize | None:
    known = read_omission(data)
    width, height = known.get("width"), known.get("height")
    if not (isinstance(width, int) and isinstance(height, int) and min(width, height) > 0):
        return None
    return width, height


def _png(data: bytes) -> PixelSize | None:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _gif(data: bytes) -> PixelSize | None:
    if data[:6] not in (b"GIF87a", b"GIF89a") or len(data) < 10:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _webp(data: bytes) -> PixelSize | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})


def _jpeg(data: bytes) -> PixelSize | None:
    """Returns the size in the first frame header; earlier segments are skipped."""
    at = 2 if data[:2] == b"\xff\xd8" else len(data)
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
