"""The configuration as values: what it says, and where each word of it comes from.

The defaults are those of the table of keys; `defaults()` has them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressSettings:
    """The short form of a conversation."""

    keep_turns: int
    max_turn_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """What is sent of the conversation."""

    max_turns: int | None
    token_budget: int | None
    """None for all that the window leaves."""
    reserved_output: int | None
    """None for the model's longest answer, at most a quarter of the window."""
    max_summary_chars: int
    rolling: bool
    compress: CompressSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeSettings:
    """How tokens are counted."""

    use_endpoint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """Which prompt and which model the turns of a class get; a class that is missing gets the usual ones."""

    system_prompts: Mapping[str, str]
    models: Mapping[str, str]
    rules: Mapping[str, tuple[str, ...]]
    """The phrases that make a question one of a class; classes are tried in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What is remembered."""

    inject_max_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The files of the project."""

    auto_tree: bool
    depth: int
    max_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettings:
    """Warnings and caps in dollars; None for none."""

    warn_at_dollars: Decimal | None
    warn_at_tokens: int | None
    cap_at_dollars: Decimal | None
    cap_at_dollars_a_day: Decimal | None
    cap_at_dollars_a_project: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """Dollars a million tokens; None where it is not given."""

    input: Decimal | None
    output: Decimal | None
    cached_read: Decimal | None
    cache_write: Decimal | None
    reasoning: Decimal | None

    @property
    def is_given(self) -> bool:
        """Whether any price is."""
        return any(getattr(self, each) is not None for each in self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One model; what is None is told by its provider or by the table of models."""

    name: str
    """What the user calls it."""
    endpoint: str | None
    """A provider's name or an address."""
    model: str | None
    """What the provider calls it."""
    api: str | None
    key: str | None
    """A reference, `env:NAME` or `file:PATH`; the key itself is never here."""
    window: int | None
    local_compress: bool
    use_tool_role: bool
    prices: PriceSettings


class Route(NamedTuple):
    """Where a turn goes."""

    model: ModelSettings
    system_prompt: str | None
    """In the place of the usual one; None for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """The shell."""

    status: str
    confirm: str
    """One of `keys.CONFIRM`."""
    history: int
    """How many lines are kept; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalSettings:
    """What a goal may use before it stops; None for any amount."""

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
    """A value `env:NAME` stands for a variable of the user's own: `using.environment_of` has them all."""
    url: str | None
    headers: Mapping[str, str] = field(repr=False)
    """As `env`: `using.headers_of` has them all."""
    timeout: int
    """Seconds that connecting may take, and each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it; two are equal where they say the same, wherever that comes from."""

    default_model: str
    """The key `model`."""
    context: ContextSettings
    tokenize: TokenizeSettings
    routing: RoutingSettings
    memory: MemorySettings
    project: ProjectSettings
    cost: CostSettings
    models: Mapping[str, ModelSettings]
    shell: ShellSettings
    goal: GoalSettings
    mcp: Mapping[str, McpSettings]
    sources: Mapping[tuple[str, ...], str] = field(compare=False, default_factory=dict)
    """Where a key that is set comes from: `FILE:LINE`, or the name of an environment variable."""
    notices: tuple[str, ...] = field(compare=False, default=())
    """What the user should know, such as a project's file that is not trusted and was left out."""
    files: tuple[Path, ...] = field(compare=False, default=())
    """The files that were read."""

    def model(self, name: str | None = None) -> ModelSettings:
        """The model of this name, by default the one that answers.

        A name that is not in the table is taken as `ullage model use` would take it, with nothing configured.
        """
        from ullage.config.building import plain_model  # noqa: PLC0415 - it builds what is defined here

        wanted = self.default_model if name is None else name
        return self.models.get(wanted) or plain_model(wanted)

    def route(self, kind: str) -> Route:
        """What a turn of this class gets; of a class that is not configured, the usual."""
        return Route(self.model(self.routing.models.get(kind)), self.routing.system_prompts.get(kind))

    def source(self, *path: str) -> str:
        """Where the value of a key comes from: `default`, a file with its line, or a variable."""
        return self.sources.get(path, "default")
