"""Turns a provider's refusal into one typed error, for every provider's format."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ullage.broker.retry import may_retry, read_wait
from ullage.errors import ContextOverflowError, ProviderError
from ullage.text import one_line
from ullage.wire.api import MOST_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ullage.broker.endpoint import Key

MOST_TEXT = 500
"""Most characters of a provider's text that are shown."""
DEPTH = 6
"""Most levels of nesting at which an error is searched; gateways wrap the errors of others, often as text."""


class ErrorBody(NamedTuple):
    """The error that a body reports."""

    message: str
    code: str | None
    fields: Mapping[str, Any]
    """The error's object, for numbers in fields of their own."""


# Overflow: the codes, the fields and the texts that mean it.

OVERFLOW_CODES = frozenset({
    "context_length_exceeded", "exceed_context_size_error", "model_max_prompt_tokens_exceeded",
    "context_too_large",
})  # fmt: skip
OVERFLOW_FIELDS = (("n_prompt_tokens", "n_ctx"),)
"""Pairs of fields of llama.cpp: the prompt's tokens, and the limit."""
NO_OVERFLOW = frozenset({401, 402, 403, 404, 429})
"""Statuses of errors whose texts about tokens do not mean the window, but for example tokens per minute."""

_N = r"(?P<{}>\d[\d,]*)"


def _text(pattern: str) -> re.Pattern[str]:
    """Returns a pattern in which <name> stands for a number."""
    return re.compile(re.sub(r"<(\w+)>", lambda m: _N.format(m[1]), pattern), re.IGNORECASE | re.DOTALL)


_CONTEXT = r"maximum context length is <limit> tokens.{1,40}"
_WHOLE = r"you requested <total> tokens"

# limit: the limit; size: the prompt's tokens; output: the answer's share; total: both.
OVERFLOW_TEXTS = (
    # OpenAI, DeepSeek and older vLLM
    _text(
        _CONTEXT + _WHOLE + r" \(<size> in (?:the|your) (?:messages|prompt)[,;] <output> (?:in|for) the comp"
    ),
    _text(_CONTEXT + r"your messages resulted in <size> tokens"),
    _text(_CONTEXT + _WHOLE),
    _text(r"input tokens exceed the configured limit of <limit> tokens.{1,40}resulted in <size> tokens"),
    # OpenRouter, whose count of the prompt is approximate
    _text(_CONTEXT + r"you requested about <total> tokens"),
    # newer vLLM and servers built on it
    _text(_CONTEXT + r"your request has <size> input tokens \(<output> >"),
    _text(
        _CONTEXT
        + r"you requested <output> output tokens and your prompt contains .{0,12}?<size> input tokens"
    ),
    _text(r"passed <size> input tokens and requested <output> output.{1,60}context length is only <limit>"),
    _text(r"prompt \((?:total length )?<size>(?: tokens)?\) is too long.{1,60}\(context length <limit>\)"),
    # SGLang
    _text(r"context length of <limit> tokens.{1,40}total of <total> tokens: <size> tokens from the "),
    _text(r"input length \(<size> tokens\) exceeds the maximum allowed length \(<limit> tokens"),
    _text(r"input \(<size> tokens\) is longer than the model's context length \(<limit> tokens"),
    # Anthropic
    _text(r"prompt is too long: <size> tokens > <limit> maximum"),
    _text(r"exceed context limit: <size> \+ <output> > <limit>"),
    # llama.cpp, and LocalAI, which passes its text on
    _text(r"request \(<size> tokens\) exceeds the available context size \(<limit>"),
    # LM Studio, GitHub Copilot
    _text(r"keep the first <size> tokens when.{1,80}context length of only <limit> tokens"),
    _text(r"prompt token count of <size> exceeds the limit of <limit>"),
    # Gemini, Vertex
    _text(r"input token count \(<size>\) exceeds the maximum number of tokens allowed \(<limit>\)"),
    _text(r"input token count is <size> but model only supports up to <limit>"),
    # TGI
    _text(r"must be <= <limit>\. Given: <size> `inputs` tokens and <output> `max_new_tokens`"),
    _text(r"`inputs` must have less than <limit> tokens\. Given: <size>"),
    # Mistral, xAI, Cohere
    _text(r"prompt contains <size> tokens.{1,80}model with <limit> maximum context length"),
    _text(r"maximum prompt length is <limit> but the request contains <size> tokens"),
    _text(r"tokens in the prompt cannot exceed <limit> - received <size>"),
    # without numbers: OpenAI responses, older llama.cpp, Ollama, Bedrock, Anthropic
    _text(r"exceeds the context window of this model"),
    _text(r"exceeds? the available context size"),
    _text(r"input (?:length )?exceeds (?:the |maximum )*context length"),
    _text(r"exceeded max context length"),
    _text(r"input is too long for (?:the )?requested model"),
    _text(r"context size has been exceeded"),
    _text(r"exceeds? the model's (?:maximum )?context length"),
    _text(r"greater than the context length"),
    _text(r"exceeded model token limit"),
    _text(r"prompt is too long"),
)
"""The first pattern that matches decides; patterns with more numbers come first."""


