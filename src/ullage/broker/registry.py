"""The providers that Ullage knows by name, one row each: address, API, key, and the routes of their hosts.

endpoint_for("anthropic/claude-sonnet-4-5", environ=os.environ)
endpoint_for("http://127.0.0.1:8080", environ={})
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ullage.broker.endpoint import Endpoint, Key
from ullage.broker.proxy import is_loopback
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.target import ApiName


class Routes(NamedTuple):
    """The names of the routes of a server; each group is tried in order."""

    window: tuple[str, ...] = ()
    """Rows of `window_routes.WINDOW_ROUTES`, which state the context window."""
    request: tuple[str, ...] = ()
    """Rows of `count_routes.REQUEST_ROUTES`, which count a whole request."""
    text: tuple[str, ...] = ()
    """Rows of `count_routes.TEXT_ROUTES`, which count a text."""


class ProviderRow(NamedTuple):
    """One provider."""

    url: str
    """The default address."""
    api: ApiName = "openai.chat"
    variable: str | None = None
    """The environment variable of its key; None if it needs no key."""
    routes: Routes | None = None
    """The routes of its host; None for a server on the user's own machine, where `PROBES` are tried."""
    local: bool = False
    """True if it runs on the user's own machine, so that a call costs nothing."""
    address: str | None = None
    """The environment variable of its address, if the provider's own tools have one."""
    model: str | None = None
    """The default model; None if the user must name one."""
    hosts: tuple[str, ...] = ()
    """More hosts of the same provider, in addition to that of its address."""


# A server with only one model answers with it for any name: `default` stands for it. Hosted providers list
# only routes that they have: others would send the key to a useless path.
PROVIDERS: Mapping[str, ProviderRow] = {
    "openai": ProviderRow(
        "https://api.openai.com/v1", "openai.chat", "OPENAI_API_KEY",
        Routes(request=("openai",)),  # its list of models has no windows
        address="OPENAI_BASE_URL",
    ),
    "openai-responses": ProviderRow(
        "https://api.openai.com/v1", "openai.responses", "OPENAI_API_KEY",
        Routes(request=("openai",)),
        address="OPENAI_BASE_URL",
    ),
    "anthropic": ProviderRow(
        "https://api.anthropic.com/v1", "anthropic.messages", "ANTHROPIC_API_KEY",
        Routes(window=("anthropic",), request=("anthropic",)),
    ),
    "openrouter": ProviderRow(
        "https://openrouter.ai/api/v1", "openai.chat", "OPENROUTER_API_KEY", Routes(window=("models",)),
    ),
    "deepseek": ProviderRow("https://api.deepseek.com/v1", "openai.chat", "DEEPSEEK_API_KEY", Routes()),
    "groq": ProviderRow(
        "https://api.groq.com/openai/v1", "openai.chat", "GROQ_API_KEY", Routes(window=("models",)),
    ),
    "together": ProviderRow(
        "https://api.together.xyz/v1", "openai.chat", "TOGETHER_API_KEY", Routes(window=("models",)),
    ),
    "fireworks": ProviderRow(
        "https://api.fireworks.ai/inference/v1", "openai.chat", "FIREWORKS_API_KEY",
        Routes(window=("models",)),
    ),
    "mistral": ProviderRow(
        "https://api.mistral.ai/v1", "openai.chat", "MISTRAL_API_KEY", Routes(window=("models",)),
    ),
    "xai": ProviderRow("https://api.x.ai/v1", "openai.chat", "XAI_API_KEY", Routes()),
    "gemini": ProviderRow(
        "https://generativelanguage.googleapis.com/v1beta/openai", "openai.chat", "GEMINI_API_KEY",
        Routes(window=("gemini",), request=("gemini",)),
    ),
    "cohere": ProviderRow(
        "https://api.cohere.ai/compatibility/v1", "openai.chat", "CO_API_KEY", Routes(text=("cohere",)),
        hosts=("api.cohere.com",),
    ),
    "ollama": ProviderRow("http://127.0.0.1:11434", "ollama.chat", local=True, address="OLLAMA_HOST"),
    "llama.cpp": ProviderRow("http://127.0.0.1:8080/v1", local=True, model="default"),
    "vllm": ProviderRow("http://127.0.0.1:8000/v1", local=True),
    "sglang": ProviderRow("http://127.0.0.1:30000/v1", local=True, model="default"),
    "lmstudio": ProviderRow("http://127.0.0.1:1234/v1", local=True),
}  # fmt: skip

