"""The counting routes of each kind of server: path, body, and position of the count in the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import wire
from ullage.broker.registry import routes_of
from ullage.errors import InvalidRequest, ProviderError
from ullage.messages import RESULT_ROLES, SYSTEM_ROLES, arguments_text, calls_of, read_call_id
from ullage.wire import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ullage.broker.ask import Ask
    from ullage.broker.endpoint import Endpoint, Key
    from ullage.broker.http import Transport
    from ullage.messages import Message, Tool
    from ullage.target import ApiName

TIMEOUT = 2.0
"""Seconds for a counting request; a turn waits for it."""


class CountStep(NamedTuple):
    """One request of a route."""

    path: str
    """The path from the server's root; `{model}` stands for the model's name."""
    body: Callable[[Endpoint, Any], dict[str, Any]]
    """Makes the body from the text, the Ask or the last step's result; raises InvalidRequest if it cannot."""
    read: Callable[[Any], Any]
    """Returns the value for the next step, or the count in the last step; None if the answer has none."""


class CountRoute(NamedTuple):
    """The requests by which one kind of server counts."""

    name: str
    steps: tuple[CountStep, ...]
    key: str = "bearer"
    """The form in which the key is sent: a name of `KEYS`."""


class CountAnswer(NamedTuple):
    """The answer of a server."""

    status: int
    """The HTTP status; 0 if no readable answer came."""
    body: Any = None


# Addresses and keys


def root(url: str) -> str:
    """Returns the server's own address without query, final slash and final `/v1`; empty without a server."""
    if not url.startswith(("http://", "https://")):
        return ""
    bare = url.partition("?")[0].rstrip("/")
    for ending in ("/compatibility/v1", "/v1", "/v1beta/openai", "/v1beta"):
        if bare.endswith(ending) and not bare.endswith("/" + ending):  # `https://v1` is a host
            return bare.removesuffix(ending).rstrip("/")
    return bare


KEYS: Mapping[str, Callable[[Key], Mapping[str, str]]] = {
    "bearer": lambda key: {"authorization": f"Bearer {key.reveal()}"},
    "anthropic": lambda key: {"x-api-key": key.reveal()},
    "google": lambda key: {"x-goog-api-key": key.reveal()},
}
ALWAYS: Mapping[str, Mapping[str, str]] = {"anthropic": {"anthropic-version": "2023-06-01"}}
"""Further headers of each form of key; they are also sent if there is no key."""


async def exchange(
    endpoint: Endpoint,
    transport: Transport,
    path: str,
    body: Mapping[str, Any] | None,
    *,
    method: str = "POST",
    key: str = "bearer",
) -> CountAnswer:
    """Sends one request to the endpoint's server; raises only InvalidRequest, if it cannot be sent."""
    from urllib.parse import quote  # noqa: PLC0415 - only who asks needs it

    secret = {} if endpoint.key is None else KEYS[key](endpoint.key)
    _, mark, query = endpoint.url.partition("?")  # a query, such as a version, goes with every path
    url = root(endpoint.url) + path.replace("{model}", quote(endpoint.model, safe="")) + mark + query
    kind = {} if body is None else {"content-type": "application/json"}  # vLLM and TGI require it
    headers = {**kind, **ALWAYS.get(key, {}), **secret, **endpoint.headers}
    try:
        return CountAnswer(*await transport.json(method, url, headers, body, timeout=TIMEOUT))
    except ProviderError as fault:
        return CountAnswer(fault.status or 0)
    except OSError:
        return CountAnswer(0)
    except (TypeError, ValueError) as fault:  # not JSON, or not an address: nothing was sent
        raise InvalidRequest("it has a text or an address that cannot be sent", api=endpoint.api) from fault


# Bodies


def _write_request(endpoint: Endpoint, ask: Ask, api: ApiName) -> dict[str, Any]:
    """Returns the request as a body of `api`; options are included if it is the endpoint's own API."""
    if endpoint.api == "openai.chat" and not api.startswith("openai.chat"):
        return wire.write(wire.read(_write_chat(endpoint, ask), "openai.chat"), api)
    request = Request(model=endpoint.model, messages=ask.messages, tools=ask.tools, rest=ask.options)
    return wire.write(request, api)


