"""Checks messages and tools from callers, and converts them to the one format that the core reads.

A message may be a dict, any other Mapping, or an object with `model_dump` such as the SDKs' own. The same
holds for the values inside a message. A dict that already is a valid message is used as it is, without a
copy. An invalid message raises an error with the reason. For a message in another API's format, the error
names the function that accepts it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError, InvalidConversation
from ullage.messages import RESULT_ROLES, ROLES, SYSTEM_ROLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.messages import Message, Tool

DEEPEST = 64
"""Greatest depth of nested lists and objects. No API needs more, and every walk here ends."""
SHOWN = 40
"""Most characters of a value that an error shows."""

LONGEST = 4_000
"""Most digits of a whole number. Python refuses to write numbers of more than 4,300 digits as text."""

_LEAVES = frozenset({str, float, bool, NoneType})
_SPEAKERS = SYSTEM_ROLES | {"user", "assistant"}


# Objects of other types ------------------------------------------------------------------------------


class NotPlain(ValueError):  # noqa: N818 - callers make it an error of their own, with the place
    """A value that no JSON can hold: its message is the reason."""


def plain(value: Any, levels: int = DEEPEST) -> Any:
    """Returns a value as dicts, lists and leaves: dumps SDK objects, converts other Mappings to dicts.

    A value that is plain already is returned unchanged. Raises NotPlain if the value is nested too deeply, if
    the name of a member is not a string, or if a number is too long.
    """
    kind = value.__class__
    if kind in _LEAVES:
        return value
    if kind is int:
        if value.bit_length() > LONGEST * _BITS:
            raise NotPlain(f"a number has more than {LONGEST:,} digits; write it as a string")
        return value
    if levels <= 0:
        raise NotPlain(f"nested more than {DEEPEST} levels deep")
    if kind is dict:
        for name in value:
            if not isinstance(name, str):
                raise NotPlain(f"the name of a member must be a string, not {kind_of(name)}")
        made = {key: plain(each, levels - 1) for key, each in value.items() if each.__class__ not in _LEAVES}
        is_same = all(each is value[key] for key, each in made.items())
        return value if is_same else {**value, **made}
    if isinstance(value, list | tuple):
        members = [plain(each, levels - 1) for each in value]
        is_same = all(map(_is_same_object, members, value))
        return value if is_same else members
    dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
    if callable(dump):
        return plain(_dump_fields(dump), levels - 1)
    return plain(dict(value), levels - 1) if isinstance(value, Mapping) else value


_BITS = 3.322
"""Bits of a decimal digit."""


def _is_same_object(one: object, other: object) -> bool:
    return one is other


def _dump_fields(dump: Callable[[], Any]) -> Any:
    """Returns an SDK object's fields; those that are None were never set and are dropped, except content."""
    value = dump()
    if not isinstance(value, Mapping):
        return value
    return {key: each for key, each in value.items() if each is not None or key == "content"}


def copy_value(value: Any) -> Any:
    """Returns a copy of a plain value, so that later changes by its owner have no effect."""
    if value.__class__ is dict:
        return {
            # most values are leaves: saves a call for each
            key: each if each.__class__ in _LEAVES else copy_value(each)
            for key, each in value.items()
        }
    return [copy_value(each) for each in value] if isinstance(value, list | tuple) else value


def kind_of(value: object) -> str:
    """Returns the type of a value with its article, for an error: `a dict`, `an int`, `None`."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def shown(value: object) -> str:
    """Returns a value for an error: short texts and numbers in full, long ones cut, others by their type."""
    if not isinstance(value, str | int | float):
        return kind_of(value)
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def plural(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 turn`, `2 turns`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


# Options ---------------------------------------------------------------------------------------------


def whole_number(value: Any, what: str, least: int | None = 0) -> int:
    """Returns a whole number of at least `least`; else raises ConfigurationError with the option's name."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise ConfigurationError(f"{what} must be a whole number, not {shown(value)}")
    if least is not None and number < least:
        raise ConfigurationError(f"{what} is {number}; it must be at least {least}")
    return number


def check_share(value: Any, what: str, least: float = 0.0, most: float = 1.0) -> float:
    """Returns a number from `least` to `most`; else raises ConfigurationError with the option's name."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigurationError(f"{what} must be a number from {least:g} to {most:g}, not {shown(value)}")
    return value


def check_text(value: Any, what: str) -> str:
    """Returns a string; raises ConfigurationError with the option's name for any other type."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be a string, not {kind_of(value)}")
    return value


