"""LangGraph: a node in front of the model, also as the `pre_model_hook` of its ready-made agent.

It returns the messages to send as `llm_input_messages`. The messages of the graph are not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.integrations.fitter import HistoryFitter
from ullage.integrations.langchain_messages import fit_messages, system_message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from langchain_core.messages import BaseMessage

    from ullage.integrations.fitter import FitterOptions


class FitNode:
    """Reads the messages of a state, and returns messages that fit in `limit` input tokens, less `reserve`.

    A node sees neither the tools nor the prompt that the model gets later, so name them here: `tools` as the
    model gets them, and `prompt` if the agent puts one in front by itself.
    """

    def __init__(
        self, *, tools: Iterable[Any] = (), prompt: str | None = None, **options: Unpack[FitterOptions]
    ) -> None:
        self._fitter = HistoryFitter(**options)
        self._tools, self._prompt = tuple(tools), prompt

    def __call__(self, state: Any) -> dict[str, list[BaseMessage]]:
        """Returns the messages to send under the name that LangGraph's agent reads."""
        messages = list(state["messages"] if isinstance(state, dict) else state.messages)
        if self._prompt is None:
            return {"llm_input_messages": fit_messages(self._fitter, messages, self._tools)}
        first, *rest = fit_messages(self._fitter, [system_message(self._prompt), *messages], self._tools)
        added = str(first.content).removeprefix(self._prompt).strip()  # the agent has the prompt itself
        return {"llm_input_messages": [system_message(added), *rest] if added else rest}