def _write_chat(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    request = Request(model=endpoint.model, messages=ask.messages, tools=ask.tools, rest=ask.options)
    body = wire.write(request, "openai.chat")
    for name in ("stream", "stream_options"):
        body.pop(name, None)
    return body


def _write_text_chat(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    """Returns a chat body; raises InvalidRequest for media, of which a template counts only a mark."""
    for message in ask.messages:
        content = message.get("content")
        if isinstance(content, list | tuple) and any(
            not isinstance(part, str) and not isinstance(part.get("text", part.get("refusal")), str)
            for part in content
        ):
            raise InvalidRequest("a template cannot count media", api="openai.chat")
    return _write_chat(endpoint, ask)


def _write_rendered_prompt(endpoint: Endpoint, prompt: str) -> dict[str, Any]:
    return {"content": prompt, "model": endpoint.model, "add_special": True, "parse_special": True}


def _write_chat_fields(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    body = _write_chat(endpoint, ask)
    taken = ("model", "messages", "tools", "chat_template", "chat_template_kwargs", "mm_processor_kwargs")
    return {"add_generation_prompt": True} | {name: body[name] for name in taken if name in body}


def _write_gemini(endpoint: Endpoint, ask: Ask) -> dict[str, Any]:
    return _gemini_body(endpoint.model, ask.messages, ask.tools)


def _write_prompt(endpoint: Endpoint, text: str) -> dict[str, Any]:
    return {"model": endpoint.model, "prompt": text, "add_special_tokens": False}


# Reading the count


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


# Tables


TEXT_ROUTES: Mapping[str, CountRoute] = {
    route.name: route
    for route in (
        CountRoute("llama.cpp", (
            CountStep("/tokenize", lambda at, text: {"content": text, "model": at.model}, _length("tokens")),
        )),
        CountRoute("vllm", (CountStep("/tokenize", _write_prompt, _at("count")),)),
        CountRoute("sglang", (CountStep("/v1/tokenize", _write_prompt, _at("count")),)),
        CountRoute("tgi", (CountStep("/tokenize", lambda _, text: {"inputs": text}, _length()),)),
        CountRoute("cohere", (
            CountStep("/v1/tokenize", lambda at, text: {"text": text, "model": at.model}, _length("tokens")),
        )),
    )
}  # fmt: skip
"""The routes that count a text, by the kind of server."""

REQUEST_ROUTES: Mapping[str, CountRoute] = {
    route.name: route
    for route in (
        CountRoute("llama.cpp", (
            CountStep("/v1/chat/completions/input_tokens", _write_chat, _at("input_tokens")),
        )),
        CountRoute("vllm", (CountStep("/tokenize", _write_chat_fields, _at("count")),)),
        CountRoute("sglang", (CountStep("/v1/tokenize", _write_chat_fields, _at("count")),)),
        CountRoute("tgi", (CountStep("/chat_tokenize", _write_chat, _length("tokenize_response")),)),
        CountRoute("llama.cpp template", (
            CountStep("/apply-template", _write_text_chat, _text_at("prompt")),
            CountStep("/tokenize", _write_rendered_prompt, _length("tokens")),
        )),
        CountRoute("anthropic", (
            CountStep(
                "/v1/messages/count_tokens",
                lambda at, ask: _write_request(at, ask, "anthropic.count_tokens"),
                _at("input_tokens"),
            ),
        ), key="anthropic"),
        CountRoute("openai", (
            CountStep(
                "/v1/responses/input_tokens",
                lambda at, ask: _write_request(at, ask, "openai.responses.input_tokens"),
                _at("input_tokens"),
            ),
        )),
        CountRoute("gemini", (
            CountStep("/v1beta/models/{model}:countTokens", _write_gemini, _at("totalTokens")),
        ), key="google"),
    )
}  # fmt: skip
"""The routes that count a whole request, by the kind of server."""


def request_routes(endpoint: Endpoint) -> tuple[CountRoute, ...]:
    """Returns the routes that may count a whole request at this endpoint."""
    return tuple(REQUEST_ROUTES[name] for name in routes_of(endpoint).request)


def text_routes(endpoint: Endpoint) -> tuple[CountRoute, ...]:
    """Returns the routes that may count a text at this endpoint."""
    return tuple(TEXT_ROUTES[name] for name in routes_of(endpoint).text)


# Gemini's body ------------------------------------------------------------------------------------------

GEMINI = "gemini.count_tokens"


def _gemini_body(model: str, messages: Sequence[Message], tools: Sequence[Tool]) -> dict[str, Any]:
    """Returns the body of countTokens for these messages and tools."""
    inner: dict[str, Any] = {"model": f"models/{model}", "contents": _gemini_turns(messages)}
    system = [
        part for message in messages if message["role"] in SYSTEM_ROLES for part in _gemini_texts(message)
    ]
    if system:
        inner["systemInstruction"] = {"parts": system}
    if tools:
        inner["tools"] = [{"functionDeclarations": [dict(tool["function"]) for tool in tools]}]
    return {"generateContentRequest": inner}


def _gemini_turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Returns the turns; turns of one role in a row are joined, because Gemini's roles must alternate."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            continue
        role = "model" if message["role"] == "assistant" else "user"
        parts = [*_gemini_parts(message, names)]
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    return contents


def _gemini_parts(message: Message, names: dict[str, str]) -> Iterator[dict[str, Any]]:
    if message["role"] in RESULT_ROLES:
        name = names.get(read_call_id(message), "function")
        text = "".join(part["text"] for part in _gemini_texts(message))
        yield {"functionResponse": {"name": name, "response": {"result": text}}}
        return
    yield from _gemini_texts(message)
    for call in calls_of(message):
        name = call["function"]["name"]
        names[call.get("id", "")] = name
        yield {"functionCall": {"name": name, "args": _arguments(arguments_text(call))}}


def _gemini_texts(message: Message) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    for part in [content] if isinstance(content, str) else content or ():
        text = part if isinstance(part, str) else part.get("text")
        if not isinstance(text, str):
            raise InvalidRequest("media cannot be counted here", api=GEMINI, field="content")
        yield {"text": text}


def _arguments(text: str) -> dict[str, Any]:
    """Returns arguments as the object that Gemini requires; any other value is wrapped in an object."""
    import orjson  # noqa: PLC0415 - only a call pays for it

    try:
        found = orjson.loads(text or "{}")
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"arguments": found}