def check_function(value: Any, what: str) -> Any:
    """Returns a function; raises ConfigurationError with the option's name for anything else."""
    if not callable(value):
        raise ConfigurationError(f"{what} must be a function, not {kind_of(value)}")
    return value


def check_member(value: Any, what: str, described: str, *methods: str) -> Any:
    """Returns an object with these methods; raises ConfigurationError with the option's name for others.

    A class that was passed in place of an object has the methods too, and is refused as well.
    """
    if isinstance(value, type) or not all(callable(getattr(value, name, None)) for name in methods):
        given = f"the class {value.__name__}" if isinstance(value, type) else kind_of(value)
        raise ConfigurationError(f"{what} must be {described}, not {given}")
    return value


# Messages --------------------------------------------------------------------------------------------


def read_list(messages: object, what: str = "messages") -> Sequence[Any]:
    """Returns the messages as a list or tuple; a generator is read to its end."""
    if isinstance(messages, list | tuple):
        return messages
    is_one = isinstance(messages, str | bytes | bytearray | Mapping)
    # Pydantic models iterate over their fields.
    if isinstance(messages, Iterable) and not is_one and not hasattr(messages, "model_dump"):
        return list(messages)
    raise InvalidConversation(f"must be a list, not {kind_of(messages)}{_advice(messages, what)}", field=what)


def _advice(given: object, what: str) -> str:
    """Returns what to do with a value that was given in place of a list."""
    if hasattr(given, "__await__"):
        return "; await it first"
    if hasattr(given, "__aiter__"):
        return "; collect it first: [each async for each in …]"
    if what != "messages":
        return f"; put it into a list: {what}=[…]"
    if isinstance(given, str):
        return '; make a message of the text: [{"role": "user", "content": text}]'
    members = given if isinstance(given, Mapping) else dir(given)
    names = [name for name in _NOT_LISTED if name in members]
    return _NOT_LISTED[names[0]] if names else ""


_NOT_LISTED = {
    "choices": "; put its message, choices[0].message, into the list of your messages",
    "messages": "; pass its messages, or give a whole body to ullage.fit_request or ullage.count_request",
    "input": '; give a whole body to ullage.fit_request or ullage.count_request, api="openai.responses"',
    "contents": '; give a whole body to ullage.fit_request or ullage.count_request, api="gemini"',
    "role": "; put the message into a list",
}
"""Member of a value that was given in place of a list of messages → what to do."""


def read_messages(messages: object) -> list[Message]:
    """Returns all messages, each checked on its own."""
    return [read_message(given, index) for index, given in enumerate(read_list(messages))]


def read_message(given: Any, index: int) -> Message:
    """Returns the message as a dict; raises InvalidConversation if it is invalid."""
    if given.__class__ is dict and _is_common(given):
        return given
    try:
        message = plain(given)
    except NotPlain as error:
        raise InvalidConversation(str(error), index=index) from None
    if not isinstance(message, dict):
        raise InvalidConversation(
            f"a message must be a dict, not {kind_of(given)}; {_as_dict(given)}", index=index
        )
    _check(message, index)
    return message


def _as_dict(given: object) -> str:
    """Returns what to do with a value that was given in place of a message."""
    if hasattr(given, "__dataclass_fields__") and not isinstance(given, type):
        return "convert it with dataclasses.asdict"
    if hasattr(given, "_asdict"):
        return "convert it with its method _asdict"
    return 'write {"role": "user", "content": "…"}'


def _is_common(message: dict[str, Any]) -> bool:
    """Returns True if a message has one of the three most common formats, which are quick to check."""
    role, content, length = message.get("role"), message.get("content"), len(message)
    if role.__class__ is not str:
        return False
    if content.__class__ is str:
        if length == 2:
            return role in _SPEAKERS
        if role == "tool":
            return length == 3 and message.get("tool_call_id").__class__ is str
    if role != "assistant" or length != 3 or "content" not in message:
        return False
    return (content is None or content.__class__ is str) and _are_common(message.get("tool_calls"))


def _are_common(calls: Any) -> bool:
    if calls.__class__ is not list or not calls:
        return False
    for call in calls:
        function = call.get("function") if call.__class__ is dict and len(call) == 3 else None
        if (
            function.__class__ is not dict
            or len(function) != 2  # more members may hold anything
            or call.get("id").__class__ is not str
            or call.get("type").__class__ is not str
            or function.get("name").__class__ is not str
            or function.get("arguments").__class__ is not str
        ):
            return False
    return True


