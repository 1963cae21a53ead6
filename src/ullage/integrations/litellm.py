"""LiteLLM: a callback for the proxy, the router and `acompletion`, and `trim_messages`.

The callback acts after a deployment was chosen, so the model that really answers is known, and retries and
fallbacks are fitted for their own models. LiteLLM asks callbacks only on asynchronous calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import ConfigurationError, MissingHost
from ullage.fitting import fit
from ullage.intake import check_share
from ullage.integrations.fitter import BodyFitter, run_aside
from ullage.models import model_info

try:
    from litellm import model_cost
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise MissingHost("LiteLLM", "litellm>=1.100", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from ullage.fitting import FitPolicy
    from ullage.integrations.fitter import FitterOptions
    from ullage.target import ApiName

CALLS: Mapping[str, ApiName] = {
    "acompletion": "openai.chat",
    "completion": "openai.chat",
    "anthropic_messages": "anthropic.messages",
    "aresponses": "openai.responses",
    "responses": "openai.responses",
}
"""LiteLLM's name of a call → the API of its arguments. Other calls are left alone."""
MEMBERS = ("model", "messages", "input", "instructions", "system", "tools", "functions", "tool_choice")
"""The arguments that cost input tokens. `response_format` is added if it is a plain object."""


class FitHook(CustomLogger):
    """Keeps requests within `limit` input tokens, less `reserve` if both are given.

    Without a limit, the table of models has the window of the model that is called.
    """

    def __init__(self, **options: Unpack[FitterOptions]) -> None:
        super().__init__()
        self._fitters = {api: BodyFitter(api, **options) for api in dict.fromkeys(CALLS.values())}

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Returns the arguments of a call with messages that fit; the given arguments are not changed."""
        api = CALLS.get(getattr(call_type, "value", ""))
        if api is None:
            return None
        body = {name: kwargs[name] for name in MEMBERS if kwargs.get(name) is not None}
        if isinstance(kwargs.get("response_format"), dict):
            body["response_format"] = kwargs["response_format"]
        done = await run_aside(self._fitters[api].fit, body)
        return {**kwargs, **done.body} if done.changed else None


def trim_messages(
    messages: Sequence[Any],
    model: str | None = None,
    trim_ratio: float = 0.75,
    return_response_tokens: bool = False,
    max_tokens: int | None = None,
    *,
    tools: Sequence[Any] | None = None,
    policy: FitPolicy | None = None,
) -> Any:
    """Returns messages that fit in `max_tokens`, or in the share `trim_ratio` of the model's largest input.

    It stands in for LiteLLM's function of this name. With `return_response_tokens` it returns a tuple: the
    messages, and the tokens of the limit that are left.
    """
    limit = max_tokens
    if limit is None:
        limit = int(_largest_input(model) * check_share(trim_ratio, "trim_ratio"))
    fitted = fit(messages, model, tools, limit, policy=policy)
    if return_response_tokens:
        return fitted.messages, fitted.limit - fitted.count.ceiling
    return fitted.messages


def _largest_input(model: str | None) -> int:
    """Returns the most input tokens of a model, as LiteLLM's table or ours has them."""
    if listed := model_cost.get(model, {}).get("max_input_tokens"):
        return int(listed)
    known = model_info(model)
    if known is None:
        raise ConfigurationError("trim_messages needs max_tokens, or a model whose window is known")
    return known.max_input or known.window
