"""Images, sounds, films and files of any host, as the parts of a message that are counted best."""

from __future__ import annotations

import base64
from typing import Any


def media_part(
    kind: str | None, *, data: str | bytes | None = None, url: str | None = None
) -> dict[str, Any]:
    """Returns a part for data, or for an address or id if there is no data.

    `kind` is the media type, such as `image/png`, or only its first word. Data is bytes, or text in base64.
    """
    kind = kind or "application/octet-stream"
    family, _, form = kind.partition("/")
    if isinstance(data, bytes):
        data = base64.b64encode(data).decode()
    if data is not None:
        url = f"data:{kind};base64,{data}"
    if family == "image":
        return {"type": "image_url", "image_url": {"url": url or ""}}
    if data is None:  # nobody knows its length
        return {"type": "file", "file": {"file_id": url or ""}}
    if family == "audio":
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    if family == "video":
        return {"type": "video_url", "video_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}


def opaque_part(part: object) -> dict[str, Any]:
    """Returns a part that no rule knows. It is counted as JSON, and is never cut."""
    return {"type": "opaque", "opaque": part}
