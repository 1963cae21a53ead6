"""A server on loopback whose tokenizer is three times as fine as ours, and which counts what it is sent.

with fine_server() as server:
    ...              # server.url; server.charged has the tokens of each request, by its own count
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from tests.player import Script, answered, playing, sent_json
from ullage.tokens import counter_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.player import Player, Request

FINE = 3
MESSAGE, REQUEST = 5, 3
"""Its framing."""


def fine_count(text: str) -> int:
    return FINE * counter_for("gpt-4o").text(text).tokens


@dataclass(slots=True)
class FineServer:
    """What it does, and what it was asked."""

    template: int = 0
    """Tokens that its template puts in front of each request."""
    counts_texts: bool = True
    """Whether it has /tokenize; a test may change it in the middle."""
    counts_requests: bool = True
    """Whether it has llama.cpp's way to count a whole request."""
    usage: bool = True
    """Whether it tells what a request used."""
    refuses: frozenset[str] = frozenset()
    """Models for which it does not count texts."""
    answer: str = "The heron sails at noon with seven crates of salted herring, and the pilot stays ashore."
    player: Player = field(init=False)
    charged: list[int] = field(default_factory=list)
    """The tokens of each request that was answered."""
    sent: list[dict[str, Any]] = field(default_factory=list)
    """Those requests."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """The model and the text of each question to /tokenize, in order."""
    wholes: list[int] = field(default_factory=list)
    """The count of each request that was counted as a whole."""

    @property
    def url(self) -> str:
        return self.player.url

    def play(self, request: Request) -> Script:
        if request.path == "/tokenize":
            return self._tokenize(request.json())
        if request.path == "/v1/chat/completions/input_tokens" and self.counts_requests:
            self.wholes.append(self.count(request.json()))
            return sent_json({"input_tokens": self.wholes[-1]})
        if request.path == "/v1/chat/completions":
            self.sent.append(request.json())
            self.charged.append(self.count(self.sent[-1]))
            body = answered(f"{self.answer} That is answer {len(self.sent)}.", self.charged[-1], 20)
            return Script(body=body if self.usage else body.replace(b'"usage"', b'"unused"'))
        return sent_json({"error": {"message": "no such path"}}, 404)

    def count(self, body: dict[str, Any]) -> int:
        tokens = REQUEST + self.template
        for message in body["messages"]:
            tokens += MESSAGE + fine_count(message.get("content") or "")
            for call in message.get("tool_calls") or ():
                tokens += MESSAGE + fine_count(call["function"]["name"])
                tokens += fine_count(call["function"]["arguments"])
        return tokens + (fine_count(orjson.dumps(body["tools"]).decode()) if body.get("tools") else 0)

    def _tokenize(self, body: dict[str, Any]) -> Script:
        if "content" not in body:
            return sent_json({"error": {"message": "content is missing"}}, 400)
        self.texts.append((body["model"], body["content"]))
        if not self.counts_texts or body["model"] in self.refuses:
            return sent_json({"error": {"message": "no tokenizer"}}, 500)
        return sent_json({"tokens": list(range(fine_count(body["content"])))})


@contextlib.contextmanager
def fine_server(**more: Any) -> Iterator[FineServer]:
    """A running server."""
    server = FineServer(**more)
    with playing(server.play) as player:
        server.player = player
        yield server
