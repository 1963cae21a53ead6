"""How each server counts, as rows of a table: what is posted where, and where the count is in the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import wire
from ullage.broker.gemini import count_body
from ullage.errors import InvalidRequest, ProviderError
from ullage.wire import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.broker.endpoint import Endpoint, Key
    from ullage.broker.http import Transport
    from ullage.broker.provider import Ask

TIMEOUT = 2.0
"""Seconds for a question that a turn waits for."""


class Step(NamedTuple):
    """One request of a way."""

    path: str
    """From the server's root; `{model}` stands for the model's name."""
    body: Callable[[Endpoint, Any], dict[str, Any]]
    """For the text or the Ask, or for what the step before gave; InvalidRequest where it cannot be said."""
    read: Callable[[Any], Any]
    """What the answer gives: the count in the last step; None where it is not there."""


class Way(NamedTuple):
    """A way to a count."""

    name: str
    steps: tuple[Step, ...]
    key: str = "bearer"
    """How the key is sent: a name of `KEYS`."""


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    """The HTTP status; 0 where nothing came that could be understood."""
    body: Any = None


# Addresses and keys


def root(url: str) -> str:
    """The server's own address: no query, no slash, no `/v1` at its end; empty where there is no server."""
    if not url.startswith(("http://", "https://")):
        return ""
    bare = url.partition("?")[0].rstrip("/")
    for ending in ("/v1", "/v1beta/openai", "/v1beta"):
        if bare.endswith(ending) and not bare.endswith("/" + ending):  # `https://v1` is a host
            return bare.removesuffix(ending).rstrip("/")
    return bare


def host(url: str) -> str:
    """The name of the host in an address; empty where it has none."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - 3 ms that importing should not take

    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


KEYS: Mapping[str, Callable[[Key], Mapping[str, str]]] = {
    "bearer": lambda key: {"authorization": f"Bearer {key.reveal()}"},
    "anthropic": lambda key: {"x-api-key": key.reveal()},
    "google": lambda key: {"x-goog-api-key": key.reveal()},
}
ALWAYS: Mapping[str, Mapping[str, str]] = {"anthropic": {"anthropic-version": "2023-06-01"}}
"""Headers that go with a key's form, key or no key."""


async def exchange(
    endpoint: Endpoint,
    transport: Transport,
    path: str,
    body: Mapping[str, Any] | None,
    *,
    method: str = "POST",
    key: str = "bearer",
) -> Answer:
    """One question to the endpoint's own server; raises only InvalidRequest, for what cannot be sent."""
    from urllib.parse import quote  # noqa: PLC0415 - as above

    secret = {} if endpoint.key is None else KEYS[key](endpoint.key)
    _, mark, query = endpoint.url.partition("?")  # such as a version: it goes with every path
    url = root(endpoint.url) + path.replace("{model}", quote(endpoint.model, safe="")) + mark + query
    kind = {} if body is None else {"content-type": "application/json"}  # vLLM and TGI insist on it
    headers = {**kind, **ALWAYS.get(key, {}), **secret, **endpoint.headers}
    try:
        return Answer(*await transport.json(method, url, headers, body, timeout=TIMEOUT))
    except ProviderError as fault:
        return Answer(fault.status or 0)
    except OSError:
        return Answer(0)
    except (TypeError, ValueError) as fault:  # no JSON, or no address: it never left
        raise InvalidRequest("a text or an address in it cannot be sent", api=endpoint.api) from fault


# What is asked


def _request(endpoint: Endpoint, ask: Ask, api: str) -> dict[str, Any]:
    """The request as a body of `api`, options in its words where it is the endpoint's own."""
    if endpoint.api == "openai.chat" and not api.startswith("openai.chat"):
        return wire.write(wire.read(_chat(endpoint, ask), "openai.chat"), api)
    request = Request(model=endpoint.model, messages=ask.messages, tools=ask.tools, rest=ask.options)
    return wire.write(request, api)


