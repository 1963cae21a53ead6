"""`ullage ask`: one turn from the command line, streamed, kept and on the bill."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage import store
from ullage.broker.about import ABOUT, EMBEDDED
from ullage.broker.events import Finished, Text
from ullage.cli.codes import code_of
from ullage.cli.reading import encode
from ullage.config import load, trust_in
from ullage.config.seats import seat_for
from ullage.config.using import chosen_model, context_options, ledger_options, meter_options
from ullage.context import Context
from ullage.cost import Ledger
from ullage.errors import ConfigurationError, UllageError
from ullage.tokens.calibration import Calibration
from ullage.turn import Settled
from ullage.usage import Meter

if TYPE_CHECKING:
    from argparse import Namespace

    from ullage.config.seats import Seat
    from ullage.store import Store

WHOLE = {"token_budget": None, "max_turns": None}
"""One question may fill the window: a budget is for conversations that go on all day."""
PROMPT = "You are a helpful assistant. Answer briefly and to the point."


def run(options: Namespace) -> int:
    """Asks, prints the answer as it comes, and returns the exit code."""
    question = _question(options.question)
    try:
        with store.open(options.store) as kept:
            return asyncio.run(_ask(question, options, kept))
    except UllageError as error:
        if options.json:
            told = {"type": type(error).__name__, "message": str(error)}
            sys.stdout.buffer.write(encode({"error": told}))
        else:
            sys.stderr.write(f"ullage: {error}\n")
        return code_of(error)


def _question(words: list[str]) -> str:
    """The words, and what is piped in behind them."""
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    question = "\n\n".join(filter(str.strip, (" ".join(words), piped)))
    if not question:
        raise ConfigurationError('nothing is asked; try: ullage ask "How long is the Nile?"')
    return question.encode("utf-8", "replace").decode()  # what was no text cannot be sent as one


async def _ask(question: str, options: Namespace, kept: Store) -> int:
    folder = Path.cwd()
    settings = load(options.config, environ=os.environ, cwd=folder, trusted=trust_in(kept.preferences))
    model, notice = chosen_model(settings, kept.preferences, options.model)
    for each in filter(None, (*settings.notices, notice)):
        sys.stderr.write(f"ullage: {each}\n")
    if options.window:
        model = replace(model, window=options.window)
    session = options.session or uuid.uuid4().hex
    project = folder.name if options.project is None else options.project
    caps = ledger_options(settings) | ({} if options.cap is None else {"cap_at_dollars": options.cap})
    seat = await seat_for(
        model,
        settings,
        environ=os.environ,
        ledger=Ledger(book=kept.book, session=session, project=project, **caps),
        calibration=Calibration(kept.calibration),
        max_output=options.max_output,
    )
    if model.name == EMBEDDED and sys.stderr.isatty():
        sys.stderr.write(f"{ABOUT}\n\n")
    try:
        context = Context.resume(
            session,
            kept.journal,
            **{**context_options(settings, model), **seat.held, **WHOLE},
            system_prompt=PROMPT if options.system is None else options.system,
            meter=Meter(**meter_options(settings)),
        )
        context.append_user(question)
        await _answer(seat, context, options)
    finally:
        await seat.close()
    return 0


async def _answer(seat: Seat, context: Context, options: Namespace) -> None:
    """Prints the answer: as it comes, or as one object at its end."""
    texts: list[str] = []
    reason, settled, ended = "", None, True
    stream = seat.client.stream(context, compress=seat.compress)
    async with aclosing(stream) as events:  # type: ignore[type-var]
        try:
            async for event in events:
                if isinstance(event, Text):
                    texts.append(event.text)
                    if not options.json:
                        ended = event.text.endswith("\n")
                        _print(event.text)
                elif isinstance(event, Finished):
                    reason = event.reason
                elif isinstance(event, Settled):
                    settled = event
        finally:
            if not ended:
                _print("\n")
    if options.json and settled is not None:
        sys.stdout.buffer.write(encode(_told("".join(texts), reason, settled, context)))
    for warning in settled.warnings if settled else ():
        sys.stderr.write(f"ullage: {warning.text}\n")
    if reason == "length" and not options.json:
        sys.stderr.write("ullage: the answer was cut off at its longest; --max-output allows a longer one\n")


def _print(text: str) -> None:
    """Writes at once; on a terminal without what could move the cursor."""
    if sys.stdout.isatty():
        text = "".join(each for each in text if each.isprintable() or each in "\n\t")
    sys.stdout.write(text.encode("utf-8", "replace").decode())
    sys.stdout.flush()


def _told(text: str, reason: str, settled: Settled, context: Context) -> dict[str, Any]:
    usage = settled.usage
    return {
        "text": text,
        "finish": reason,
        "session": context.session,
        "model": context.bounds.model,
        "usage": {
            "prompt": usage.prompt,
            "completion": usage.completion,
            "cached_read": usage.cached_read,
            "cache_write": usage.cache_write,
            "reasoning": usage.reasoning,
            "told": settled.told,
        },
        "cost": None if settled.cost is None else str(settled.cost),
        "context": {
            "tokens": settled.fitted.count.tokens,
            "limit": settled.fitted.limit,
            "dropped": settled.fitted.dropped,
            "truncated": settled.fitted.truncated,
        },
    }
