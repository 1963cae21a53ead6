"""Asks bash for completions, with a time limit; see `complete.bash`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from ullage.terminal.protocol import encode_text, new_nonce
from ullage.terminal.user_terminal import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.terminal.bash_process import BashProcess

LIMIT = 2.0
"""Seconds that bash has for an answer."""

_BREAK = re.compile(r"([=:@]+)")
"""Characters in a word at which bash begins a new word, as in `--colour=auto`."""


class Answer(NamedTuple):
    """The completions that bash has found."""

    texts: Sequence[str] = ()
    options: frozenset[str] = frozenset()
    """Names as in `complete -o`: `filenames` if the texts are names of files, `nospace` if a text goes on."""


def ask_words(bash: BashProcess, line: str, words: Sequence[str]) -> tuple[Answer, str]:
    """Returns the completions of the last word of a command, and the part of the word that they replace."""
    pieces = [piece for word in words[:-1] for piece in _BREAK.split(word) if piece]
    last = [piece for piece in _BREAK.split(words[-1]) if piece]
    pieces += last or [""]
    current = "" if last and _BREAK.fullmatch(last[-1]) else pieces[-1]
    return _ask(bash, "words", line, str(len(pieces) - 1), current, *pieces), current


def ask_variables(bash: BashProcess, prefix: str) -> Answer:
    """Returns the names of variables that begin with a text."""
    return _ask(bash, "variables", "", "0", prefix)


def _ask(bash: BashProcess, *question: str) -> Answer:
    nonce = new_nonce().encode()
    if not bash.ask((nonce, *map(encode_text, question))):
        return Answer()
    data, end = b"", time.monotonic() + LIMIT
    begin, done = b"\0%s\0" % nonce, b"\0end %s\0" % nonce
    while done not in data and (left := end - time.monotonic()) > 0:
        data += read(bash.turns.fileno(), within=max(1, int(1000 * left)))
        if bash.poll_status() is not None:
            break
    _, _, answer = data.partition(begin)
    pid, _, rest = answer.partition(b"\0")
    fields, finished, _ = rest.partition(done)
    if not finished:
        _stop(pid, bash)
        return Answer()
    options, *texts = fields.split(b"\0")
    shown = dict.fromkeys(each.decode("utf-8", "replace") for each in texts)
    return Answer([each for each in shown if each], frozenset(options.decode().split()))


def _stop(pid: bytes, bash: BashProcess) -> None:
    """Ends a search that takes too long."""
    with contextlib.suppress(OSError, ValueError):
        number = int(pid)
        group = os.getpgid(number)
        if group == os.getpgid(bash.process.pid):
            os.kill(number, signal.SIGKILL)
        else:
            os.killpg(group, signal.SIGKILL)
