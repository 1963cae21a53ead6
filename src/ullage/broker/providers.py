"""The providers that Ullage knows by name, as rows: where they are, how they are asked, what key they take.

endpoint_for("anthropic/claude-sonnet-4-5", environ=os.environ)
endpoint_for("http://127.0.0.1:8080", environ={})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ullage.broker.endpoint import Endpoint, Key
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Known(NamedTuple):
    """One provider."""

    url: str
    """Its address, unless another one is given."""
    api: str = "openai.chat"
    variable: str | None = None
    """The environment variable of its key; None where it needs none."""
    local: bool = False
    """Whether it runs on one's own machine, so that a call costs nothing."""
    address: str | None = None
    """The environment variable of its address, where the provider's own tools have one."""
    model: str | None = None
    """What it is asked for where no model is named; None where one must be."""


# A server of one model answers with that, whatever is asked for: `default` stands for it.
KNOWN: Mapping[str, Known] = {
    "openai": Known("https://api.openai.com/v1", "openai.chat", "OPENAI_API_KEY", address="OPENAI_BASE_URL"),
    "openai-responses": Known(
        "https://api.openai.com/v1", "openai.responses", "OPENAI_API_KEY", address="OPENAI_BASE_URL"
    ),
    "anthropic": Known("https://api.anthropic.com/v1", "anthropic.messages", "ANTHROPIC_API_KEY"),
    "openrouter": Known("https://openrouter.ai/api/v1", "openai.chat", "OPENROUTER_API_KEY"),
    "deepseek": Known("https://api.deepseek.com/v1", "openai.chat", "DEEPSEEK_API_KEY"),
    "groq": Known("https://api.groq.com/openai/v1", "openai.chat", "GROQ_API_KEY"),
    "together": Known("https://api.together.xyz/v1", "openai.chat", "TOGETHER_API_KEY"),
    "xai": Known("https://api.x.ai/v1", "openai.chat", "XAI_API_KEY"),
    "gemini": Known(
        "https://generativelanguage.googleapis.com/v1beta/openai", "openai.chat", "GEMINI_API_KEY"
    ),
    "ollama": Known("http://127.0.0.1:11434", "ollama.chat", local=True, address="OLLAMA_HOST"),
    "llama.cpp": Known("http://127.0.0.1:8080/v1", local=True, model="default"),
    "vllm": Known("http://127.0.0.1:8000/v1", local=True),
    "sglang": Known("http://127.0.0.1:30000/v1", local=True, model="default"),
    "lmstudio": Known("http://127.0.0.1:1234/v1", local=True),
}

ALIASES: Mapping[str, str] = {"llamacpp": "llama.cpp", "llama-server": "llama.cpp", "lm-studio": "lmstudio"}

# how a model's name begins → whose it is; the longest that fits counts
FAMILIES: Mapping[str, str] = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "codex-": "openai-responses",
    "claude-": "anthropic",
    "deepseek-": "deepseek",
    "gemini-": "gemini",
    "grok-": "xai",
}
ELSEWHERE = ("gpt-oss",)
"""Names that begin like a provider's and are not served by it."""

PATHS: Mapping[str, str] = {"ollama.chat": ""}
"""What is put behind an address that has no path, by API; `/v1` for all others."""


def endpoint_for(
    spec: str,
    *,
    model: str | None = None,
    url: str | None = None,
    key: Key | str | None = None,
    api: str | None = None,
    environ: Mapping[str, str],
) -> Endpoint:
    """Where `provider/model`, a provider, an address or a model's own name leads to.

    What is given beside it wins over what the name says. Raises ConfigurationError for a name that leads
    nowhere, a model that is missing, and a key that is missing, naming the variable to set.
    """
    if _is_address(spec):
        known, named, address = Known(""), None, spec
    else:
        provider, named = _found(spec.strip())
        known, address = KNOWN[provider], ""
    spoken = api or known.api
    told = "" if known.address is None else environ.get(known.address, "").strip()
    where = _address(url or address or _reached(told, known) or known.url, spoken)
    wanted = model or named or known.model or (None if known.url else "default")
    if wanted is None:
        raise ConfigurationError(f"{spec!r} names no model: say which one, as in {spec}/NAME")
    return Endpoint(
        url=where,
        model=wanted,
        api=spoken,
        key=_key(spec, known, key, url, environ),
        # A provider that charges does so behind a proxy on this machine, too.
        local=known.local or (known.variable is None and _is_loopback(where)),
    )


def _found(spec: str) -> tuple[str, str | None]:
    """(the provider, the model where the name tells it)."""
    head, _, rest = spec.partition("/")
    provider = ALIASES.get(head.lower(), head.lower())
    if provider in KNOWN:
        return provider, rest or None
    name = spec.lower()
    fits = [prefix for prefix in FAMILIES if name.startswith(prefix)]
    if fits and not name.startswith(ELSEWHERE):
        return FAMILIES[max(fits, key=len)], spec
    raise ConfigurationError(
        f"{spec!r} is no provider and no model that Ullage knows. Name a model as PROVIDER/MODEL with one of "
        f"{', '.join(KNOWN)}; or give an address such as http://127.0.0.1:8080; or a model whose name begins "
        f"with {', '.join(FAMILIES)}."
    )


def _key(
    spec: str, known: Known, given: Key | str | None, url: str | None, environ: Mapping[str, str]
) -> Key | None:
    """The key that was given, or the one of the environment; that one goes to its own provider only."""
    if given is not None:
        return given if isinstance(given, Key) else Key(given)
    if known.variable is None or url is not None:
        return None
    secret = environ.get(known.variable, "").strip()
    if not secret:
        raise ConfigurationError(
            f"{spec!r} needs a key: set {known.variable} in the environment, or give one in the configuration"
        )
    return Key(secret, known.variable)


# Addresses


def _is_address(spec: str) -> bool:
    return spec.strip().lower().startswith(("http://", "https://"))


def _address(url: str, api: str) -> str:
    """An address in full: a scheme before it, no slash behind it, the API's version where it has no path."""
    whole = url.strip() if _is_address(url) else f"http://{url.strip()}"
    try:
        parts = urlsplit(whole)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise ConfigurationError(f"{url!r} is no address: {error}") from error
    if not host or parts.query or parts.fragment:
        raise ConfigurationError(f"{url!r} is no address of a server, such as http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("an address holds no user and no password: give the key by itself")
    bare = whole.rstrip("/")
    return bare if parts.path.strip("/") else bare + PATHS.get(api, "/v1")


def _reached(told: str, known: Known) -> str:
    """An address of the environment; it may be what the server listens on, and leave the usual port out."""
    if not told or _is_address(told):
        return told
    host, _, port = told.rpartition(":") if ":" in told else (told, "", "")
    host = "127.0.0.1" if host in ("", "0.0.0.0") else host  # noqa: S104 - nothing is bound here
    return f"http://{host}:{port or urlsplit(known.url).port}"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
