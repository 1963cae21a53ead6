"""Blocks of content as LangChain's integrations keep them, read as the parts of a message that are counted.

LangChain's own converter refuses what OpenAI's API does not take: videos, documents of Anthropic, addresses
of files, media of Gemini. Here every block has a reading, and none is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.integrations.media_parts import media_part, opaque_part

if TYPE_CHECKING:
    from collections.abc import Mapping

ContentBlock = dict[str, Any]

MEDIA: Mapping[object, str | None] = {
    "image": "image",
    "audio": "audio",
    "video": "video",
    "file": None,
    "media": None,
    "document": "application/pdf",
    "text-plain": "text/plain",
}
"""Type of a block that holds data or names it → its media type, if the block does not tell it."""
ADDRESSES = ("url", "file_uri", "file_id", "id")
COUNTED = {"image_url", "input_audio", "input_file", "input_image", "refusal", "thinking", "video_url"}
"""Types of blocks that are counted as they are."""
CONVERSE: Mapping[str, str] = {"image": "image", "document": "application", "video": "video"}
"""Member of a block of Bedrock's Converse API → the first word of its media type."""


def read_block(block: str | ContentBlock) -> ContentBlock:
    """Returns a block as a part of a message; it is only read."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type")
    if kind in {None, "text"} and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if kind == "image_url" and isinstance(block.get("image_url"), str):
        return media_part("image", url=block["image_url"])
    if kind in COUNTED or isinstance(block.get("file"), dict):
        return block
    if kind in MEDIA:
        return _read_media(block, MEDIA[kind])
    return opaque_part(block) if kind is not None else _read_converse(block)


def _read_media(block: ContentBlock, kind: str | None) -> ContentBlock:
    source = block.get("source")  # Anthropic's blocks have their data inside
    held = {**block, **source} if isinstance(source, dict) else block
    kind = held.get("mime_type") or held.get("media_type") or kind
    data = held.get("base64", held.get("data"))
    if isinstance(held.get("text"), str):
        return media_part("text/plain", data=held["text"].encode())
    if held["type"] == "text" and isinstance(data, str):
        return media_part("text/plain", data=data.encode())
    if isinstance(data, str | bytes):
        return media_part(kind, data=data)
    address = next((held[name] for name in ADDRESSES if isinstance(held.get(name), str)), None)
    return opaque_part(block) if address is None else media_part(kind, url=address)


def _read_converse(block: ContentBlock) -> ContentBlock:
    for name, family in CONVERSE.items():
        held = block.get(name)
        if not isinstance(held, dict) or not isinstance(source := held.get("source"), dict):
            continue
        if isinstance(source.get("bytes"), bytes):
            return media_part(f"{family}/{held.get('format')}", data=source["bytes"])
    return opaque_part(block)