def _check(message: dict[str, Any], index: int) -> None:
    """Raises InvalidConversation with the field's name if the message is invalid."""
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise _role_error(message, role, index)
    for name, kind in _FIELDS.items():
        value = message.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidConversation(
                f"{name} must be {_EXPECTED[kind]}, not {kind_of(value)}", index=index, field=name
            )
    called = _check_calls(message, role, index)
    content = message.get("content")
    if content is None:
        answers = role == "assistant" and (called or message.get("refusal") or message.get("audio"))
        if not answers and "parts" in message:
            raise _other_api_error("gemini", index, "parts")
        if not answers:
            raise InvalidConversation(
                "content is missing; use an empty string if there is none", index=index, field="content"
            )
    elif not isinstance(content, str):
        _check_parts(content, index)
    wanted = RESULT_ROLES.get(role)
    if wanted is not None and not isinstance(message.get(wanted), str):
        raise InvalidConversation(
            f"a message with the role {role} needs {wanted}, the call that it answers",
            index=index,
            field=wanted,
        )


_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "name": str,
    "refusal": str,
    "reasoning_content": str,
    "audio": dict,
    "function_call": dict,
    "thinking_blocks": (list, tuple),
    "tool_calls": (list, tuple),
}
"""Field of a message → its type. A field may be missing or None."""
_EXPECTED = {str: "a string", dict: "an object", (list, tuple): "a list"}


def _check_parts(content: object, index: int) -> None:
    if not isinstance(content, list | tuple):
        raise InvalidConversation(
            f"content must be a string or a list of parts, not {kind_of(content)}"
            + _CONTENTS.get(type(content), ""),
            index=index,
            field="content",
        )
    for position, part in enumerate(content):
        if isinstance(part, str):
            continue
        place = f"content[{position}]"
        if not isinstance(part, dict):
            raise InvalidConversation(
                f"a content part must be a dict, not {kind_of(part)}", index=index, field=place
            )
        api = api_of_part(part)
        if api is not None:
            raise _other_api_error(api, index, place)
        kind = part.get("type")
        if not isinstance(kind, str):
            raise InvalidConversation(
                f"the type of a content part must be a string, not {kind_of(kind)}",
                index=index,
                field=f"{place}.type",
            )
        if kind in _TEXTS and not isinstance(part.get(kind), str):
            raise InvalidConversation(
                f"{kind} must be a string, not {kind_of(part.get(kind))}",
                index=index,
                field=f"{place}.{kind}",
            )


_CONTENTS: Mapping[type, str] = {
    dict: "; put a part into a list, or write other values as a text with json.dumps",
    bytes: "; decode it first",
}
"""Type of a content that is refused → what to do."""
_TEXTS = ("text", "refusal")
"""Types of parts whose text is in the member of the same name."""


def _check_calls(message: Mapping[str, Any], role: str, index: int) -> bool:
    """Returns True if the message makes calls; raises InvalidConversation if a call is invalid."""
    calls, older = message.get("tool_calls") or (), message.get("function_call")
    if (calls or older) and role != "assistant":
        field = "tool_calls" if calls else "function_call"
        raise InvalidConversation(
            f"a message with the role {role} cannot call tools; only the assistant can",
            index=index,
            field=field,
        )
    for position, call in enumerate(calls):
        place = f"tool_calls[{position}]"
        if not isinstance(call, dict):
            raise InvalidConversation(f"a call must be a dict, not {kind_of(call)}", index=index, field=place)
        member = "custom" if "function" not in call and "custom" in call else "function"
        _check_called_function(call.get(member), index, place)
        if not isinstance(call.get("id"), str):
            raise InvalidConversation("a call needs an id", index=index, field=f"{place}.id")
    if older is not None:
        _check_called_function(older, index, "function_call")
    return bool(calls) or older is not None


def _check_called_function(function: object, index: int, place: str) -> None:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidConversation("a call needs a function with a name", index=index, field=place)


# Formats of other APIs -------------------------------------------------------------------------------

OTHERS: Mapping[str, str] = {
    "openai.chat": "a message of OpenAI's chat API",
    "anthropic.messages": "a content block of Anthropic's Messages API",
    "openai.responses": "an item of OpenAI's Responses API",
    "gemini": "a message of the Gemini API",
    "bedrock.converse": "a content block of Bedrock's Converse API",
}
"""API → description of its messages, for errors in functions that only accept the chat format."""

_RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file", "summary_text"})
_CONVERSE_PARTS = frozenset(
    {"toolUse", "toolResult", "image", "document", "reasoningContent", "cachePoint", "text"}
)
_GEMINI_PARTS = frozenset(
    {"functionCall", "functionResponse", "inlineData", "function_call", "function_response", "inline_data"}
)
_MEANT = {"human": "user", "ai": "assistant", "bot": "assistant", "model": "assistant"} | {
    written: role for role in ROLES for written in (role.title(), role.upper())
}
"""Role that other programs use → the one of this format."""
_LANGCHAIN = frozenset({"human", "ai", "system", "tool", "function", "chat"})