# None of these paths generates text, and a server without one answers 404 or 422. The template of llama.cpp
# is last: it takes two requests, and it cannot see media. llama.cpp and vLLM speak several APIs.
PROBES: Mapping[ApiName, Routes] = {
    "openai.chat": Routes(
        window=("llama.cpp", "models", "ollama", "lm studio"),
        request=("llama.cpp", "vllm", "sglang", "tgi", "llama.cpp template"),
        text=("llama.cpp", "vllm", "tgi", "sglang"),
    ),
    "openai.responses": Routes(
        window=("llama.cpp", "models", "ollama", "lm studio"),
        request=("openai",),
        text=("llama.cpp", "vllm"),
    ),
    "anthropic.messages": Routes(
        window=("llama.cpp", "anthropic", "models", "ollama"),
        request=("anthropic",),
        text=("llama.cpp", "vllm"),
    ),
    "ollama.chat": Routes(window=("ollama",)),
}
"""The routes that are tried at an unknown host, by API; most such hosts are the user's own servers."""

ALIASES: Mapping[str, str] = {"llamacpp": "llama.cpp", "llama-server": "llama.cpp", "lm-studio": "lmstudio"}

# the beginning of a model's name → its provider; the longest match decides
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
"""Names that begin like a provider's models, but that it does not serve."""

PATHS: Mapping[ApiName, str] = {"ollama.chat": ""}
"""The path that is appended to an address without one, by API; `/v1` for all others."""


def endpoint_for(
    spec: str,
    *,
    model: str | None = None,
    url: str | None = None,
    key: Key | str | None = None,
    api: ApiName | None = None,
    environ: Mapping[str, str],
) -> Endpoint:
    """Returns the endpoint for `provider/model`, a provider, an address or a model's own name.

    The other arguments replace what the name implies. Raises ConfigurationError if the name is unknown, or if
    the model or the key is missing; the message names the variable to set.
    """
    if _is_address(spec):
        known, named, address = ProviderRow(""), None, spec
    else:
        provider, named = _find_provider(spec.strip())
        known, address = PROVIDERS[provider], ""
    spoken = api or known.api
    given_address = "" if known.address is None else environ.get(known.address, "").strip()
    where = _address(url or address or _complete_address(given_address, known) or known.url, spoken)
    wanted = model or named or known.model or (None if known.url else "default")
    if wanted is None:
        raise ConfigurationError(f"{spec!r} names no model: add one, as in {spec}/NAME")
    return Endpoint(
        url=where,
        model=wanted,
        api=spoken,
        key=_key(spec, known, key, url, environ),
        # A provider that costs money also costs money behind a proxy on this machine.
        local=known.local or (known.variable is None and is_loopback(where)),
    )


def routes_of(endpoint: Endpoint) -> Routes:
    """Returns the routes of the endpoint's own host if a row has it; otherwise the probes for its API."""
    found = _map_hosts().get(host_of(endpoint.url))
    return PROBES.get(endpoint.api, Routes()) if found is None else found


@cache
def _map_hosts() -> Mapping[str, Routes]:
    return {
        host: row.routes
        for row in PROVIDERS.values()
        if row.routes is not None
        for host in (host_of(row.url), *row.hosts)
    }


def host_of(url: str) -> str:
    """Returns the name of the host in an address; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _find_provider(spec: str) -> tuple[str, str | None]:
    """Returns the provider, and the model if the name has one."""
    head, _, rest = spec.partition("/")
    provider = ALIASES.get(head.lower(), head.lower())
    if provider in PROVIDERS:
        return provider, rest or None
    name = spec.lower()
    fits = [prefix for prefix in FAMILIES if name.startswith(prefix)]
    if fits and not name.startswith(ELSEWHERE):
        return FAMILIES[max(fits, key=len)], spec
    raise ConfigurationError(
        f"{spec!r} is not a provider or model that Ullage knows. Name a model as PROVIDER/MODEL with one of "
        f"{', '.join(PROVIDERS)}; or use an address such as http://127.0.0.1:8080; or a model whose name "
        f"begins with {', '.join(FAMILIES)}."
    )


def _key(
    spec: str, known: ProviderRow, given: Key | str | None, url: str | None, environ: Mapping[str, str]
) -> Key | None:
    """Returns the given key, or the environment's key, which is sent only to its own provider."""
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


def _address(url: str, api: ApiName) -> str:
    """Returns a full address: with a scheme, no final slash, and the API's version if it has no path."""
    whole = url.strip() if _is_address(url) else f"http://{url.strip()}"
    try:
        parts = urlsplit(whole)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise ConfigurationError(f"{url!r} is not a valid address: {error}") from error
    if not host or parts.query or parts.fragment:
        raise ConfigurationError(f"{url!r} is not the address of a server, such as http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("an address must not have a user and a password: set the key separately")
    bare = whole.rstrip("/")
    return bare if parts.path.strip("/") else bare + PATHS.get(api, "/v1")


def _complete_address(given_address: str, known: ProviderRow) -> str:
    """Returns a usable address; the environment may have a listening address such as 0.0.0.0."""
    if not given_address or _is_address(given_address):
        return given_address
    host, _, port = given_address.rpartition(":") if ":" in given_address else (given_address, "", "")
    host = "127.0.0.1" if host in ("", "0.0.0.0") else host  # noqa: S104 - nothing is bound here
    return f"http://{host}:{port or urlsplit(known.url).port}"
