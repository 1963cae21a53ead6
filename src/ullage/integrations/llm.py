"""llm: a model `ullage/NAME` for each model NAME, whose requests fit, and the commands `llm ullage`.

A prompt is fitted when it is sent. The conversation and the log of `llm` keep every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.errors import MissingHost
from ullage.integrations.fitter import HistoryFitter, run_aside
from ullage.integrations.llm_commands import PREFIX, group
from ullage.integrations.llm_messages import fit_messages, text_of

try:
    from llm import AsyncKeyModel, KeyModel, Prompt, Tool, hookimpl
    from pydantic import Field, create_model
except ImportError as error:
    raise MissingHost("llm", "llm>=0.36", str(error)) from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from typing import Unpack

    from ullage.integrations.fitter import FitterOptions

COPIED = (
    "can_stream",
    "attachment_types",
    "supports_schema",
    "supports_tools",
    "supports_conversation",
    "needs_key",
    "key",
    "key_env_var",
)
"""Members of a model that its wrapper has too."""
OWN_OPTIONS: dict[str, Any] = {
    "ullage_limit": (int | None, Field(None, description="Most input tokens; by default the model's window")),
    "ullage_reserve": (int | None, Field(None, description="Tokens of the limit kept free for the answer")),
}
"""Options of a prompt that go before those of the wrapper: name → type and field."""


class _Wrapper:
    """The parts that both kinds of models share: the model that is wrapped, and the fitters."""

    def __init__(self, wrapped: Any, /, **options: Unpack[FitterOptions]) -> None:
        self._wrapped = wrapped
        self._options = options
        self._fitters: dict[tuple[int | None, int | None], HistoryFitter] = {
            (None, None): HistoryFitter(**options)
        }
        self.model_id = f"{PREFIX}{wrapped.model_id}"
        self.Options = create_model("Options", __base__=wrapped.Options, **OWN_OPTIONS)
        for name in COPIED:
            setattr(self, name, getattr(wrapped, name))

    def __str__(self) -> str:
        return f"Ullage: {self.model_id}"

    @property
    def supported_server_side_tools(self) -> Any:
        """The tools that run on the model's server."""
        return self._wrapped.supported_server_side_tools

    def _fit(self, prompt: Prompt) -> Prompt:
        """Returns the prompt for the model that is wrapped, with messages that fit."""
        options = prompt.options.model_dump(exclude_unset=True)
        asked = options.pop("ullage_limit", None), options.pop("ullage_reserve", None)
        given = prompt.messages
        messages = fit_messages(self._fitter(*asked), given, _tools(prompt), self._wrapped.model_id)
        systems = (text_of(message) for message in messages if message.role == "system")
        return Prompt(
            prompt.prompt,
            self._wrapped,
            attachments=prompt.attachments,
            system=next(systems, prompt.system),
            prompt_json=prompt.prompt_json,
            options=self._wrapped.Options(**options),
            schema=prompt.schema,
            tools=prompt.tools,
            tool_results=prompt.tool_results,
            messages=messages,
            hide_reasoning=prompt.hide_reasoning,
        )

    def _fitter(self, limit: int | None, reserve: int | None) -> HistoryFitter:
        if (limit, reserve) not in self._fitters:
            options = self._options.copy()
            if limit is not None:
                options["limit"] = limit
            if reserve is not None:
                options["reserve"] = reserve
            self._fitters[limit, reserve] = HistoryFitter(**options)
        return self._fitters[limit, reserve]

    def _ask_model(
        self, prompt: Prompt, stream: bool, response: Any, conversation: Any, key: str | None
    ) -> Any:
        """Returns the answer of the model that is wrapped."""
        keys = (key,) if isinstance(self._wrapped, KeyModel | AsyncKeyModel) else ()
        return self._wrapped.execute(prompt, stream, response, conversation, *keys)


class FitKeyModel(_Wrapper, KeyModel):
    """A model whose requests have at most `limit` input tokens, less `reserve` if both are given.

    Without a limit, the table of models has the window of the model. A prompt can have a limit and a reserve
    of its own: the options `ullage_limit` and `ullage_reserve`.
    """

    def execute(
        self, prompt: Prompt, stream: bool, response: Any, conversation: Any, key: str | None = None
    ) -> Iterator[Any]:
        """Asks the model with messages that fit."""
        yield from self._ask_model(self._fit(prompt), stream, response, conversation, key)


class FitAsyncKeyModel(_Wrapper, AsyncKeyModel):
    """The same for models that are asked asynchronously. The event loop runs on while a prompt is fitted."""

    async def execute(
        self, prompt: Prompt, stream: bool, response: Any, conversation: Any, key: str | None = None
    ) -> AsyncIterator[Any]:
        """Asks the model with messages that fit."""
        fitted = await run_aside(self._fit, prompt)
        async for chunk in self._ask_model(fitted, stream, response, conversation, key):
            yield chunk


@hookimpl(trylast=True)  # type: ignore[untyped-decorator] # llm is not installed for the checks
def register_models(register: Callable[..., None], model_aliases: Sequence[Any]) -> None:
    """Adds a model that fits for each model that is known so far, under its name and aliases."""
    for each in list(model_aliases):
        register(
            FitKeyModel(each.model),
            None if each.async_model is None else FitAsyncKeyModel(each.async_model),
            aliases=[f"{PREFIX}{alias}" for alias in each.aliases],
        )


@hookimpl  # type: ignore[untyped-decorator] # the same
def register_commands(cli: Any) -> None:
    """Adds the commands `llm ullage`."""
    cli.add_command(group)


def _tools(prompt: Prompt) -> list[dict[str, Any]]:
    """Returns the tools of a prompt, and the schema of its answer: the model reads it in some form."""
    functions = [
        {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
        for tool in prompt.tools
        if isinstance(tool, Tool)
    ]
    if prompt.schema:
        functions.append({"name": "output", "parameters": prompt.schema})
    return [{"type": "function", "function": function} for function in functions]