def api_of_part(part: Mapping[str, Any]) -> str | None:
    """Returns the API other than OpenAI's chat API that this content part belongs to, or None."""
    kind = part.get("type")
    if kind in ("tool_use", "tool_result"):
        return "anthropic.messages"
    if kind in ("image", "document") and "source" in part and "text" not in part:
        return "anthropic.messages"
    if isinstance(kind, str):
        return "openai.responses" if kind in _RESPONSES_PARTS else None
    if "type" in part:
        return None
    if not _GEMINI_PARTS.isdisjoint(part):
        return "gemini"
    return None if _CONVERSE_PARTS.isdisjoint(part) else "bedrock.converse"


def _role_error(message: Mapping[str, Any], role: object, index: int) -> InvalidConversation:
    """Returns the error for a message without a known role. Its other fields decide the advice."""
    kind = message.get("type")
    if "parts" in message:
        return _other_api_error("gemini", index, "parts")
    field = "role"
    if role is not None:
        known = ", ".join(sorted(ROLES))
        meant = f"; write {_MEANT[role]!r}" if isinstance(role, str) and role in _MEANT else ""
        reason = f"role is {shown(role)}; it must be one of {known}{meant}"
    elif "choices" in message:
        reason, field = "this is a whole answer; pass its message, choices[0].message", "choices"
    elif "message" in message:
        reason, field = "this is a choice of an answer; pass its message", "message"
    elif not isinstance(kind, str):
        reason = "the role is missing"
    elif kind in _LANGCHAIN and "content" in message:
        reason = (
            "this is a LangChain message; convert it first with "
            "langchain_core.messages.convert_to_openai_messages"
        )
    else:
        return _other_api_error("openai.responses", index, "type")
    return InvalidConversation(reason, index=index, field=field)


def _other_api_error(api: str, index: int, field: str) -> InvalidConversation:
    """Returns the error that names the other API and the functions that accept its format."""
    return InvalidConversation(
        f"this is {OTHERS[api]}; this function only accepts messages of OpenAI's chat API. "
        f'Count the whole request with ullage.count_request(body, api="{api}"), fit it with '
        f'ullage.fit_request(body, api="{api}"), or read it with '
        f'ullage.wire.read(body, "{api}") and pass the messages of the result',
        index=index,
        field=field,
    )


# Tools -----------------------------------------------------------------------------------------------


def read_tools(tools: object) -> tuple[Tool, ...] | None:
    """Returns the tool definitions, checked and copied; None if `tools` is None."""
    if tools is None:
        return None
    return tuple(
        [copy_value(_read_tool(tool, index)) for index, tool in enumerate(read_list(tools, "tools"))]
    )


_AS_TOOL = 'describe it: {"type": "function", "function": {"name": …, "description": …, "parameters": …}}'
_OTHER_TOOLS = {
    "functionDeclarations": "gemini",
    "function_declarations": "gemini",
    "toolSpec": "bedrock.converse",
}
"""Member of a tool → the API that alone has it."""


def _read_tool(given: object, index: int) -> Tool:
    place = f"tools[{index}]"
    try:
        tool = plain(given)
    except NotPlain as error:
        raise InvalidConversation(str(error), field=place) from None
    if not isinstance(tool, dict):
        raise InvalidConversation(f"a tool must be a dict, not {kind_of(given)}; {_AS_TOOL}", field=place)
    if "inputSchema" in tool:
        raise InvalidConversation(
            'this is an MCP tool; pass {"type": "function", "function": {"name": …, "description": …, '
            '"parameters": its inputSchema}}',
            field=place,
        )
    for name, api in _OTHER_TOOLS.items():
        if name in tool:
            raise InvalidConversation(
                f'this is a tool of {api}; give the whole body to ullage.fit_request, api="{api}"',
                field=place,
            )
    described = tool.get("function", tool)
    if not isinstance(described, dict):
        raise InvalidConversation(
            f"a tool's function must be a dict, not {kind_of(described)}", field=f"{place}.function"
        )
    if "function" in tool or tool.get("type") in (None, "function"):
        if not isinstance(described.get("name"), str):
            raise InvalidConversation(f"a tool needs a function with a name; {_AS_TOOL}", field=place)
    elif not isinstance(tool.get("type"), str):
        raise InvalidConversation(
            f"the type of a tool must be a string, not {kind_of(tool.get('type'))}", field=f"{place}.type"
        )
    return tool
