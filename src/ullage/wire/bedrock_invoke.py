"""Amazon Bedrock's InvokeModel API, `bedrock.invoke`: each maker's model takes a body in its own format.

A body shows its format, and a request that was read goes back in the same one. For any other request the
name of the model decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ullage.errors import InvalidRequest
from ullage.messages import text_of
from ullage.wire.anthropic import CACHES, THINKING
from ullage.wire.api import Api, api_of
from ullage.wire.bedrock import CONVERSE_READ, CONVERSE_WRITE
from ullage.wire.fields import BodyField, Object, is_list, without
from ullage.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.target import ApiName
    from ullage.wire.api import Sum

INVOKE: ApiName = "bedrock.invoke"
PROMPTS = ("prompt", "inputText", "inputs")
"""Names of the prompt in models that take one text: Llama, Mistral and Claude 2; Titan; others."""

MODELS = ("model", "modelId")
VERSION = "anthropic_version"
LATEST = "bedrock-2023-05-31"
"""The only value of `anthropic_version` that Bedrock accepts."""

IN_ADDRESS = (*MODELS, "stream")
"""Members of other APIs that this API has in its address."""

MAKERS: Mapping[str, ApiName] = {
    "anthropic.claude": "anthropic.messages",
    "amazon.nova": "bedrock.converse",
    "cohere.command-r": "cohere.chat.v1",
    "mistral.": "openai.chat",
    "openai.": "openai.chat",
    "qwen.": "openai.chat",
    "deepseek.": "openai.chat",
}
"""Part of a model's name → the API whose format its body has."""


def read(body: BodyField) -> Request:
    """Reads a body of the invoke API; its format shows which maker's model it is for."""
    form = _format_of(body)
    if form is not None:
        return api_of(form).read(body)
    message = {"role": "user", "content": body.get(*PROMPTS).text()}
    return Request(
        model=body.get(*MODELS).optional_text(),
        messages=(message,),
        rest=without(body.object(), *MODELS, *PROMPTS),
        raw=True,
        api=body.api,
    )


def _format_of(body: BodyField) -> ApiName | None:
    """Returns the API whose format a body has; None if it is one text."""
    if body.has(*PROMPTS) and not body.has("messages"):
        return None
    if body.has("message"):
        return "cohere.chat.v1"
    if not body.has("messages"):
        raise body.wrong(f"the body needs messages or a prompt ({', '.join(PROMPTS)})")
    if body.has(VERSION):
        return "anthropic.messages"
    return "bedrock.converse" if _is_converse(body) else "openai.chat"


def _find_form(body: Object) -> ApiName | None:
    """Returns the API whose turns a body has: those of Claude's are known without looking at them."""
    return "anthropic.messages" if body.get(VERSION) is not None else None


def _is_converse(body: BodyField) -> bool:
    """Returns True if the messages are Nova's: blocks without a type, or the options of converse."""
    if body.has("inferenceConfig", "toolConfig", "schemaVersion"):
        return True
    contents = [message.at("content").value for message in body.at("messages").each()]
    blocks = [block for content in contents if is_list(content) for block in content]
    return bool(blocks) and all(isinstance(block, dict) and "type" not in block for block in blocks)


def write(request: Request) -> Object:
    """Returns a Request as a body of the invoke API, in the format of its model's maker."""
    if request.raw:
        return _write_prompt(request)
    form = _form_of_request(request)
    if form is None:
        raise InvalidRequest(
            f"the name of the model must show the format of the body; the model is {request.model!r}, "
            f"and its name must contain one of {', '.join(MAKERS)}",
            api=INVOKE,
        )
    if request.api == INVOKE:
        return api_of(form).write(replace(request, api=form))
    body = without(api_of(form).write(request), *IN_ADDRESS)
    return {VERSION: LATEST, **body} if form == "anthropic.messages" else body


def _write_prompt(request: Request) -> Object:
    given = request.original or {}
    name = next((name for name in PROMPTS if given.get(name) is not None), PROMPTS[0])
    body = {**request.rest, name: "".join(text_of(each.get("content")) for each in request.messages)}
    if request.model is not None:
        body[next((name for name in MODELS if given.get(name) is not None), MODELS[0])] = request.model
    return body


def _form_of_request(request: Request) -> ApiName | None:
    """Returns the API whose format the body of a request has; None if that is unknown."""
    if request.api == INVOKE and request.original is not None:
        return _format_of(BodyField(request.original, INVOKE))
    if VERSION in request.rest:
        return "anthropic.messages"
    return next((form for part, form in MAKERS.items() if part in (request.model or "")), None)


def leave(request: Request) -> Request:
    """Returns the request under the API of its body: Bedrock wraps the formats of other APIs."""
    form = None if request.raw else _form_of_request(request)
    return replace(request, api=form or request.api, rest=without(request.rest, VERSION))


# The API

USAGE: Mapping[str, Sum] = {  # each maker of a model behind it has its own words
    "prompt": (
        (
            "input_tokens",
            "prompt_tokens",
            "prompt_token_count",
            "inputTokens",
            "inputTokenCount",
            "inputTextTokenCount",
        ),
        (*CACHES[0], *CONVERSE_READ),
        (*CACHES[1], *CONVERSE_WRITE),
    ),
    "completion": (
        (
            "output_tokens",
            "completion_tokens",
            "generation_token_count",
            "outputTokens",
            "outputTokenCount",
        ),
    ),
    "cached_read": ((*CACHES[0], *CONVERSE_READ),),
    "cache_write": ((*CACHES[1], *CONVERSE_WRITE),),
    "reasoning": (THINKING,),
}

APIS = (Api(name=INVOKE, read=read, write=write, usage=USAGE, leave=leave, form=_find_form),)
