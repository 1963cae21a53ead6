"""The commands `llm ullage`: the limits of models, and the size of a prompt or of a logged conversation."""

from __future__ import annotations

import sys
from typing import Any

from ullage.errors import ConfigurationError, MissingHost, UllageError
from ullage.fitting.budget import limit_for
from ullage.integrations.llm_messages import read_messages
from ullage.tokens import count

try:
    import click
    from llm import UnknownModelError, get_model, get_models, user
except ImportError as error:
    raise MissingHost("llm", "llm>=0.36", str(error)) from error

PREFIX = "ullage/"
"""The beginning of the names of models that fit."""


@click.group(name="ullage")
def group() -> None:
    """Commands of Ullage. The model ullage/NAME is the model NAME with prompts that fit its window."""


@group.command(name="limits")
@click.argument("part", default="")
def show_limits(part: str) -> None:
    """Prints the most input tokens of each model whose name contains PART."""
    names = [model.model_id for model in get_models() if not model.model_id.startswith(PREFIX)]
    for name in sorted(name for name in names if part.lower() in name.lower()):
        click.echo(f"{name}: {_limit_text(name)}")


@group.command(name="count")
@click.argument("text", required=False)
@click.option(
    "-m", "--model", "name", help="Model to count for; by default that of the conversation, or llm's."
)
@click.option("-c", "--continue", "is_last", is_flag=True, help="Count the last conversation of the log.")
@click.option("--cid", help="Count the conversation with this id.")
def show_count(text: str | None, name: str | None, is_last: bool, cid: str | None) -> None:
    """Prints the tokens of TEXT, of the standard input, or of a conversation in the log.

    A conversation is counted with TEXT as its next prompt, if TEXT is given.
    """
    from llm.cli import load_conversation  # noqa: PLC0415 - loads the plugins, of which this is one

    messages: list[Any] = []
    if is_last or cid:
        conversation: Any = load_conversation(cid)
        if conversation is None:
            raise click.ClickException("The log has no conversation yet. Give a text to count.")
        name = name or conversation.model.model_id
        messages = _list_messages(conversation)
    elif text is None:
        text = sys.stdin.read()
    if text:
        messages = [*messages, user(text)]
    model = _find_model_name(name)
    try:
        counted = count(read_messages(messages), model)
    except UllageError as error:
        raise click.ClickException(str(error)) from error
    about = "" if counted.exact else f" (estimated; at most {counted.ceiling:,})"
    tokens = "1 token" if counted.tokens == 1 else f"{counted.tokens:,} tokens"
    click.echo(f"{tokens}{about} for {model}; {_limit_text(model)}")


def _list_messages(conversation: Any) -> list[Any]:
    """Returns all messages of a conversation that was read from the log."""
    if conversation.loaded_messages or not conversation.responses:
        return list(conversation.loaded_messages or ())
    last = conversation.responses[-1]
    return [*last.prompt.messages, *last.messages()]


def _find_model_name(name: str | None) -> str:
    """Returns the full name of a model, without the prefix; None is llm's default model."""
    try:
        found: str = get_model(name).model_id
    except UnknownModelError as error:
        raise click.ClickException(f"{error.args[0]}. llm models lists the models.") from error
    return found.removeprefix(PREFIX)


def _limit_text(name: str) -> str:
    try:
        return f"limit {limit_for(name, None, None):,} tokens"
    except ConfigurationError:
        return "limit not known (give one with -o ullage_limit)"
