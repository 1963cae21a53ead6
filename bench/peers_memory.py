"""The peers' memory classes over one conversation, run by the interpreter that has them.

    python bench/peers_memory.py NAME FILE BUDGET BLOCK SECONDS

FILE has messages in OpenAI's form and what each costs. Prints as JSON the CPU seconds of each BLOCK turns and
every request as places in that list (what is not from there stands whole), each with the place of the last
user message. Turning messages into a peer's own is not timed, as ours are not parsed from anything either.
Needs langchain-core, langchain-classic, llama-index-core and splintr-rs, and nothing of Ullage.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SUMMARY = "The user and the assistant worked on the parser, the cache and the tests of the session."


@functools.cache
def encoder() -> Any:
    """The o200k vocabulary."""
    from splintr import Tokenizer  # noqa: PLC0415 - in the peers' environment alone

    return Tokenizer.from_pretrained("o200k_base")


def encode(text: str) -> list[int]:
    """The tokens of a text."""
    return encoder().encode_ordinary(text) if text else []


def size(text: str) -> int:
    """How many they are."""
    return len(encode(text))


class LangChain:
    """`trim_messages` over a chat history, with OpenAI's framing in its counter."""

    def __init__(self, messages: list[dict[str, Any]], budget: int, _: list[int]) -> None:
        from langchain_core.chat_history import InMemoryChatMessageHistory  # noqa: PLC0415
        from langchain_core.messages import convert_to_messages, trim_messages  # noqa: PLC0415

        self.native = convert_to_messages(messages)
        for place, message in enumerate(self.native):
            message.id = str(place)
        self.history = InMemoryChatMessageHistory()
        self.budget = budget
        self.trim = trim_messages
        self.put(0)

    def put(self, place: int) -> None:
        """Adds the message at this place."""
        self.history.add_message(self.native[place])

    def get(self) -> Any:
        """What to send now."""
        return self.trim(
            self.history.messages,
            max_tokens=self.budget,
            strategy="last",
            token_counter=self.tokens,
            start_on="human",
            include_system=True,
        )

    def tokens(self, messages: list[Any]) -> int:
        """What OpenAI charges: 3 a request, 4 a message with its role, 3 a call, and the texts."""
        total = 3
        for message in messages:
            total += 4 + size(message.content)
            for call in getattr(message, "tool_calls", None) or ():
                total += 3 + size(call["name"]) + size(json.dumps(call["args"]))
        return total

    def places(self, sent: Any) -> list[Any]:
        """The request as places."""
        return [int(message.id) for message in sent]


class LangChainGiven(LangChain):
    """The same with a counter that has nothing to do but add."""

    def __init__(self, messages: list[dict[str, Any]], budget: int, costs: list[int]) -> None:
        super().__init__(messages, budget, costs)
        self.costs = {str(place): cost for place, cost in enumerate(costs)}

    def tokens(self, messages: list[Any]) -> int:
        """What OpenAI charges."""
        return 3 + sum([self.costs[message.id] for message in messages])


class Classic:
    """The memory classes of langchain-classic: texts alone, pruned when an exchange is over."""

    def __init__(self, messages: list[dict[str, Any]], budget: int, _: list[int], kind: str) -> None:
        from langchain_classic import memory  # noqa: PLC0415
        from langchain_core.language_models.fake_chat_models import FakeListChatModel  # noqa: PLC0415

        model = FakeListChatModel(responses=[SUMMARY], custom_get_token_ids=encode)
        room = budget - size(messages[0]["content"])
        self.memory = getattr(memory, kind)(llm=model, max_token_limit=room, return_messages=True)
        self.messages = messages
        self.question = 0
        self.answer: list[str] = []

    def put(self, place: int) -> None:
        """Notes the message; an answer without calls ends the exchange."""
        message = self.messages[place]
        if message["role"] == "user":
            self.question, self.answer = place, []
            return
        called = [call["function"] for call in message.get("tool_calls") or ()]
        texts = [message["content"] or "", *(f"{call['name']} {call['arguments']}" for call in called)]
        self.answer.append("\n".join(texts).strip())
        if message["role"] == "assistant" and not called:
            output = "\n".join(self.answer)
            self.memory.save_context({"input": self.messages[self.question]["content"]}, {"output": output})

    def get(self) -> Any:
        """What to send now: the memory, then the exchange as far as it has come."""
        told = self.memory.load_memory_variables({})["history"]
        return [*told, ("user", self.messages[self.question]["content"]), *(("text", t) for t in self.answer)]

    def places(self, sent: Any) -> list[Any]:
        """The request as messages."""
        roles = {"human": "user", "ai": "assistant", "system": "system", "text": "assistant"}
        pairs = [each if isinstance(each, tuple) else (each.type, each.content) for each in sent]
        return [0, *({"role": roles.get(role, role), "content": text} for role, text in pairs)]


