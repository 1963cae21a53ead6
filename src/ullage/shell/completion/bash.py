"""Completions that bash itself offers: options, subcommands, targets, variables, and those of the user."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ullage.shell.completion.paths import MOST, escape_name, is_harmless
from ullage.shell.prompt import Suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.terminal import Runner

_VARIABLE = re.compile(r"\$(\{?)(\w*)\Z")
_QUOTED = re.compile(r"""["'\\$`*?\[]""")


def variables(runner: Runner, word: str) -> Sequence[Suggestion]:
    """Returns the variables whose names begin with the end of a word such as `$HO`; none without a `$`."""
    found = _VARIABLE.search(word)
    if found is None or word.count("'") % 2 or word[: found.start()].endswith("\\"):
        return ()
    end = "}" if found[1] else ""
    names = sorted(runner.variables(found[2]))[:MOST]
    return [Suggestion(name + end, len(found[2]), display=f"${name}") for name in names]


def arguments(runner: Runner, words: Sequence[str], word: str) -> Sequence[Suggestion]:
    """Returns the words that bash offers after `words` and that begin with `word`."""
    if not words or _QUOTED.search(word):
        return ()
    answer, typed = runner.complete(" ".join([*words, word]), [*words, word])
    texts = [each for each in answer.texts if each.startswith(typed) and is_harmless(each)][:MOST]
    are_files = "filenames" in answer.options
    alone = len(texts) == 1 and "nospace" not in answer.options
    return [_make_suggestion(runner, typed, text, is_file=are_files, alone=alone) for text in texts]


def _make_suggestion(runner: Runner, typed: str, text: str, *, is_file: bool, alone: bool) -> Suggestion:
    shown = text.rstrip()
    if is_file:
        home = runner.environ.get("HOME", "~")
        place = os.path.join(home, text[2:]) if text.startswith("~/") else text  # noqa: PTH118 - keeps a slash
        enters = (runner.cwd / place).is_dir() and not text.endswith("/")
        shown = text.rstrip("/").rpartition("/")[2] + ("/" if enters or text.endswith("/") else "")
        text = typed + escape_name(text[len(typed) :], start=not typed) + ("/" if enters else "")
    ends = alone and not text.endswith(("/", "=", " "))
    return Suggestion(text + " " if ends else text, len(typed), display=shown)