def refusal(
    status: int | None, body: Any, *, key: Key | None = None, headers: Mapping[str, str] | None = None
) -> Exception:
    """Returns the error that a body reports; `status` is None for an error inside a stream.

    The body is bytes, a text, or a value read from JSON; header names are in lower case.
    """
    said = _find_error(body)
    overflow = _overflow(status, said, key)
    if overflow is not None:
        return overflow
    code = None if said.code is None else clean(said.code, key, 80)
    reason = clean(said.message, key)
    return ProviderError(
        _sentence(status, reason, key),
        status=status,
        code=code,
        may_retry=may_retry(status, code, headers),
        retry_after=read_wait(headers or {}, time.time()),
    )


def clean(text: str, key: Key | None = None, most: int = MOST_TEXT) -> str:
    """Returns a foreign text that may be shown: one line, limited, without anything like a key."""
    # Keys are removed before the text is cut: a key that is cut in two would not be recognised.
    if key is not None and key.reveal():
        text = text.replace(key.reveal(), "[key]")
    text = one_line(hide_keys(text)[: 8 * most])
    return text if len(text) <= most else text[: most - 1] + "…"


def hide_keys(text: str) -> str:
    """Returns a text in which `[key]` stands for anything like a key."""
    return _SECRETS.sub("[key]", text)


_SECRETS = re.compile(
    r"\bBearer\s+[^\s\"',]{6,}|\b(?:sk|pk|rk|gsk|xai|hf|r8|fw|pplx|nvapi)[-_][\w.*-]{6,}|\bAIza[\w*-]{6,}"
    r"|\b(?:ghp|gho|github_pat|glpat|xox[abp])[-_][\w-]{6,}|\bAKIA[A-Z0-9]{12,}"
    r"|\bullage-[a-z2-7]{8}-[\w-]{43}"
    r"|(?<=key=)[^\s&\"']+"
)

SENTENCES: Mapping[int, str] = {
    401: "the provider does not accept the key{source}: check it, or set another one",
    402: "the account of the key{source} must be paid first: check its balance",
    403: "the key{source} may not do this: check its rights, the model and the region",
    404: "the provider does not know this model or path: check the model's name and the address",
    413: "the request has too many bytes for the provider: send less or smaller attachments",
    429: "the provider's rate limit is reached: try again later",
    529: "the provider is overloaded: try again later",
}


def _sentence(status: int | None, reason: str, key: Key | None) -> str:
    source = " (none was given)" if key is None else f" from {key.source}"
    if status is None:
        return reason or "the provider reported an error without a reason"
    text = SENTENCES.get(status, "the provider failed" if status >= 500 else "the provider refused")
    return f"{text.format(source=source)} ({status}{': ' + reason if reason else ''})"


def _overflow(status: int | None, said: ErrorBody, key: Key | None) -> ContextOverflowError | None:
    if status in NO_OVERFLOW:
        return None
    for prompt, most in OVERFLOW_FIELDS:
        size, limit = _figure(said.fields.get(prompt)), _figure(said.fields.get(most))
        if size is not None and limit is not None:
            return ContextOverflowError(size, limit, reported=size)
    found = next((m for pattern in OVERFLOW_TEXTS if (m := pattern.search(said.message))), None)
    if found is None and said.code not in OVERFLOW_CODES:
        return None
    figures = {} if found is None else {name: _figure(text) for name, text in found.groupdict().items()}
    size, limit = figures.get("size"), figures.get("limit")
    total = figures.get("total") or (size + (figures.get("output") or 0) if size is not None else None)
    if total is not None and limit is not None:
        return ContextOverflowError(total, limit, reported=size)
    error = ContextOverflowError(0, 0)
    text = (
        f"The provider says that the request is too long, but not by how much ({clean(said.message, key)}). "
        "Narrow the scope or start a new session, or set the model's window."
    )
    error.args = (text,)
    return error


def _figure(value: Any) -> int | None:
    if isinstance(value, str):
        digits = value.replace(",", "")
        value = int(digits) if digits.isdecimal() and len(digits) <= 12 else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_TOKENS:
        return value
    return None


def _find_error(body: Any) -> ErrorBody:
    """Returns the innermost error that has a message; the outer ones are only wrappings of gateways."""
    best = ErrorBody("", None, {})
    for fields in _errors(body, DEPTH):
        message = next(
            (v for k in ("message", "error", "detail", "msg") if isinstance(v := fields.get(k), str)), ""
        )
        named = (fields.get(k) for k in ("code", "status", "type"))
        code = next((v for v in named if isinstance(v, str) and v not in {"", "error"}), None)
        if message or code:
            best = ErrorBody(message or best.message, code or best.code, fields)
    if not best.message and isinstance(body, bytes | str):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        best = best._replace(message="" if text.lstrip()[:1] == "<" else text)
    return best


def _errors(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yields the objects that may report an error, from the outermost to the innermost."""
    if depth == 0:
        return
    if isinstance(value, bytes | str):
        value = _parse_json(value)
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    if not isinstance(value, dict):
        return
    yield value
    for name in ("response", "error", "metadata", "raw", "message", "detail"):
        yield from _errors(value.get(name), depth - 1)


def _parse_json(text: bytes | str) -> Any:
    """Returns the JSON in a text, which may have words before it, or None."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    starts = [n for n in (text.find("{"), text.find("[{")) if n >= 0]
    if not starts:
        return None
    try:
        return orjson.loads(text[min(starts) : max(text.rfind("}"), text.rfind("]")) + 1])
    except orjson.JSONDecodeError:
        return None