class LlamaIndex:
    """`ChatMemoryBuffer`; the system prompt's tokens are given to it as already used."""

    def __init__(self, messages: list[dict[str, Any]], budget: int, _: list[int]) -> None:
        from llama_index.core.base.llms.types import ChatMessage  # noqa: PLC0415

        fields = ("tool_calls", "tool_call_id")
        self.native = [
            ChatMessage(
                role=message["role"],
                content=message["content"],
                additional_kwargs={key: message[key] for key in fields if key in message},
            )
            for message in messages
        ]
        self.known = {self._key(message): place for place, message in enumerate(self.native)}
        self.prompt = size(messages[0]["content"])
        self.make(budget)

    def make(self, budget: int) -> None:
        """The memory."""
        from llama_index.core.memory import ChatMemoryBuffer  # noqa: PLC0415

        self.memory: Any = ChatMemoryBuffer.from_defaults(token_limit=budget, tokenizer_fn=encode)

    def put(self, place: int) -> Any:
        """Adds the message at this place."""
        return self.memory.put(self.native[place])

    def get(self) -> Any:
        """What to send now."""
        return self.memory.get(initial_token_count=self.prompt)

    def places(self, sent: Any) -> list[Any]:
        """The request as places, the system prompt in front."""
        return [0, *(self.known[self._key(message)] for message in sent)]

    @staticmethod
    def _key(message: Any) -> tuple[str, str, str]:
        return message.role.value, message.content or "", json.dumps(message.additional_kwargs)


class LlamaMemory(LlamaIndex):
    """`Memory`, with the SQLite store that it makes for itself."""

    def make(self, budget: int) -> None:
        """The memory."""
        from llama_index.core.memory import Memory  # noqa: PLC0415

        room = budget - self.prompt
        self.memory = Memory.from_defaults(
            session_id="bench", token_limit=room, token_flush_size=room // 10, tokenizer_fn=encode
        )

    def put(self, place: int) -> Any:
        """Adds the message at this place."""
        return self.memory.aput(self.native[place])

    def get(self) -> Any:
        """What to send now."""
        return self.memory.aget()


MAKERS: dict[str, Callable[[list[dict[str, Any]], int, list[int]], Any]] = {
    "langchain trim_messages": LangChain,
    "langchain trim_messages, counts given": LangChainGiven,
    "langchain ConversationTokenBuffer": functools.partial(Classic, kind="ConversationTokenBufferMemory"),
    "langchain ConversationSummaryBuffer": functools.partial(Classic, kind="ConversationSummaryBufferMemory"),
    "llama-index ChatMemoryBuffer": LlamaIndex,
    "llama-index Memory": LlamaMemory,
}


async def run(name: str, told: dict[str, Any], budget: int, block: int, most: float) -> dict[str, Any]:
    """The figures of one memory."""
    messages = told["messages"]
    for message in messages[:50]:
        encode(message["content"] or "")
    memory = MAKERS[name](messages, budget, told["costs"])
    blocks: list[float] = []
    requests: list[tuple[int, list[Any]]] = []
    spent, last = 0.0, 0
    for place, message in enumerate(messages[1:], 1):
        sent = None
        start = time.process_time()
        if message["role"] == "assistant":
            sent = memory.get()
            sent = await sent if asyncio.iscoroutine(sent) else sent
        done = memory.put(place)
        if asyncio.iscoroutine(done):
            await done
        spent += time.process_time() - start
        if message["role"] == "user":
            last = place
        if sent is not None:
            requests.append((last, memory.places(sent)))
        if place % block == 0:
            blocks.append(spent)
            spent = 0.0
        if sum(blocks) + spent > most:
            break
    return {"blocks": blocks, "requests": requests}


if __name__ == "__main__":
    chosen, file, limit, turns, seconds = sys.argv[1:]
    conversation = json.loads(Path(file).read_text("utf-8"))
    print(json.dumps(asyncio.run(run(chosen, conversation, int(limit), int(turns), float(seconds)))))
