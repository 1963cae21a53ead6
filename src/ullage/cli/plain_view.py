"""Prints results of `count`, `fit` and `explain` as plain text, if rich is not installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ullage.batch.source import STDIN
from ullage.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ullage.batch.fitted_request import LineFit
    from ullage.batch.job import Job
    from ullage.batch.outcome import Outcome
    from ullage.cli.verdicts import MessageVerdict
    from ullage.errors import ContextOverflowError


class PlainResults:
    """Prints two lines for each result, and a total if there are several."""

    def __init__(self, job: Job) -> None:
        self._after = "tokens" if job.command == "count" else "tokens_after"
        self._describe = _describe_count if job.command == "count" else _describe_fit
        self._blocks = "breakdown" if job.command == "count" else "after"
        self._requests = self._tokens = 0

    def show(self, done: Outcome) -> None:
        """Prints the next result; a bad request is reported on standard error instead."""
        self._requests += 1
        if done.problem:
            return
        self._tokens += done.result[self._after]
        _title(done.source, done.name, done.model, self._describe(done.result))
        _print(f"  {_blocks(done.result[self._blocks])}")

    def end(self) -> None:
        """Prints the total."""
        if self._requests > 1:
            _print(f"{self._requests:,} requests · {self._tokens:,} tokens")


def _describe_count(found: Mapping[str, Any]) -> str:
    most = "" if found["exact"] else f", at most {found['ceiling']:,}"
    window = "" if found["window"] is None else f", window {found['window']:,}"
    return f"{found['tokens']:,} tokens{most}{window}"


def _describe_fit(found: Mapping[str, Any]) -> str:
    figures = f"{found['tokens_before']:,} → {found['tokens_after']:,} tokens, limit {found['limit']:,}"
    return f"{figures} · {describe_changes(found)}"


def describe_changes(found: Mapping[str, Any]) -> str:
    """Returns the number of changed messages in words."""
    if not found["changed"]:
        return "fits unchanged"
    messages = "message" if found["dropped"] == 1 else "messages"
    return f"{found['dropped']:,} {messages} evicted, {found['truncated']:,} shortened"


def print_explanation(
    source: str, line: LineFit, reasons: Sequence[MessageVerdict], digest: str, conclusion: str
) -> None:
    """Prints a row for each message, the conclusion, and the digest."""
    name = line.name
    _title(source, "" if name is None else str(name), line.model, f"limit {line.done.limit:,} tokens")
    for each in reasons:
        tokens = f"{each.tokens_before:,}"
        if each.tokens_after != each.tokens_before:
            tokens += f" → {each.tokens_after:,}"
        _print(f"{each.index:>4} {each.role:<10} {tokens:>16}  {each.what}: {each.why}")
    _print(conclusion)
    for quoted in digest.splitlines():
        _print(f"  {quoted}")


def print_overflow(error: ContextOverflowError) -> None:
    """Prints the blocks that must be sent, compared with the limit."""
    _print(f"The part that must be sent does not fit into {error.limit:,} tokens:")
    _print(f"  {_blocks(error.breakdown)}")


def _title(source: str, *parts: str) -> None:
    file = "standard input" if source == STDIN else source
    _print(" · ".join(" ".join(part.split()) for part in (file, *parts) if part))


def _blocks(blocks: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {tokens:,}" for name, tokens in blocks.items() if tokens)


def _print(line: str) -> None:
    """Prints a line without control characters, and `?` for what the output's encoding cannot write."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(printable(line).encode(encoding, "replace").decode(encoding) + "\n")
