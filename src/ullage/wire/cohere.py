"""The parts that both versions of Cohere's chat API share: documents, response formats, options and usage.

The documents of a body become a system message of their own after the system prompt. Each is a part that
keeps the document as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.messages import part_text
from ullage.wire import conversion
from ullage.wire.calls import schema_format
from ullage.wire.fields import BodyField, Object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.messages import Message
    from ullage.target import ApiName
    from ullage.wire.api import Sum

FIELD = "field"
"""Member of a message that came in a member of the body beside the conversation: the name of that member."""

DOCUMENTS = "documents"

USAGE: Mapping[str, Sum] = {  # what is billed leaves the template out; what the window holds does not
    "prompt": (("tokens.input_tokens", "billed_units.input_tokens"),),
    "completion": (("tokens.output_tokens", "billed_units.output_tokens"),),
    "cached_read": (("cached_tokens",),),
    "reasoning": (("tokens.reasoning_tokens",),),
}
OPTIONS = {
    "output limit": ("max_tokens",),
    "temperature": ("temperature",),
    "nucleus": ("p",),
    "stop": ("stop_sequences",),
    "stream": ("stream",),
}


def read_documents(place: BodyField) -> Iterator[Object]:
    """Yields the message of a body's documents, if it has any."""
    parts = [read_document(each) for each in place.each()]
    if parts:
        yield {"role": "system", "content": parts, FIELD: DOCUMENTS}


def read_document(place: BodyField) -> Object:
    """Returns the part of one document: its values as text, and the document itself."""
    return {"type": "document", "text": document_text(place), "document": place.value}


def document_text(place: BodyField) -> str:
    """Returns the values of a document, one a line."""
    if isinstance(place.value, str):
        return place.value
    data: Any = place.at("data").value if place.has("data") else place.object()
    if not isinstance(data, dict):
        return data if isinstance(data, str) else place.at("data").json()
    texts = [
        value if isinstance(value, str) else BodyField(value, place.api, place.path).json()
        for value in data.values()
    ]
    return "\n".join(texts)


def write_document(part: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    """Returns the document of a part as it came, or `new` if there is none or its text was changed."""
    given = part.get("document")
    if given is None or document_text(BodyField(given, "cohere.chat.v2")) != part_text(part):
        return new
    return given


def is_field(message: Message, name: str, own: bool) -> bool:
    """Returns True if a message came in this member of the body."""
    return own and message.get(FIELD) == name


def read_format(place: BodyField) -> Object | None:
    """Returns a response format in the common format, or None."""
    if place.value is None:
        return None
    kind = place.get("type").text()
    schema = place.get("json_schema", "schema")
    if schema.value is None:
        return {"type": kind}
    schema.object()
    return schema_format(schema.value)


def write_format(response_format: Mapping[str, Any] | None, member: str, api: ApiName) -> Object:
    """Returns the members of a body with a response format; `member` is the name of its schema."""
    kind = None if response_format is None else response_format.get("type")
    if response_format is None or kind is None:
        return {}
    if kind == "json_schema":
        schema = response_format["json_schema"].get("schema")
        return {"response_format": {"type": "json_object", member: schema}}
    if kind not in ("json_object", "text"):
        raise conversion.no_counterpart(f"response_format {kind}", api)
    return {"response_format": {"type": kind}}
