"""The content parts that all readers agree on.

    {"type": "text", "text": …}
    {"type": "image_url", "image_url": {"url": …, "detail": …}}      url: data:…;base64,… or http…
    {"type": "file", "file": {"file_data" | "file_url" | "file_id": …, "filename": …}}
    {"type": "document", "text": …, "title": …}                      a document that is text
    {"type": "input_audio", "input_audio": {"data": …, "format": …}}
    {"type": "video_url", "video_url": {"url": …}}
    {"type": "thinking", "thinking": …, "signature": …}
    {"type": "refusal", "refusal": …}

Further members of a part (`cache_control`, `citations`, …) stay where they were. A block that has
no counterpart here (a provider's own search results, opaque reasoning) is kept as it came, under
its own `type`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.wire.fields import Object, Place

NAMED = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""File formats, as Bedrock names them → media types."""


OURS = frozenset({"text", "image_url", "file", "video_url", "input_audio", "refusal", "document"})
"""Types of parts that another API may not use for blocks of its own, lest they be taken for ours."""


def own_block(place: Place) -> Object:
    """A provider's own block, as it came."""
    kind = place.get("type").text()
    if kind in OURS:
        raise place.at("type").wrong(f"unknown content type {kind!r}")
    return place.object()


def text_part(text: str, /, **more: Any) -> Object:
    """A part that is text."""
    return {**more, "type": "text", "text": text}


def image_part(url: str, /, **more: Any) -> Object:
    """A part that is an image: an address, or `data:` with its base64 inside."""
    return {**more, "type": "image_url", "image_url": {"url": url}}


def media_part(mime: str, url: str) -> Object:
    """The part for media of this type at this address."""
    head = mime.partition("/")[0]
    if head == "image":
        return image_part(url)
    if head == "audio":
        data = split_data_url(url)
        audio = {"data": data[1] if data else url, "format": mime.partition("/")[2]}
        return {"type": "input_audio", "input_audio": audio}
    if head == "video":
        return {"type": "video_url", "video_url": {"url": url}}
    where = "file_data" if url.startswith("data:") else "file_url"
    return {"type": "file", "file": {where: url}}


def data_url(mime: str, data: str) -> str:
    """Base64 text as an address."""
    return f"data:{mime};base64,{data}"


def split_data_url(url: str) -> tuple[str, str] | None:
    """(media type, base64 text) of a `data:` address; None for any other."""
    head, mark, data = url.partition(";base64,")
    if not mark or not head.startswith("data:"):
        return None
    return head.removeprefix("data:"), data


def base64_text(place: Place) -> str:
    """Base64 text of raw bytes, or of what is base64 already."""
    if isinstance(place.value, bytes | bytearray):
        return base64.b64encode(place.value).decode("ascii")
    return place.text()


def is_plain_text(part: Any) -> bool:
    """Whether a part is text and nothing else, so that a string says the same."""
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


def folded(parts: list[Object]) -> str | list[Object]:
    """Parts as content: a lone text that is not empty as a string, anything else as it is."""
    if len(parts) == 1 and is_plain_text(parts[0]) and parts[0]["text"]:
        text: str = parts[0]["text"]
        return text
    return parts


def listed(content: Any) -> list[Object]:
    """Content as a list of parts: none for None and for the empty string."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [text_part(content)]
    return [text_part(part) if isinstance(part, str) else dict(part) for part in content]
