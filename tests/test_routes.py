"""Routing: which class a question belongs to, and that its model gets it within its own bounds."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.player import Player, Request, Script, answered, playing, sent_json
from ullage import store
from ullage.config import load
from ullage.context import DEFAULT_PROMPT
from ullage.errors import ConfigurationError
from ullage.session.chat import ChatSession
from ullage.session.routes import Routed, categories, route

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ullage.config import Settings

pytestmark = pytest.mark.enable_socket

FILE = """
model = "large"

[models.large]
endpoint = "{url}/v1"
model = "gpt-4o"
window = 64_000
prices = {{ input = 2.50, output = 10.00 }}

[models.small]
endpoint = "{url}/v1"
model = "qwen2.5-0.5b"
window = 2_048
local_compress = true
use_tool_role = false

[models.middle]
endpoint = "{url}/v1"
model = "mistral-small"
window = 8_000
prices = {{ input = 0.10, output = 0.30 }}

[routing.rules]
quick = ["in a word", "what is"]
write = ["draft", "what is"]
terse = ["briefly"]

[routing.models]
quick = "small"
write = "middle"
goal = "middle"

[routing.system_prompts]
quick = "Answer in a word."
terse = "Answer in a line."

[context]
reserved_output = 500
token_budget = "auto"

[context.compress]
keep_turns = 2
max_turn_chars = 40
"""


@pytest.fixture
def player() -> Iterator[Player]:
    def play(request: Request) -> Script:
        if not request.path.endswith("/chat/completions"):
            return sent_json({"error": {"message": "not found"}}, 404)
        return Script(body=answered("Seven.", prompt=1_000, completion=100))

    with playing(play) as played:
        yield played


@pytest.fixture
def settings(player: Player, tmp_path: Path) -> Settings:
    file = tmp_path / "config.toml"
    file.write_text(FILE.format(url=player.url))
    return load(file, environ={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("typed", "kind", "question", "told"),
    [
        ("how many boats came in", "main", "how many boats came in", ""),
        ("What IS a quay", "quick", "What IS a quay", "what is"),
        ("tell me, in a  word, where", "quick", "tell me, in a  word, where", "in a word"),
        ("draft a letter", "write", "draft a letter", "draft"),
        ("overdrafts and drafty rooms", "main", "overdrafts and drafty rooms", ""),
        ("what isn't there", "main", "what isn't there", ""),
        ("say it briefly", "terse", "say it briefly", "briefly"),
        ("@write what is a quay", "write", "what is a quay", ""),
        ("@main what is a quay", "main", "what is a quay", ""),
        ("@terse", "main", "@terse", ""),
        ("@goal find it", "main", "@goal find it", "no category goal"),
        ("@harbour who is there", "main", "@harbour who is there", "no category harbour"),
        ("mail a@quick now", "main", "mail a@quick now", ""),
    ],
)
def test_a_question_goes_where_its_mark_or_its_words_say(
    settings: Settings, typed: str, kind: str, question: str, told: str
) -> None:
    routed = route(typed, settings.routing)
    assert routed[:2] == Routed(kind, question)[:2]
    assert told in routed.hint
    assert bool(told) is bool(routed.hint)


def test_only_classes_that_are_asked_for_can_be_named(settings: Settings) -> None:
    assert categories(settings.routing) == ("main", "quick", "terse", "write")


class Sent(NamedTuple):
    """What a class is sent, and what that costs."""

    kind: str
    model: str
    prompt: str
    turns: int
    """Messages after the system prompt."""
    limit: int
    dollars: str | None


HISTORY = 6
CASES = (
    Sent("main", "gpt-4o", DEFAULT_PROMPT, HISTORY + 1, 63_500, "0.0035"),
    Sent("terse", "gpt-4o", "Answer in a line.", HISTORY + 1, 63_500, "0.0035"),
    Sent("quick", "qwen2.5-0.5b", "Answer in a word.", 2, 1_548, None),
    Sent("write", "mistral-small", DEFAULT_PROMPT, HISTORY + 1, 7_500, "0.00013"),
    Sent("goal", "mistral-small", DEFAULT_PROMPT, HISTORY + 1, 7_500, "0.00013"),
)


async def routed(chat: ChatSession, kind: str) -> tuple[int, Any]:
    """The limit that a turn of a class is held to, and what it is charged."""
    before = chat.context.total_cost()
    async with chat.routed(kind):
        limit = chat.context.limit
        chat.context.append_user("How many?")
        async for _ in chat.answer(allow):
            pass
    after = chat.context.total_cost()
    return limit, None if after == before else (after or 0) - (before or 0)


async def allow(_: str, __: str) -> bool:
    return False


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_a_routed_turn_has_the_bounds_the_prompt_and_the_prices_of_its_model(
    case: Sent, player: Player, settings: Settings, tmp_path: Path
) -> None:
    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await ChatSession.open(settings, kept, {}, tmp_path)
            for number in range(HISTORY // 2):
                chat.context.append_user(f"Question {number}: " + "how many boats are there? " * 10)
                chat.context.append({"role": "assistant", "content": f"Answer {number}."})
            before = (chat.context.bounds, chat.model.name)
            limit, paid = await routed(chat, case.kind)
            assert limit == case.limit
            assert paid == (None if case.dollars is None else Decimal(case.dollars))
            assert (chat.context.bounds, chat.model.name) == before
            assert len(chat.context) == HISTORY + 2
            assert {model for model, _ in chat.context.meter.slots} == {model_name(case)}
            await chat.close()

    asyncio.run(go())
    body = player.requests[-1].json()
    system, *turns = body["messages"]
    assert body["model"] == case.model
    assert system["content"].startswith(case.prompt)
    assert len(turns) == case.turns
    assert turns[-1]["content"] == "How many?"


def model_name(case: Sent) -> str:
    return {"gpt-4o": "large", "qwen2.5-0.5b": "small", "mistral-small": "middle"}[case.model]


def test_turns_of_several_classes_are_one_conversation(
    player: Player, settings: Settings, tmp_path: Path
) -> None:
    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await ChatSession.open(settings, kept, {}, tmp_path)
            for kind in ("main", "write", "main", "write"):
                await routed(chat, kind)
            assert len(chat.context) == 8
            again = await ChatSession.open(settings, kept, {}, tmp_path, session=chat.context.session)
            assert again.context.to_messages() == chat.context.to_messages()
            await chat.close()
            await again.close()

    asyncio.run(go())
    sent = [request.json() for request in player.requests if request.path.endswith("/chat/completions")]
    assert [len(body["messages"]) for body in sent] == [2, 4, 6, 8]
    assert [body["model"] for body in sent] == ["gpt-4o", "mistral-small"] * 2


@pytest.mark.parametrize("kind", ["main", "write"])
def test_what_a_refusal_teaches_of_a_model_holds_for_its_next_turns(kind: str, tmp_path: Path) -> None:
    refusal = {
        "error": {
            "message": "This model's maximum context length is 3000 tokens, but you requested 3200 tokens.",
            "code": "context_length_exceeded",
        }
    }
    refusals = [sent_json(refusal, 400)]

    def play(request: Request) -> Script:
        asked = request.path.endswith("/chat/completions")
        return refusals.pop() if asked and refusals else Script(body=answered("Seven."))

    async def go() -> None:
        with playing(play) as player, store.open(tmp_path / "kept.db") as kept:
            file = tmp_path / "config.toml"
            file.write_text(FILE.format(url=player.url))
            chat = await ChatSession.open(load(file, environ={}, cwd=tmp_path), kept, {}, tmp_path)
            for number in range(10):
                chat.context.append_user(f"Question {number}: " + "how many boats are there? " * 50)
                chat.context.append({"role": "assistant", "content": f"Answer {number}."})
            main = chat.context.limit
            await routed(chat, kind)
            limit, _ = await routed(chat, kind)
            assert limit <= 2_500
            assert chat.context.limit == (limit if kind == "main" else main)
            await chat.use_model("middle")
            assert chat.context.limit == 7_500
            await chat.close()

    asyncio.run(go())


def test_a_class_whose_model_cannot_be_opened_leaves_everything_as_it_was(
    player: Player, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(FILE.format(url=player.url).replace('quick = "small"', 'quick = "openai/gpt-4o"'))

    async def go() -> None:
        with store.open(tmp_path / "kept.db") as kept:
            chat = await ChatSession.open(load(file, environ={}, cwd=tmp_path), kept, {}, tmp_path)
            before = chat.context.bounds, chat.open_model, chat.context.goal, len(chat.context)
            with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
                await routed(chat, "quick")
            assert (chat.context.bounds, chat.open_model, chat.context.goal, len(chat.context)) == before
            await routed(chat, "main")
            await chat.close()

    asyncio.run(go())
