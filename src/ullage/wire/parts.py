"""The content parts that all readers use.

    {"type": "text", "text": …}
    {"type": "image_url", "image_url": {"url": …, "detail": …}}      url: data:…;base64,… or http…
    {"type": "file", "file": {"file_data" | "file_url" | "file_id": …, "filename": …}}
    {"type": "document", "text": …, "title": …}                      a document that is text
    {"type": "input_audio", "input_audio": {"data": …, "format": …}}
    {"type": "video_url", "video_url": {"url": …}}
    {"type": "thinking", "thinking": …, "signature": …}
    {"type": "refusal", "refusal": …}

Other members of a part (`cache_control`, `citations`, …) stay in place. A block without an equivalent here (a
provider's own search results, opaque reasoning) is kept unchanged under its own `type`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.wire.fields import BodyField, Object

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
"""File format as Bedrock names it → media type."""


OURS = frozenset({"text", "image_url", "file", "video_url", "input_audio", "refusal", "document"})
"""Types of parts that another API must not use for its own blocks, because they would be taken for ours."""


def own_block(place: BodyField) -> Object:
    """Returns a provider's own block unchanged."""
    kind = place.get("type").text()
    if kind in OURS:
        raise place.at("type").wrong(f"unknown content type {kind!r}")
    return place.object()


def text_part(text: str, /, **more: Any) -> Object:
    """Returns a text part."""
    return {**more, "type": "text", "text": text}


def image_part(url: str, /, **more: Any) -> Object:
    """Returns an image part; the URL is an address, or a `data:` URL with base64 data."""
    return {**more, "type": "image_url", "image_url": {"url": url}}


def media_part(mime: str, url: str) -> Object:
    """Returns the part for media of this type at this URL."""
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
    """Returns base64 text as a `data:` URL."""
    return f"data:{mime};base64,{data}"


def split_data_url(url: str) -> tuple[str, str] | None:
    """Returns (media type, base64 text) of a `data:` URL; None for any other URL."""
    head, mark, data = url.partition(";base64,")
    if not mark or not head.startswith("data:"):
        return None
    return head.removeprefix("data:"), data


def base64_text(place: BodyField) -> str:
    """Returns base64 text, made from raw bytes if necessary."""
    if isinstance(place.value, bytes | bytearray):
        return base64.b64encode(place.value).decode("ascii")
    return place.text()


def is_plain_text(part: Any) -> bool:
    """Returns True if a part is only text, so that a string can replace it."""
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


def fold_parts(parts: list[Object]) -> str | list[Object]:
    """Returns parts as content: a single nonempty text becomes a string, anything else stays a list."""
    if len(parts) == 1 and is_plain_text(parts[0]) and parts[0]["text"]:
        text: str = parts[0]["text"]
        return text
    return parts


def listed(content: Any) -> list[Object]:
    """Returns content as a list of parts; None and the empty string have no parts."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [text_part(content)]
    return [text_part(part) if isinstance(part, str) else dict(part) for part in content]
