"""Asks one question from the command line: streams the answer, saves the turn and books its cost."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage import store
from ullage.batch.request_text import encode
from ullage.broker.embedded_info import ABOUT, EMBEDDED
from ullage.broker.events import Finished, Text
from ullage.cli.complaint import complain
from ullage.cli.exit_codes import code_of
from ullage.errors import ConfigurationError, NotBooked, NotSaved, UllageError
from ullage.patience import GRACE, limit_waiting, patiently
from ullage.session.model_choice import choose_model
from ullage.session.secrets import mask
from ullage.session.setup import SessionOptions, open_single_turn
from ullage.session.trust import load_trusted
from ullage.text import remove_unsafe
from ullage.tokens import RemoteTokenizer
from ullage.turn import SHORT_ANSWER, AnswerShortened, Settled

if TYPE_CHECKING:
    from argparse import Namespace

    from ullage.context import Context
    from ullage.session.model_pool import OpenModel
    from ullage.store import Store

PROMPT = "You are a helpful assistant. Answer briefly and to the point."


def ask(options: Namespace) -> int:
    """Asks the question, prints the answer as it arrives, and returns the exit code."""
    question = _question(options.question)
    try:
        with store.open(options.store) as kept:
            return asyncio.run(_ask(*question, options, kept))
    except NotBooked as error:  # raised when the store was closed; the answer is already printed
        sys.stderr.write(f"ullage: {error}\n")
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        return code_of(error)
    except UllageError as error:
        if options.json:
            sys.stdout.buffer.write(encode({"error": _error(error)}))
        else:
            complain(str(error))
        return code_of(error)


def _error(error: UllageError) -> dict[str, str]:
    return {"type": type(error).__name__, "message": str(error)}


def _question(words: list[str]) -> tuple[str, str]:
    """Returns the words of the command line, and the piped input."""
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    if not (" ".join(words) + piped).strip():
        raise ConfigurationError('the question is empty. Try: ullage ask "How long is the Nile?"')
    return " ".join(words), piped


def _mask(piped: str) -> str:
    """Returns piped input without what looks like a secret, and tells the user if something was masked."""
    masked = mask(piped)
    if masked.found:
        complain(
            f"masked in the piped input: {', '.join(masked.found)} (shell.mask_secrets = false sends all)"
        )
    return masked.text


async def _ask(words: str, piped: str, options: Namespace, kept: Store) -> int:
    folder = Path.cwd()
    settings = load_trusted(options.config, kept.preferences, os.environ, folder)
    model, notice = choose_model(settings, kept.preferences, options.model)
    for each in filter(None, (*settings.notices, notice)):
        complain(each)
    piped = _mask(piped) if settings.shell.mask_secrets else piped
    question = "\n\n".join(filter(str.strip, (words, piped)))
    question = question.encode("utf-8", "replace").decode()  # invalid bytes cannot be sent as text
    choices = SessionOptions(
        session=options.session,
        project=folder.name if options.project is None else options.project,
        window=options.window,
        max_output=options.max_output,
        cap_at_dollars=options.cap,
    )
    prompt = PROMPT if options.system is None else options.system
    opening = open_single_turn(model, settings, kept, os.environ, choices, system_prompt=prompt)
    async with opening as (open_model, context):
        if model.name == EMBEDDED and sys.stderr.isatty():
            sys.stderr.write(f"{ABOUT}\n\n")
        await patiently(partial(context.append_user, question))
        try:
            return await _answer(open_model, context, options)
        finally:
            _save(context)


def _save(context: Context) -> None:
    """Tries again to save an answer that the store failed to save; prints an error if it is lost."""
    try:
        with limit_waiting(GRACE):
            context.save()
    except UllageError as error:
        sys.stderr.write(f"ullage: The answer is not part of the saved conversation: {error}\n")


class _Answer(NamedTuple):
    """A complete answer."""

    text: str
    reason: str
    settled: Settled | None
    unsaved: NotSaved | None
    """The error if the store could not save the answer; the text is complete nevertheless."""


async def _answer(open_model: OpenModel, context: Context, options: Namespace) -> int:
    """Prints the answer, as it arrives or as one JSON object at the end, and returns the exit code."""
    answer = await _stream(open_model, context, is_shown=not options.json)
    settled, unsaved = answer.settled, answer.unsaved
    if options.json and settled is not None:
        failed = {} if unsaved is None else {"error": _error(unsaved)}
        sys.stdout.buffer.write(encode(_as_json(answer.text, answer.reason, settled, context) | failed))
    for warning in settled.warnings if settled else ():
        complain(warning.text)
    if answer.reason == "length" and not options.json:
        complain("the answer was cut off at its maximum length. --max-output N allows a longer one")
    if unsaved is not None:
        complain(str(unsaved))
    return 0 if unsaved is None else code_of(unsaved)


async def _stream(open_model: OpenModel, context: Context, *, is_shown: bool) -> _Answer:
    """Asks the model and returns the answer; prints it as it arrives if `is_shown`."""
    texts: list[str] = []
    reason, settled, ended = "", None, True
    unsaved: NotSaved | None = None
    stream = open_model.client.stream(context, compress=open_model.compress)
    async with aclosing(stream) as events:  # type: ignore[type-var]
        try:
            async for event in events:
                if isinstance(event, Text):
                    texts.append(event.text)
                    if is_shown:
                        ended = event.text.endswith("\n")
                        _print(event.text)
                elif isinstance(event, Finished):
                    reason = event.reason
                elif isinstance(event, AnswerShortened) and event.tokens < SHORT_ANSWER:
                    complain(f"the cap leaves room for an answer of at most {event.tokens:,} tokens")
                elif isinstance(event, Settled):
                    settled = event
        except NotSaved as error:
            if settled is None:  # the answer is also incomplete, and the error says so
                raise
            unsaved = error
        finally:
            if not ended:
                _print("\n")
    return _Answer("".join(texts), reason, settled, unsaved)


def _print(text: str) -> None:
    """Writes a text and flushes it; a terminal gets no control characters."""
    if sys.stdout.isatty():
        text = remove_unsafe(text)
    sys.stdout.write(text.encode("utf-8", "replace").decode())
    sys.stdout.flush()


def _as_json(text: str, reason: str, settled: Settled, context: Context) -> dict[str, Any]:
    usage = settled.usage
    return {
        "text": text,
        "finish": reason,
        "session": context.session,
        "model": context.bounds.target.model,
        "usage": {
            "prompt": usage.prompt,
            "completion": usage.completion,
            "cached_read": usage.cached_read,
            "cache_write": usage.cache_write,
            "reasoning": usage.reasoning,
            "reported": not settled.estimated,
            "estimated": list(settled.estimated),
        },
        "cost": None if settled.cost is None else str(settled.cost),
        "context": {
            "tokens": settled.fitted.count.tokens,
            "limit": settled.fitted.limit,
            "dropped": settled.fitted.dropped,
            "truncated": settled.fitted.truncated,
            "counted_by": "server" if isinstance(context.bounds.tokenizer, RemoteTokenizer) else "ullage",
        },
    }
