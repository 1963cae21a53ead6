"""The configuration as frozen values, with the source of each value.

The defaults come from the table of keys; `defaults()` returns them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ullage.broker import embedded_info

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal
    from pathlib import Path

    from ullage.target import ApiName


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressSettings:
    """The short form of a conversation."""

    keep_turns: int
    max_turn_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """The part of the conversation that is sent."""

    max_turns: int | None
    """None for no such limit."""
    token_budget: int | None
    """None for the budget that follows the model: `session.budget.budget_for` returns it."""
    reserved_output: int | None
    """None for the model's longest answer, at most a quarter of the window."""
    max_summary_chars: int
    rolling: bool
    compress: CompressSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeSettings:
    """The counting of tokens."""

    use_endpoint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """The prompt and the model for the turns of each category; a missing category gets the usual ones."""

    system_prompts: Mapping[str, str]
    models: Mapping[str, str]
    rules: Mapping[str, tuple[str, ...]]
    """The phrases that choose a category for a question; categories are tried in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """The memory: texts that the user asked to remember."""

    inject_max_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The files of the project."""

    auto_tree: bool
    depth: int
    max_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettings:
    """Warnings, in dollars or tokens, and caps in dollars; None for no warning or cap."""

    warn_at_dollars: Decimal | None
    warn_at_tokens: int | None
    cap_at_dollars: Decimal | None
    cap_at_dollars_a_day: Decimal | None
    cap_at_dollars_a_project: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The place of sessions, costs and keys; None for a file in the user's state directory."""

    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """Prices in dollars for a million tokens; None for a price that is not configured."""

    input: Decimal | None
    output: Decimal | None
    cached_read: Decimal | None
    cache_write: Decimal | None
    reasoning: Decimal | None

    @property
    def is_given(self) -> bool:
        """True if any price is configured."""
        return any(getattr(self, each) is not None for each in self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings:
    """Time limits for a model's server, in seconds; `broker.endpoint.Timeouts` explains each."""

    connect: int
    first: int
    between: int
    begin: int | None
    """None for one and a half times `first`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model; a value of None comes from its provider or from the table of models."""

    name: str
    """The user's name for it."""
    endpoint: str | None
    """A provider's name or an address."""
    model: str | None
    """The provider's name for it."""
    api: ApiName | None
    key: str | None
    """A reference, `env:NAME` or `file:PATH`; the key itself is never here."""
    window: int | None
    local_compress: bool
    use_tool_role: bool
    prices: PriceSettings
    timeouts: TimeoutSettings

    @property
    def spec(self) -> str:
        """The provider's name for it, or the user's if the provider's is not configured."""
        return self.model or self.name

    @property
    def runs_here(self) -> bool:
        """True for the embedded model and for a GGUF file, which have no endpoint."""
        return self.endpoint is None and embedded_info.runs_here(self.spec)


class Route(NamedTuple):
    """The model and the system prompt for the turns of a category."""

    model: ModelSettings
    system_prompt: str | None
    """None for the usual system prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """The shell."""

    status: str
    confirm: str
    """One of `keys.CONFIRM`."""
    history: int
    """Number of input lines that are saved; 0 for none."""
    startup: str | None
    """File that the shell's bash runs after ~/.bashrc."""
    follow_up: int
    """Most times that the model goes on by itself after its commands have run; 0 for never."""
    mask_secrets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalSettings:
    """The limits of a goal; None for no limit."""

    max_steps: int
    max_tokens: int | None
    max_dollars: Decimal | None
    max_minutes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """An MCP server: a command that is run, or an address."""

    name: str
    command: str | None
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    """A value `env:NAME` refers to the user's variable NAME; `mcp.spec.environment_of` resolves it."""
    url: str | None
    headers: Mapping[str, str] = field(repr=False)
    """Values as in `env`; `mcp.spec.headers_of` resolves them."""
    timeout: int
    """Time limit in seconds, for connecting and for each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration; two are equal if their values are equal, whatever the sources."""

    default_model: str
    """The key `model`."""
    context: ContextSettings
    tokenize: TokenizeSettings
    routing: RoutingSettings
    memory: MemorySettings
    project: ProjectSettings
    cost: CostSettings
    store: StoreSettings
    models: Mapping[str, ModelSettings]
    shell: ShellSettings
    goal: GoalSettings
    mcp: Mapping[str, McpSettings]
    plain_model: ModelSettings = field(compare=False, repr=False)
    """A model with nothing configured, for names that are not in `models`."""
    sources: Mapping[tuple[str, ...], str] = field(compare=False, default_factory=dict)
    """The source of each key that is set: `FILE:LINE`, or the name of an environment variable."""
    notices: tuple[str, ...] = field(compare=False, default=())
    """Messages for the user, such as a project's file that is not trusted and is ignored."""
    files: tuple[Path, ...] = field(compare=False, default=())
    """The files that were read."""

    def model(self, name: str | None = None) -> ModelSettings:
        """Returns the model with this name, by default the configured one.

        A name that is not configured may be any name for `ullage model use`; it gets the default settings.
        """
        wanted = self.default_model if name is None else name
        return self.models.get(wanted) or replace(self.plain_model, name=wanted)

    def route(self, category: str) -> Route:
        """Returns the model and the prompt for the turns of a category; by default the usual ones."""
        return Route(self.model(self.routing.models.get(category)), self.routing.system_prompts.get(category))

    def source(self, *path: str) -> str:
        """Returns the source of a key's value: `default`, a file with its line, or a variable."""
        return self.sources.get(path, "default")
