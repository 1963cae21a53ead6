"""smolagents: a model that fits the messages of an agent before it asks the model that it wraps.

An agent makes its messages out of its memory on each call, so the memory stays complete. It writes calls
and observations as texts, which is why the policy has `cut_user`.
"""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.fitting import FitPolicy
from ullage.integrations.fitter import HistoryFitter, restore

try:
    from smolagents import ChatMessage, MessageRole, Model
    from smolagents.models import get_clean_message_list, get_tool_json_schema, tool_role_conversions
except ImportError as error:
    raise MissingHost("smolagents", "smolagents>=1.26", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from ullage.integrations.fitter import FitterOptions
    from ullage.messages import Message


class FitModel(Model):
    """A model whose requests have at most `limit` input tokens, less `reserve` if both are given."""

    def __init__(self, wrapped: Model, /, **options: Unpack[FitterOptions]) -> None:
        super().__init__(model_id=wrapped.model_id, flatten_messages_as_text=wrapped.flatten_messages_as_text)
        self._wrapped: Any = wrapped
        options.setdefault("policy", FitPolicy(cut_user=True))
        self._fitter = HistoryFitter(**options)

    def __getattr__(self, name: str) -> Any:
        if name == "_wrapped":  # an object that is being copied has no members yet
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def generate(self, messages: list[Any], *more: Any, **options: Any) -> Any:
        """Asks the model with messages that fit."""
        return self._wrapped.generate(self._fit(messages, options), *more, **options)

    def generate_stream(self, messages: list[Any], *more: Any, **options: Any) -> Any:
        """Asks the model for a stream, with messages that fit."""
        return self._wrapped.generate_stream(self._fit(messages, options), *more, **options)

    def _fit(self, messages: list[Any], options: dict[str, Any]) -> list[Any]:
        groups: list[list[Any]] = [list(group) for _, group in groupby(messages, key=_role)]
        given = [_read(group) for group in groups]
        tools = [get_tool_json_schema(tool) for tool in options.get("tools_to_call_from") or ()]
        if answer := options.get("response_format"):  # the model reads its schema in some form
            tools.append({"type": "function", "function": {"name": "answer", "parameters": answer}})
        fitted = self._fitter.fit(given, tools, model=self.model_id)
        restored: list[list[Any]] = restore(fitted, given, groups, _remake)
        return list(chain.from_iterable(restored))


def _role(message: Any) -> str:
    """Returns the role that is sent; neighbours of one role are sent as one message."""
    role = MessageRole(message["role"] if isinstance(message, dict) else message.role)
    return str(tool_role_conversions.get(role, role).value)


def _read(group: Sequence[Any]) -> Message:
    """Returns neighbours of one role as the one message that is sent."""
    (sent,) = get_clean_message_list(
        list(group), role_conversions=tool_role_conversions, convert_images_to_image_urls=True
    )
    return {"role": _role(group[0]), "content": sent["content"]}


def _remake(_: list[Any] | None, message: Message) -> list[Any]:
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [ChatMessage(role=MessageRole(message["role"]), content=parts)]
