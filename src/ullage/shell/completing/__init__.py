"""What Tab offers: the shell's own commands and what they take, classes of questions, programs, and paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.broker.about import EMBEDDED
from ullage.drawing import clean, short
from ullage.errors import UllageError
from ullage.shell.commands import COMMANDS
from ullage.shell.completing.lines import line_of
from ullage.shell.completing.paths import is_harmless, plain_paths
from ullage.shell.prompt import Suggestion
from ullage.shell.routing import classes
from ullage.shell.showing import said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ullage.shell.loop import Shell
    from ullage.shell.running import Runner

LONGEST = 100_000
"""In a longer input nothing is completed: it was pasted."""
NOTE = 60

_ALTERNATIVE = re.compile(r"(?:^|\|)\[?([a-z][a-z-]*)\b")
_RUNS_ON = re.compile(r"connect\s+\S+\s+(.*)", re.DOTALL)


def complete(shell: Shell, text: str) -> Sequence[Suggestion]:
    """What may stand in the place of the last word before the cursor; nothing where that cannot be read."""
    if len(text) > LONGEST:
        return ()
    try:
        found = list(_found(shell, text.lstrip()))
    except (OSError, UllageError):  # a folder or a store that is not to be read, which its command will say
        return ()
    return [each for each in found if is_harmless(each.text)]


def _found(shell: Shell, text: str) -> Iterable[Suggestion]:
    mark = text[:1]
    name, *more = _words(text[1:])
    if mark in {":", "/"} and more and name in COMMANDS:
        return _arguments(shell, name, text[1 + len(name) :].lstrip())
    if mark in {":", "/"} and not more:
        metas = _choices(name, ((each, command.help) for each, command in COMMANDS.items()))
        if metas or mark == ":":
            return metas
    if mark == ":":
        return ()
    if mark in {"?", "@"}:
        return _question(shell, text.removeprefix("?").lstrip())
    found = list(line_of(shell.runner, text.removeprefix("!")))
    first = text.split(maxsplit=1)[:1]
    if found or mark == "!" or not first or shell.runner.resolves(first[0]):
        return found
    return _prose(shell.runner, _words(text)[-1])


def _question(shell: Shell, text: str) -> Iterable[Suggestion]:
    """In a question: the class that it is asked in, at its beginning, or a path."""
    word = _words(text)[-1]
    if not text.startswith("@") or word != text:
        return _prose(shell.runner, word)
    routing = shell.desk.settings.routing
    return _choices(word, ((f"@{each}", routing.models.get(each, "")) for each in classes(routing)))


def _prose(runner: Runner, word: str) -> Iterable[Suggestion]:
    return plain_paths(runner, word) if word else ()


def _words(text: str) -> list[str]:
    """The words of a text; the last one is empty after a blank."""
    return re.split(r"\s+", text)


def _choices(word: str, pairs: Iterable[tuple[str, str]]) -> list[Suggestion]:
    """Those of the texts, each with its note, that begin with the word."""
    return [
        Suggestion(text, len(word), note=short(clean(note), NOTE))
        for text, note in pairs
        if text.startswith(word)
    ]


# What the commands of the shell itself take ---------------------------------------------------------------


def _arguments(shell: Shell, name: str, rest: str) -> Iterable[Suggestion]:
    """The alternatives that the command's usage names, and what its row in the table finds."""
    if len(_words(rest)) == 1:
        yield from _choices(rest, ((each, "") for each in alternatives(COMMANDS[name].usage)))
    if name in ARGUMENTS:
        yield from ARGUMENTS[name](shell, rest)


def alternatives(usage: str) -> Sequence[str]:
    """The words of a usage that are typed as they stand there: `[DEPTH]|refresh|off` has two."""
    return _ALTERNATIVE.findall(usage)


def _commands(_: Shell, rest: str) -> Iterable[Suggestion]:
    mark = rest[:1] if rest[:1] in {":", "/"} else ""
    return _choices(rest, ((mark + name, command.help) for name, command in COMMANDS.items()))


def _models(shell: Shell, rest: str) -> Iterable[Suggestion]:
    models = shell.desk.settings.models
    own = () if EMBEDDED in models else ((EMBEDDED, "comes with Ullage"),)
    return _choices(
        rest, (*own, *((name, each.endpoint or each.model or "") for name, each in models.items()))
    )


def _remembered(shell: Shell, rest: str) -> Iterable[Suggestion]:
    *before, word = _words(rest)
    items = shell.desk.context.memory if before == ["forget"] else ()
    return _choices(word, ((str(item.number), item.content) for item in items))


def _servers(shell: Shell, rest: str) -> Iterable[Suggestion]:
    *before, word = _words(rest)
    if before == ["connect"]:
        configured = shell.desk.settings.mcp
        return _choices(word, ((name, each.command or each.url or "") for name, each in configured.items()))
    if before == ["disconnect"]:
        listed = (line.partition(":") for line in shell.servers_in_lines())
        return _choices(word, ((name, state.strip()) for name, _, state in listed))
    runs = _RUNS_ON.match(rest)
    return () if runs is None else line_of(shell.runner, runs[1])


def _sessions(shell: Shell, rest: str) -> Iterable[Suggestion]:
    return _choices(rest, ((each.id[:12], each.title) for each in shell.desk.kept.sessions()))


def _handles(shell: Shell, rest: str) -> Iterable[Suggestion]:
    context = shell.desk.context
    turns = context.turns
    pairs = ((each.handle, f"{each.kind}: {said(turns[each.index])}") for each in context.changes)
    return _choices(rest, dict(pairs).items())


def _file(shell: Shell, rest: str) -> Iterable[Suggestion]:
    return plain_paths(shell.runner, rest)


ARGUMENTS: Mapping[str, Callable[[Shell, str], Iterable[Suggestion]]] = {
    "help": _commands,
    "model": _models,
    "memory": _remembered,
    "mcp": _servers,
    "resume": _sessions,
    "recall": _handles,
    "export": _file,
}
"""command → what completes the text after it, beside the alternatives that its usage names."""
