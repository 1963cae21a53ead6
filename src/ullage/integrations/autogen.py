"""AutoGen: a model context that keeps every message, and gives the model those that fit.

An agent asks its context for the messages of each call. The context sees neither the tools nor the prompt of
the agent, so they are named when the context is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.fitter import (
    HistoryFitter,
    MessageOrigin,
    join_results,
    restore,
    restore_parts,
    run_aside,
)

try:
    from autogen_core.model_context import ChatCompletionContext
    from autogen_core.models import (
        AssistantMessage,
        FunctionExecutionResultMessage,
        SystemMessage,
        UserMessage,
    )
    from autogen_core.tools import FunctionTool
except ImportError as error:
    raise MissingHost("AutoGen", "autogen-core>=0.7.5", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogen_core.models import ChatCompletionClient, LLMMessage

    from ullage.fitting import FitPolicy, Fitted
    from ullage.messages import Message
    from ullage.target import ModelLike


class FitChatCompletionContext(ChatCompletionContext):
    """A context whose messages fit in `token_limit` tokens, less `reserve` if both are given.

    It stands in for AutoGen's `TokenLimitedChatCompletionContext`. Without a limit, the table of models has
    the window of the client's model. `tools` and `system_message` are those of the agent, which its requests
    have beside the messages. `report` is called with the result of each fit.
    """

    def __init__(
        self,
        model_client: ChatCompletionClient | None = None,
        *,
        token_limit: int | None = None,
        tool_schema: Sequence[Any] | None = None,
        initial_messages: list[LLMMessage] | None = None,
        tools: Sequence[Any] = (),
        system_message: str | None = None,
        reserve: int | None = None,
        model: ModelLike = None,
        policy: FitPolicy | None = None,
        report: Callable[[Fitted[Any]], object] | None = None,
    ) -> None:
        super().__init__(initial_messages)
        self._tools = [_definition(tool) for tool in (*(tool_schema or ()), *tools)]
        self._prompt = system_message
        self._fitter = HistoryFitter(
            model=_model_of(model_client) if model is None else model,
            limit=token_limit,
            reserve=reserve,
            policy=policy,
            report=report,
        )

    async def get_messages(self) -> list[LLMMessage]:
        """Returns the messages to send; the event loop runs on meanwhile."""
        return await run_aside(self._fit, list(self._messages))

    def _fit(self, messages: list[LLMMessage]) -> list[LLMMessage]:
        prompt = [] if self._prompt is None else [SystemMessage(content=self._prompt)]
        read = [each for message in (*prompt, *messages) for each in _read(message)]
        given, origins = [made for made, _ in read], [origin for _, origin in read]
        fitted = self._fitter.fit(given, self._tools)
        if fitted.changed:
            origins = restore(fitted, given, origins, _remake)
        sent: list[LLMMessage] = join_results(origins, _results, _with_results)
        if self._prompt is None:
            return sent
        added = sent[0].content.removeprefix(self._prompt).strip()  # the agent sends the prompt itself
        return [SystemMessage(content=added), *sent[1:]] if added else sent[1:]


def _model_of(client: Any) -> str | None:
    """Returns the name of a client's model; clients keep it with the arguments of their requests."""
    name = getattr(client, "_create_args", {}).get("model")
    return name if isinstance(name, str) else None


def _definition(tool: Any) -> dict[str, Any]:
    """Returns a tool of an agent as OpenAI's API has it: a function, a tool or the schema of one."""
    if callable(tool):
        tool = FunctionTool(tool, description=tool.__doc__ or "")
    schema = tool if isinstance(tool, dict) else tool.schema
    return {"type": "function", "function": schema}


def _read(message: LLMMessage) -> Iterator[tuple[Message, MessageOrigin]]:
    """Yields a message as it is fitted; each tool result by itself. One without results has none."""
    if isinstance(message, FunctionExecutionResultMessage):
        for result in message.content:
            made = {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
            yield made, MessageOrigin(message, result)
    elif isinstance(message, AssistantMessage):
        yield _read_answer(message), MessageOrigin(message)
    elif isinstance(message, UserMessage):
        yield _read_user(message), MessageOrigin(message)
    else:
        yield {"role": "system", "content": message.content}, MessageOrigin(message)


def _read_answer(message: AssistantMessage) -> Message:
    made: Message = {"role": "assistant", "name": message.source}
    if isinstance(message.content, str):
        return {**made, "content": message.content}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.content
    ]
    return {**made, "content": message.thought, "tool_calls": calls}


def _read_user(message: UserMessage) -> Message:
    content = message.content
    read = content if isinstance(content, str) else [_read_part(part) for part in content]
    return {"role": "user", "name": message.source, "content": read}


def _read_part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": part.data_uri}}


def _remake(owner: MessageOrigin | None, message: Message) -> MessageOrigin:
    """Returns a copy of the owner with the new content; its parts that are still there stay as they are."""
    content = message["content"]
    if owner is None:
        is_system = message["role"] == "system"
        return MessageOrigin(
            SystemMessage(content=content) if is_system else UserMessage(content=content, source="user")
        )
    if owner.result is not None:
        return MessageOrigin(owner.message, owner.result.model_copy(update={"content": content}))
    given = owner.message
    if "tool_calls" in message:
        return MessageOrigin(given.model_copy(update={"thought": content}))
    if isinstance(content, list):
        own = given.content if isinstance(given.content, list) else [given.content]
        content = restore_parts(content, [_read_part(part) for part in own], own, lambda part: part["text"])
    return MessageOrigin(given.model_copy(update={"content": content}))


def _results(message: LLMMessage) -> list[Any]:
    return message.content if isinstance(message, FunctionExecutionResultMessage) else []


def _with_results(message: LLMMessage, results: list[Any]) -> LLMMessage:
    return message.model_copy(update={"content": results})
