"""Completion with Tab: meta commands and their arguments, question categories, programs and paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.broker.embedded_info import EMBEDDED
from ullage.errors import UllageError
from ullage.session.allowances import list_allowances
from ullage.session.routes import categories
from ullage.shell.commands import COMMANDS
from ullage.shell.completion.lines import line_of
from ullage.shell.completion.paths import is_harmless, plain_paths
from ullage.shell.prompt import Suggestion
from ullage.shell.views import describe_turn
from ullage.text import one_line
from ullage.window_chart import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ullage.shell.workplace import Workplace
    from ullage.terminal import Runner

LONGEST = 100_000
"""The most characters of an input that is completed; a longer one was pasted."""
NOTE = 60
"""The most columns of the explanation beside a completion."""

_ALTERNATIVE = re.compile(r"(?:^|\|)\[?([a-z][a-z-]*)\b")
_RUNS_ON = re.compile(r"connect\s+\S+\s+(.*)", re.DOTALL)


def complete(workplace: Workplace, text: str) -> Sequence[Suggestion]:
    """Returns the completions of the last word before the cursor; none if a folder or store is unreadable."""
    if len(text) > LONGEST:
        return ()
    try:
        found = list(_find_suggestions(workplace, text.lstrip()))
    except (OSError, UllageError):  # the command itself will report the unreadable folder or store
        return ()
    return [each for each in found if is_harmless(each.text)]


def _find_suggestions(workplace: Workplace, text: str) -> Iterable[Suggestion]:
    mark = text[:1]
    name, *more = _words(text[1:])
    if mark in {":", "/"} and more and name in COMMANDS:
        return _arguments(workplace, name, text[1 + len(name) :].lstrip())
    if mark in {":", "/"} and not more:
        metas = _choices(name, ((each, command.help) for each, command in COMMANDS.items()))
        if metas or mark == ":":
            return metas
    if mark == ":":
        return ()
    if mark in {"?", "@"}:
        return _question(workplace, text.removeprefix("?").lstrip())
    found = list(line_of(workplace.runner, text.removeprefix("!")))
    first = text.split(maxsplit=1)[:1]
    if found or mark == "!" or not first or workplace.runner.resolves(first[0]):
        return found
    return _prose(workplace.runner, _words(text)[-1])


def _question(workplace: Workplace, text: str) -> Iterable[Suggestion]:
    """Returns completions in a question: a category after @ at its beginning, elsewhere paths."""
    word = _words(text)[-1]
    if not text.startswith("@") or word != text:
        return _prose(workplace.runner, word)
    routing = workplace.chat.settings.routing
    return _choices(word, ((f"@{each}", routing.models.get(each, "")) for each in categories(routing)))


def _prose(runner: Runner, word: str) -> Iterable[Suggestion]:
    return plain_paths(runner, word) if word else ()


def _words(text: str) -> list[str]:
    """Splits a text into words; the last word is empty if the text ends with a blank."""
    return re.split(r"\s+", text)


def _choices(word: str, pairs: Iterable[tuple[str, str]]) -> list[Suggestion]:
    """Returns a completion for each text that begins with the word; `pairs` are texts and their notes."""
    return [
        Suggestion(text, len(word), note=short(one_line(note), NOTE))
        for text, note in pairs
        if text.startswith(word)
    ]


# Arguments of meta commands --------------------------------------------------------------------------------


def _arguments(workplace: Workplace, name: str, rest: str) -> Iterable[Suggestion]:
    """Yields the fixed words in the command's usage, and the completions of its function in ARGUMENTS."""
    if len(_words(rest)) == 1:
        yield from _choices(rest, ((each, "") for each in alternatives(COMMANDS[name].usage)))
    if name in ARGUMENTS:
        yield from ARGUMENTS[name](workplace, rest)


def alternatives(usage: str) -> Sequence[str]:
    """Returns the words of a usage that are typed literally: `[DEPTH]|refresh|off` has refresh and off."""
    return _ALTERNATIVE.findall(usage)


def _commands(_: Workplace, rest: str) -> Iterable[Suggestion]:
    mark = rest[:1] if rest[:1] in {":", "/"} else ""
    return _choices(rest, ((mark + name, command.help) for name, command in COMMANDS.items()))


def _models(workplace: Workplace, rest: str) -> Iterable[Suggestion]:
    models = workplace.chat.settings.models
    own = () if EMBEDDED in models else ((EMBEDDED, "comes with Ullage"),)
    return _choices(
        rest, (*own, *((name, each.endpoint or each.model or "") for name, each in models.items()))
    )


def _suggest_memory(workplace: Workplace, rest: str) -> Iterable[Suggestion]:
    *before, word = _words(rest)
    items = workplace.chat.context.memory if before == ["forget"] else ()
    return _choices(word, ((str(item.number), item.content) for item in items))


def _allowances(workplace: Workplace, rest: str) -> Iterable[Suggestion]:
    *before, word = _words(rest)
    kept = list_allowances(workplace.chat.kept.preferences) if before == ["forget"] else ()
    return _choices(word, ((str(each.number), each.text) for each in kept))


def _servers(workplace: Workplace, rest: str) -> Iterable[Suggestion]:
    *before, word = _words(rest)
    if before == ["connect"]:
        configured = workplace.chat.settings.mcp
        return _choices(word, ((name, each.command or each.url or "") for name, each in configured.items()))
    if before == ["disconnect"]:
        listed = (line.partition(":") for line in workplace.tools.lines())
        return _choices(word, ((name, state.strip()) for name, _, state in listed))
    runs = _RUNS_ON.match(rest)
    return () if runs is None else line_of(workplace.runner, runs[1])


def _sessions(workplace: Workplace, rest: str) -> Iterable[Suggestion]:
    return _choices(rest, ((each.id[:12], each.title) for each in workplace.chat.kept.sessions()))


def _handles(workplace: Workplace, rest: str) -> Iterable[Suggestion]:
    context = workplace.chat.context
    turns = context.turns
    pairs = ((each.handle, f"{each.kind}: {describe_turn(turns[each.index])}") for each in context.changes)
    return _choices(rest, dict(pairs).items())


def _file(workplace: Workplace, rest: str) -> Iterable[Suggestion]:
    return plain_paths(workplace.runner, rest)


ARGUMENTS: Mapping[str, Callable[[Workplace, str], Iterable[Suggestion]]] = {
    "help": _commands,
    "model": _models,
    "memory": _suggest_memory,
    "always": _allowances,
    "mcp": _servers,
    "resume": _sessions,
    "recall": _handles,
    "export": _file,
}
"""Meta command → function that completes its arguments, in addition to the fixed words of its usage."""
