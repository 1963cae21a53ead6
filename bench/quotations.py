"""Prompt caches and recall: a quotation that goes with the next question, beside one that stays.

    python -m bench quotations

Each talk of LoCoMo is lived through turn by turn in a window of a fixed size; each message of the user asks.
`goes` is what a Window does: only the newest question has a quotation. `stays` keeps every quotation in its
message until a trim takes the message out. Reuse is the share of a request that the request before it began
with, which is the share that a prompt cache does not charge again in full.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import ullage
from bench.shared import data
from ullage.messages import split_recalled, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODEL = "gpt-4o"
LIMITS = (8_000,)
TALKS = 2
SYSTEM = {"role": "system", "content": "You are a friend with a good memory."}


@dataclass(slots=True)
class Tally:
    """Tokens of all requests of the talks, and how many of them are of each sort."""

    requests: int = 0
    tokens: int = 0
    reused: int = 0
    quoted: int = 0

    def add(self, before: Sequence[Any], request: Sequence[Any], quoted: int) -> None:
        """Counts one request."""
        self.requests += 1
        self.tokens += ullage.count(request, MODEL).tokens
        self.reused += _common(before, request)
        self.quoted += quoted


def main() -> None:
    """Prints one row a limit and way."""
    talks = list(islice(_talks(), TALKS))
    print(f"{'window':>7} {'quotation':<10} {'requests':>8} {'reuse':>6} {'tokens each':>12} {'quoted':>7}")
    for limit in LIMITS:
        for way, live in (("none", _without), ("goes", _goes), ("stays", _stays)):
            tally = Tally()
            for talk in talks:
                before: Sequence[Any] = ()
                for request, quoted in live(talk, limit):
                    tally.add(before, request, quoted)
                    before = request
            print(
                f"{limit:>7} {way:<10} {tally.requests:>8} {tally.reused / tally.tokens:>6.3f} "
                f"{tally.tokens / tally.requests:>12.0f} {tally.quoted / tally.requests:>7.0f}"
            )


def _without(talk: Sequence[Any], limit: int) -> Iterator[tuple[Sequence[Any], int]]:
    yield from _goes(talk, limit, ullage.FitPolicy(recall_share=0))


def _goes(
    talk: Sequence[Any], limit: int, policy: ullage.FitPolicy | None = None
) -> Iterator[tuple[Sequence[Any], int]]:
    window = ullage.Window(model=MODEL, limit=limit, policy=policy or ullage.FitPolicy())
    for message in talk:
        window.append(message)
        if message["role"] == "user":
            fitted = window.fitted()
            yield fitted.messages, fitted.count.breakdown.get("recalled", 0)


def _stays(talk: Sequence[Any], limit: int) -> Iterator[tuple[Sequence[Any], int]]:
    """Puts each quotation into the history as if it were the user's own words."""
    window = ullage.Window(model=MODEL, limit=limit)
    for message in talk:
        window.append(message)
        if message["role"] != "user":
            continue
        fitted = window.fitted()
        text = text_of(fitted.messages[-1]["content"])
        if split_recalled(text)[0]:
            window.retract()
            window.append({**message, "content": text.replace("[", "(", 1)})
            yield window.fitted().messages, fitted.count.breakdown.get("recalled", 0)
        else:
            yield fitted.messages, 0


def _talks() -> Iterator[list[dict[str, str]]]:
    with gzip.open(data("locomo.json.gz"), "rt", encoding="utf-8") as file:
        records = json.load(file)
    for record in records:
        talk = record["conversation"]
        turns = [SYSTEM]
        number = 1
        while said := talk.get(f"session_{number}"):
            for each in said:
                role = "user" if each["speaker"] == talk["speaker_a"] else "assistant"
                if turns[-1]["role"] == role:
                    text = f"{turns[-1]['content']}\n{each['text']}"
                    turns[-1] = {"role": role, "content": text}
                else:
                    turns.append({"role": role, "content": each["text"]})
            number += 1
        yield turns


def _common(before: Sequence[Any], request: Sequence[Any]) -> int:
    """Tokens of the messages that both begin with, and of the common head of the first that differs."""
    same = 0
    for old, new in zip(before, request, strict=False):
        if old != new:
            head = _common_head(text_of(old["content"]), text_of(new["content"]))
            return same + (_tokens({"role": new["role"], "content": head}) if head else 0)
        same += _tokens(new)
    return same


def _common_head(one: str, other: str) -> str:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(each for each, _ in same)


def _tokens(message: Any) -> int:
    """Tokens of a message alone, without those that every request has."""
    return ullage.count([message], MODEL).tokens - ullage.count([], MODEL).tokens
