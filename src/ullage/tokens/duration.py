"""Reads the length of audio and video from the file's header: WAV, FLAC, Ogg, MP4 and MP3."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 7 * 24 * 3600.0
"""Longest length in seconds that is accepted from a header."""


def seconds_of(data: bytes) -> float | None:
    """Returns the length in seconds, or None if the header does not contain it."""
    for mark, at, read in _READERS:
        if data[at : at + len(mark)] == mark:
            seconds = read(data)
            return seconds if seconds is not None and 0 <= seconds <= LONGEST else None
    return None


def _big(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _wav(data: bytes) -> float | None:
    at = data.find(b"fmt ", 12, 4096)
    rate = _little(data, at + 16) if at >= 0 else 0
    # The length in the header is wrong in streamed files, so use the size of the data.
    return len(data) / rate if rate else None


def _flac(data: bytes) -> float | None:
    rate, samples = _big(data, 18, 3) >> 4, _big(data, 21, 5) & 0xFFFFFFFFF
    return samples / rate if rate and samples else None


def _ogg(data: bytes) -> float | None:
    """Returns the length by the last page, which states the sample at its end."""
    last = _little(data, data.rfind(b"OggS") + 6, 8)
    at = data.find(b"\x01vorbis", 0, 4096)
    rate = _little(data, at + 12) if at >= 0 else 48_000 if b"OpusHead" in data[:4096] else 0
    return last / rate if rate and last < 2**63 else None


def _mp4(data: bytes) -> float | None:
    at = data.find(b"mvhd")
    if at < 0:
        return None
    is_long = data[at + 4 : at + 5] == b"\x01"
    scale = _big(data, at + (24 if is_long else 16))
    length = _big(data, at + 28, 8) if is_long else _big(data, at + 20)
    return length / scale if scale and length else None


_RATES = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_LOW_RATES = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_SAMPLES = (44_100, 48_000, 32_000)


def _mp3(data: bytes) -> float | None:
    """Returns the length by the frame count (variable bit rate), else by the first frame's bit rate."""
    at = 0
    if data[:3] == b"ID3":
        at = 10 + sum((data[6 + n] & 0x7F) << 7 * (3 - n) for n in range(4)) if len(data) > 9 else 0
    head = data[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:  # layer III
        return None
    version, rate, sampling = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
    if rate == 15 or sampling == 3 or version == 1:
        return None
    frequency = _SAMPLES[sampling] >> (0 if version == 3 else 1 if version == 2 else 2)
    tag = data.find(b"Xing", at, at + 256)
    if tag >= 0 and data[tag + 7 : tag + 8] and data[tag + 7] & 1:
        return _big(data, tag + 8) * (1152 if version == 3 else 576) / frequency
    bits = (_RATES if version == 3 else _LOW_RATES)[rate] * 1000
    return (len(data) - at) * 8 / bits if bits else None


_READERS: tuple[tuple[bytes, int, Callable[[bytes], float | None]], ...] = (
    (b"RIFF", 0, _wav),
    (b"fLaC", 0, _flac),
    (b"OggS", 0, _ogg),
    (b"ftyp", 4, _mp4),
    (b"ID3", 0, _mp3),
    (b"\xff", 0, _mp3),
)
"""First bytes of a format, their position, and the function that reads the format."""
