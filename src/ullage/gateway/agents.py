"""The coding agents that `ullage run` starts, and how each is pointed at the gateway.

Only the environment and the arguments of the one run are set: no file of the agent's own is read or written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAME = "ullage"
"""The name of the gateway in an agent's list of providers."""
PLACEHOLDER = "ullage"
"""A key for agents that do not start without one; the gateway's own upstream key replaces it."""
CLAIMED_WINDOW = 1_000_000
"""The window that agents are configured for. The gateway keeps their requests inside the real one, so that
their own compaction, which loses more, does not start."""
CLAIMED_OUTPUT = 32_000


class Aim(NamedTuple):
    """The gateway and the model of an agent's run."""

    url: str
    """The address of the gateway, without a path."""
    model: str | None
    """The name of the model; None for the agent's own default."""
    environ: Mapping[str, str]

    @property
    def openai_key(self) -> str:
        """The user's key for OpenAI's API, or a placeholder."""
        return self.environ.get("OPENAI_API_KEY") or PLACEHOLDER


class Launch(NamedTuple):
    """The arguments before the user's own, and the variables of the run."""

    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}


class Agent(NamedTuple):
    """One agent."""

    program: str
    """The command that starts it."""
    launch: Callable[[Aim], Launch]
    upstream: str | None = None
    """The provider of its own models, used if the user names no other upstream."""
    install: str = ""
    """The command that installs it."""
    needs_model: bool = False
    """True if it needs a model's name."""


def _claude(aim: Aim) -> Launch:
    environ = {"ANTHROPIC_BASE_URL": aim.url}
    if not any(aim.environ.get(name) for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")):
        environ["ANTHROPIC_AUTH_TOKEN"] = PLACEHOLDER
    return Launch(("--model", aim.model) if aim.model else (), environ)


def _codex(aim: Aim) -> Launch:
    provider = f"model_providers.{NAME}"
    settings = {
        "model_provider": NAME,
        f"{provider}.name": NAME,
        f"{provider}.base_url": f"{aim.url}/v1",
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": "ULLAGE_AGENT_KEY",
    }
    words = [f'{name}="{value}"' for name, value in settings.items()]
    words += [f"{provider}.supports_websockets=false", f"model_context_window={CLAIMED_WINDOW}"]
    if aim.model:
        words.append(f'model="{aim.model}"')
    arguments = tuple(word for each in words for word in ("-c", each))
    return Launch(arguments, {"ULLAGE_AGENT_KEY": aim.openai_key})


def _opencode(aim: Aim) -> Launch:
    model = aim.model or ""
    limit = {"context": CLAIMED_WINDOW, "output": CLAIMED_OUTPUT}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": NAME,
        "options": {"baseURL": f"{aim.url}/v1", "apiKey": aim.openai_key},
        "models": {model: {"name": model, "tool_call": True, "limit": limit}},
    }
    config = {"provider": {NAME: provider}, "model": f"{NAME}/{model}", "small_model": f"{NAME}/{model}"}
    return Launch((), {"OPENCODE_CONFIG_CONTENT": orjson.dumps(config).decode()})


def _qwen(aim: Aim) -> Launch:
    environ = {"OPENAI_BASE_URL": f"{aim.url}/v1", "OPENAI_API_KEY": aim.openai_key}
    return Launch(("--auth-type", "openai", "--model", aim.model or ""), environ)


def _nanocoder(aim: Aim) -> Launch:
    provider = {
        "name": NAME,
        "baseUrl": f"{aim.url}/v1",
        "apiKey": aim.openai_key,
        "models": [aim.model or ""],
        "contextWindow": CLAIMED_WINDOW,
    }
    environ = {
        "NANOCODER_PROVIDERS": orjson.dumps([provider]).decode(),
        "NANOCODER_CONTEXT_LIMIT": str(CLAIMED_WINDOW),
    }
    return Launch(("--provider", NAME, "--model", aim.model or ""), environ)


def _aider(aim: Aim) -> Launch:
    name = f"openai/{aim.model}"
    environ = {"OPENAI_API_BASE": f"{aim.url}/v1", "OPENAI_API_KEY": aim.openai_key}
    return Launch(("--model", name, "--weak-model", name, "--no-show-model-warnings"), environ)


AGENTS: Mapping[str, Agent] = {
    "claude": Agent(
        "claude", _claude, "https://api.anthropic.com", "npm install -g @anthropic-ai/claude-code"
    ),
    "codex": Agent("codex", _codex, "https://api.openai.com", "npm install -g @openai/codex"),
    "opencode": Agent("opencode", _opencode, None, "npm install -g opencode-ai", needs_model=True),
    "qwen": Agent("qwen", _qwen, None, "npm install -g @qwen-code/qwen-code", needs_model=True),
    "nanocoder": Agent(
        "nanocoder", _nanocoder, None, "npm install -g @nanocollective/nanocoder", needs_model=True
    ),
    "aider": Agent("aider", _aider, None, "pip install aider-chat", needs_model=True),
}
