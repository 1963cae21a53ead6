"""LlamaIndex: a memory whose messages fit, and an agent whose requests fit.

A memory keeps what was said from run to run. During a run, LlamaIndex's `FunctionAgent` keeps its tool calls
beside the memory; `FitFunctionAgent` fits those as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.fitter import HistoryFitter, run_aside
from ullage.integrations.llama_messages import fit_messages

try:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.memory.types import BaseChatStoreMemory
except ImportError as error:
    raise MissingHost("LlamaIndex", "llama-index-core>=0.14", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ullage.fitting import FitPolicy, Fitted
    from ullage.target import ModelLike


class FitMemory(BaseChatStoreMemory):
    """A memory that stores every message, and returns messages that fit in `limit` tokens, less `reserve`.

    A memory sees neither the tools nor the prompt that the model gets beside its messages, so name them here:
    `tools` as the agent has them, and `prompt` if the agent puts one in front. `report` is called with the
    result of each fit. `fields` are those of LlamaIndex's own memories, such as `chat_store`.
    """

    _fitter: HistoryFitter = PrivateAttr()
    _tools: Sequence[Any] = PrivateAttr()
    _prompt: str | None = PrivateAttr()

    def __init__(
        self,
        *,
        model: ModelLike = None,
        limit: int | None = None,
        reserve: int | None = None,
        tools: Sequence[Any] = (),
        prompt: str | None = None,
        policy: FitPolicy | None = None,
        report: Callable[[Fitted[Any]], object] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._fitter = HistoryFitter(model=model, limit=limit, reserve=reserve, policy=policy, report=report)
        self._tools, self._prompt = tuple(tools), prompt

    @classmethod
    def class_name(cls) -> str:
        """Returns the name under which LlamaIndex serializes the memory."""
        return "FitMemory"

    @classmethod
    def from_defaults(
        cls,
        chat_history: Sequence[ChatMessage] | None = None,
        llm: Any = None,
        **options: Any,
    ) -> FitMemory:
        """Returns a memory with this history, for the model of `llm`."""
        model = None if llm is None else llm.metadata.model_name
        memory = cls(**{"model": model, **options})
        if chat_history:
            memory.set(list(chat_history))
        return memory

    def get(self, input: str | None = None, **options: Any) -> list[ChatMessage]:  # noqa: A002 - the host's name
        """Returns the messages to send."""
        return self._fit(super().get(input, **options))

    async def aget(self, input: str | None = None, **options: Any) -> list[ChatMessage]:  # noqa: A002 - the same
        """Returns the messages to send; the event loop runs on meanwhile."""
        return await run_aside(self._fit, await super().aget(input, **options))

    def _fit(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        if self._prompt is None:
            return fit_messages(self._fitter, messages, self._tools)
        prompt = ChatMessage(self._prompt, role="system")
        first, *rest = fit_messages(self._fitter, [prompt, *messages], self._tools)
        added = (first.content or "").removeprefix(self._prompt).strip()  # the agent has the prompt itself
        return [ChatMessage(added, role="system"), *rest] if added else rest


class FitFunctionAgent(FunctionAgent):
    """A `FunctionAgent` whose requests fit: the memory, the tool calls of the run, the tools and the prompt.

    `fit_options` are the options of a `HistoryFitter`. Without a limit, the table of models has the window of
    the agent's model.
    """

    fit_options: dict[str, Any] = Field(default_factory=dict)
    _fitter: HistoryFitter = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Makes the fitter, so that a wrong option is an error here and not at the first step."""
        super().model_post_init(context)
        self._fitter = HistoryFitter(**self.fit_options)

    async def take_step(
        self, ctx: Any, llm_input: list[ChatMessage], tools: Sequence[Any], memory: Any
    ) -> Any:
        """Asks the model once. The agent keeps the tool calls of the run as they are."""
        done = await ctx.store.get(self.scratchpad_key, default=[])
        given, model = [*llm_input, *done], self.llm.metadata.model_name
        fitted = await run_aside(fit_messages, self._fitter, given, tools, model)
        # The base class sends its input and then the scratchpad, so the scratchpad is empty for the call.
        await ctx.store.set(self.scratchpad_key, [])
        answered: list[ChatMessage] = []
        try:
            output = await super().take_step(ctx, fitted, tools, memory)
            answered = await ctx.store.get(self.scratchpad_key, default=[])
        finally:
            await ctx.store.set(self.scratchpad_key, [*done, *answered])
        return output
