"""mini-swe-agent: an agent class whose model gets messages that fit, with tool calls or in text mode.

The agent's own messages, and so its trajectory file, stay complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.fitting import FitPolicy
from ullage.integrations.fitter import FitterOptions, HistoryFitter, restore

try:
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.models.utils.actions_toolcall import BASH_TOOL
except ImportError as error:
    raise MissingHost("mini-swe-agent", "mini-swe-agent>=2", str(error)) from error

if TYPE_CHECKING:
    from ullage.messages import Message

EXTRA = "extra"
"""The member of a message that the agent keeps for itself and does not send."""


class FitQueryModel:
    """A model of mini-swe-agent that fits messages before it asks the model that it wraps."""

    def __init__(self, model: Any, fitter: HistoryFitter) -> None:
        self._wrapped, self._fitter = model, fitter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def query(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """Asks the model with messages that fit; the given list and its messages are not changed."""
        given = [{name: value for name, value in each.items() if name != EXTRA} for each in messages]
        # In text mode no tool is sent; to count one more makes the request a little smaller.
        fitted = self._fitter.fit(given, [BASH_TOOL], model=self._wrapped.config.model_name)
        answer: dict[str, Any] = self._wrapped.query(restore(fitted, given, messages, _remake), **options)
        return answer


def _remake(owner: dict[str, Any] | None, message: Message) -> dict[str, Any]:
    return {**(owner or {}), **message}


class FitAgent(DefaultAgent):
    """The default agent, with requests of at most `limit` input tokens, less `reserve` if both are given.

    It takes the options of the default agent and those of all integrations. Outputs are user messages in
    text mode, so its policy has `cut_user`.
    """

    def __init__(self, wrapped: Any, env: Any, /, **options: Any) -> None:
        names = FitterOptions.__annotations__.keys() & options.keys()
        fitting: dict[str, Any] = {name: options.pop(name) for name in names}
        fitter = HistoryFitter(**{"policy": FitPolicy(cut_user=True), **fitting})
        super().__init__(FitQueryModel(wrapped, fitter), env, **options)
