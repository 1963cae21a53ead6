"""A strict model server on loopback, which leads an agent through a loop of tool calls.

    with strict_server() as server:
        ...                # server.url is the address; the agent has the tool `read_page`
    server.report()        # finished, overflows, invalid requests, steps

It speaks OpenAI's chat completions and responses and Anthropic's messages, streamed or not. It refuses a
request that is over its window of 8,192 tokens, and one that the real API would not accept. At each step the
model asks for a page; each page has some hundreds of tokens, and every sixth a code word. The results of the
last calls must stand at the end of the next request. The test needs `pytest.mark.enable_socket`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.player import playing, sent_json
from tests.strict_answers import (
    TOOL,
    Answer,
    PageCall,
    chat_answer,
    messages_answer,
    refusal,
    response_items,
    responses_answer,
)
from tests.strict_rules import Reading, Refused, need, read_chat, read_messages, read_responses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.player import Request, Script

WINDOW = 8_192
"""Most tokens of a request and its answer."""
STEPS = 60
SYSTEM = "You read the logbook of a harbour, one page at a time, and remember its code words."
TASK = "Read every page of the logbook with read_page. Then tell me all code words that you found."
DONE = "I have read the whole logbook."
APIS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
ANSWERS = {"chat": chat_answer, "responses": responses_answer, "messages": messages_answer}


def read_page(page: int) -> str:
    """Reads a page of the logbook."""
    lines = [
        f"{hour:02}:{(page * 7 + hour * 11) % 60:02} berth {(page + hour) % 40}: boat "
        f"B-{page * 24 + hour:04} paid {(page * 31 + hour * 17) % 900} crowns, "
        f"draught {(page + hour) % 5}.{hour % 10} m"
        for hour in range(14)
    ]
    if word := code_word(page):
        lines.insert(7, f"code_word={word}")
    return f"Page {page} of the logbook\n" + "\n".join(lines)


def code_word(page: int) -> str | None:
    """The code word of a page; every sixth has one."""
    return f"KELP-{page * 7919 % 10_000:04}" if page % 6 == 3 else None


def pages_of(step: int, *, pairs: bool = True) -> list[int]:
    """The pages that the model asks for at a step: one, and at every tenth step two."""
    return [step, 1_000 + step] if pairs and step % 10 == 9 else [step]


@dataclass(frozen=True)
class Report:
    """How a loop went."""

    finished: bool
    overflows: int
    invalid: tuple[str, ...]
    """The reason of each refusal that was not for the size."""
    steps: int
    """Steps that the model made."""
    words: int
    """Code words that the last request still had."""
    largest: int
    """Tokens of the largest request that was accepted."""


class StrictServer:
    """The model of one conversation. `bodies` has each request that was accepted."""

    def __init__(
        self, *, steps: int = STEPS, pairs: bool = True, window: int = WINDOW, lone_thoughts: bool = False
    ) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self._window, self._steps, self._pairs, self._lone_thoughts = window, steps, pairs, lone_thoughts
        self._step = 0
        self._finished = False
        self._overflows = 0
        self._invalid: list[str] = []
        self._largest = 0
        self._open: list[str] = []
        self._signatures: set[str] = set()
        self._sealed: dict[str, str] = {}
        self._texts: list[str] = []

    def report(self) -> Report:
        words = [word for page in range(self._steps) if (word := code_word(page))]
        seen = "\n".join(self._texts)
        kept = sum(word in seen for word in words)
        return Report(self._finished, self._overflows, tuple(self._invalid), self._step, kept, self._largest)

    def answer(self, request: Request) -> Script:
        """Answers a request, or refuses it."""
        path = request.path.partition("?")[0]
        api = next((api for end, api in APIS.items() if path.endswith(end)), None)
        if api is None:
            return sent_json({"error": {"message": f"no such route: {path}"}}, status=404)
        body = request.json()
        try:
            reading = self._read(api, body)
            need(reading.newest == self._open or not self._open, f"{reading.newest} for {self._open}")
        except (Refused, KeyError, TypeError) as error:
            self._invalid.append(f"{api}: {error!r}")
            return refusal(api, str(error))
        most = body.get("max_tokens") or body.get("max_completion_tokens") or body.get("max_output_tokens")
        if reading.tokens + (most or 0) > self._window:
            self._overflows += 1
            told = f"prompt is too long: {reading.tokens} tokens, {most or 0} for the answer > {self._window}"
            return refusal(api, told, "context_length_exceeded")
        self.bodies.append(body)
        self._largest = max(self._largest, reading.tokens)
        self._texts = reading.texts
        return ANSWERS[api](self._next(api, body, reading.tokens), stream=bool(body.get("stream")))

    def _read(self, api: str, body: dict[str, Any]) -> Reading:
        if api == "chat":
            return read_chat(body)
        if api == "responses":
            return read_responses(body, self._sealed)
        return read_messages(body, self._signatures)

    def _next(self, api: str, body: dict[str, Any], tokens: int) -> Answer:
        """The next step of the loop, or its end."""
        number, model = len(self.bodies), body["model"]
        if self._step == self._steps:
            self._finished, self._open = True, []
            return Answer(number, model, DONE, tokens=tokens)
        pages = pages_of(self._step, pairs=self._pairs)
        calls = [PageCall(f"call_{page:04}", page) for page in pages]
        self._step += 1
        self._open = [call.id for call in calls]
        thinks = self._step % 7 == 0 and (
            "reasoning.encrypted_content" in (body.get("include") or ())
            or (body.get("thinking") or {}).get("type") == "enabled"
        )
        thought = f"thought {self._step}" if thinks else None
        says = self._step % 3 == 0 and not (thinks and self._lone_thoughts)
        text = f"Now page {pages[0]}." if says else ""
        answer = Answer(number, model, text, calls, thought, tokens)
        if thought is not None:
            self._signatures.add(f"signed-{thought}")
            if api == "responses":
                first, second, *_ = response_items(answer)
                self._sealed[second["id"]] = first["id"]
        return answer


@contextlib.contextmanager
def strict_server(
    *, steps: int = STEPS, pairs: bool = True, window: int = WINDOW, lone_thoughts: bool = False
) -> Iterator[StrictServer]:
    """A running server; `url` is the address without the path `/v1`.

    With `lone_thoughts`, no answer has both a thought and a text.
    """
    server = StrictServer(steps=steps, pairs=pairs, window=window, lone_thoughts=lone_thoughts)
    with playing(server.answer) as player:
        server.url = player.url
        yield server


CHAT_TOOL = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Reads a page of the logbook.",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
    },
}
"""The tool in the format of chat completions."""