def _chat(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    request = Request(model=endpoint.model, messages=ask.messages, tools=ask.tools, rest=ask.options)
    body = wire.write(request, "openai.chat")
    for name in ("stream", "stream_options"):
        body.pop(name, None)
    return body


def _textual(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    """A chat body without media: a template shows a mark for them, and the mark's tokens are not theirs."""
    for message in ask.messages:
        content = message.get("content")
        if isinstance(content, list | tuple) and any(
            not isinstance(part, str) and not isinstance(part.get("text", part.get("refusal")), str)
            for part in content
        ):
            raise InvalidRequest("media cannot be counted by a template", api="openai.chat")
    return _chat(endpoint, ask)


def _templated(endpoint: Endpoint, prompt: str) -> dict[str, Any]:
    return {"content": prompt, "model": endpoint.model, "add_special": True, "parse_special": True}


def _tokenized_chat(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    body = _chat(endpoint, ask)
    taken = ("model", "messages", "tools", "chat_template", "chat_template_kwargs", "mm_processor_kwargs")
    return {"add_generation_prompt": True} | {name: body[name] for name in taken if name in body}


def _gemini(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    return count_body(endpoint.model, ask.messages, ask.tools)


def _prompt(endpoint: Endpoint, text: str) -> dict[str, Any]:
    return {"model": endpoint.model, "prompt": text, "add_special_tokens": False}


# Where the count is


def _at(*path: str) -> Callable[[Any], Any]:
    def read(answer: Any) -> Any:
        for name in path:
            answer = answer.get(name) if isinstance(answer, dict) else None
        return answer

    return read


def _length(*path: str) -> Callable[[Any], int | None]:
    at = _at(*path)

    def read(answer: Any) -> int | None:
        found = at(answer)
        return len(found) if isinstance(found, list) else None

    return read


def _text_at(name: str) -> Callable[[Any], str | None]:
    at = _at(name)

    def read(answer: Any) -> str | None:
        found = at(answer)
        return found if isinstance(found, str) and found else None

    return read


# The tables


TEXTS: Mapping[str, Way] = {
    way.name: way
    for way in (
        Way("llama.cpp", (
            Step("/tokenize", lambda at, text: {"content": text, "model": at.model}, _length("tokens")),
        )),
        Way("vllm", (Step("/tokenize", _prompt, _at("count")),)),
        Way("sglang", (Step("/v1/tokenize", _prompt, _at("count")),)),
        Way("tgi", (Step("/tokenize", lambda _, text: {"inputs": text}, _length()),)),
        Way("cohere", (
            Step("/v1/tokenize", lambda at, text: {"text": text, "model": at.model}, _length("tokens")),
        )),
    )
}  # fmt: skip
"""Ways to the tokens of a bare text, by the kind of server."""

REQUESTS: Mapping[str, Way] = {
    way.name: way
    for way in (
        Way("llama.cpp", (Step("/v1/chat/completions/input_tokens", _chat, _at("input_tokens")),)),
        Way("vllm", (Step("/tokenize", _tokenized_chat, _at("count")),)),
        Way("sglang", (Step("/v1/tokenize", _tokenized_chat, _at("count")),)),
        Way("tgi", (Step("/chat_tokenize", _chat, _length("tokenize_response")),)),
        Way("llama.cpp template", (
            Step("/apply-template", _textual, _text_at("prompt")),
            Step("/tokenize", _templated, _length("tokens")),
        )),
        Way("anthropic", (
            Step(
                "/v1/messages/count_tokens",
                lambda at, ask: _request(at, ask, "anthropic.count_tokens"),
                _at("input_tokens"),
            ),
        ), key="anthropic"),
        Way("openai", (
            Step(
                "/v1/responses/input_tokens",
                lambda at, ask: _request(at, ask, "openai.responses.input_tokens"),
                _at("input_tokens"),
            ),
        )),
        Way("gemini", (
            Step("/v1beta/models/{model}:countTokens", _gemini, _at("totalTokens")),
        ), key="google"),
    )
}  # fmt: skip
"""Ways to the tokens of a whole request, by the kind of server."""

HOSTS: Mapping[str, tuple[str, ...]] = {
    "api.openai.com": ("openai",),
    "api.anthropic.com": ("anthropic",),
    "generativelanguage.googleapis.com": ("gemini",),
    **dict.fromkeys(
        (
            "openrouter.ai", "api.mistral.ai", "api.groq.com", "api.deepseek.com", "api.together.xyz",
            "api.fireworks.ai", "api.x.ai", "api.cohere.com", "api.cohere.ai",
        ),
        (),
    ),
}  # fmt: skip
"""Hosts that are known, and the ways they have; those without any would only answer 404."""

APIS: Mapping[str, tuple[str, ...]] = {
    # None of these paths generates anything, and on a server that has it not each is a 404 or a 422. The
    # template goes last: it is two requests, and it cannot see media.
    "openai.chat": ("llama.cpp", "vllm", "sglang", "tgi", "llama.cpp template"),
    "openai.responses": ("openai",),
    "anthropic.messages": ("anthropic",),
    "ollama.chat": (),
}
"""The ways that are tried, in order, on a host that is not known."""


def request_ways(endpoint: Endpoint) -> tuple[Way, ...]:
    """The ways that may lead to a whole request's count at this endpoint."""
    names = HOSTS.get(host(endpoint.url))
    if names is None:
        names = APIS.get(endpoint.api, ())
    return tuple(REQUESTS[name] for name in names)
