"""Creates a Context from settings and from the limits of an open model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.context import DEFAULT_PROMPT, Context
from ullage.session.preferences import ROLLING_CONTEXT

if TYPE_CHECKING:
    from ullage.config import ModelSettings, Settings
    from ullage.context import Journal
    from ullage.context.summary import Summarizer
    from ullage.fitting import FitPolicy
    from ullage.session.model_pool import ModelLimits
    from ullage.store.settings import PreferenceStore
    from ullage.usage import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredOptions:
    """The options of a Context that come from settings; `ModelLimits` come from the open model."""

    max_turns: int | None
    max_summary_chars: int
    memory_max_chars: int
    use_tool_role: bool


def context_options(settings: Settings, model: ModelSettings) -> ConfiguredOptions:
    """Returns the options of a conversation with this model.

    `settings.context.rolling` is not among them: `Context.set_trimming` sets it.
    """
    return ConfiguredOptions(
        max_turns=settings.context.max_turns,
        max_summary_chars=settings.context.max_summary_chars,
        memory_max_chars=settings.memory.inject_max_chars,
        use_tool_role=model.use_tool_role,
    )


def is_trimming(settings: Settings, preferences: PreferenceStore) -> bool:
    """Returns True if conversations are trimmed: as `:rolling-context` was set last, else as configured."""
    preferred = ROLLING_CONTEXT.get(preferences)
    return settings.context.rolling if preferred is None else preferred


def resume_context(
    session: str,
    journal: Journal,
    options: ConfiguredOptions,
    limits: ModelLimits,
    *,
    meter: Meter,
    system_prompt: str | None = None,
    policy: FitPolicy | None = None,
    summarize: Summarizer | None = None,
) -> Context:
    """Returns the conversation of a session from the journal; a prompt of None is the default prompt."""
    return Context.resume(
        session,
        journal,
        model=limits.target,
        window=limits.window,
        reserved_output=limits.reserved_output,
        tokenizer=limits.tokenizer,
        factor=limits.factor,
        max_turns=options.max_turns,
        token_budget=limits.token_budget,
        max_summary_chars=options.max_summary_chars,
        memory_max_chars=options.memory_max_chars,
        use_tool_role=options.use_tool_role,
        system_prompt=DEFAULT_PROMPT if system_prompt is None else system_prompt,
        policy=policy,
        meter=meter,
        summarize=summarize,
    )


def switch_model(context: Context, limits: ModelLimits) -> None:
    """Applies the limits of another model to a conversation, which is then counted and fitted again."""
    context.use_model(
        limits.target,
        token_budget=limits.token_budget,
        window=limits.window,
        reserved_output=limits.reserved_output,
        tokenizer=limits.tokenizer,
        factor=limits.factor,
    )
