"""With `tokenize.use_endpoint` the server's tokenizer decides what a Client, the shell and `ask` send."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.fine_server import FineServer, fine_count, fine_server
from tests.llama import llama_server
from ullage import Client, Context, ContextOverflowError, store
from ullage.broker import count_routes, endpoint_counter, tokenizer
from ullage.broker.endpoint import Endpoint
from ullage.broker.endpoint_counter import EndpointCounter
from ullage.broker.remote import RemoteProvider
from ullage.broker.tokenizer import LONGEST
from ullage.cli import main
from ullage.config import load
from ullage.session.chat import ChatSession
from ullage.shell.loop import Shell
from ullage.shell.screen import Screen
from ullage.terminal import Runner
from ullage.turn import Settled
from ullage.turn.counts import NEAR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from ullage.config import Settings

pytestmark = pytest.mark.enable_socket

BUDGET = 1_500
PROMPT = "You keep the books of a harbour."


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on a busy machine may take longer than the two seconds that it has."""
    monkeypatch.setattr(endpoint_counter, "TIMEOUT", 60.0)
    monkeypatch.setattr(count_routes, "TIMEOUT", 60.0)
    monkeypatch.setattr(tokenizer, "PATIENCE", 120.0)


def question(number: int) -> str:
    return (
        f"Question {number}: how many crates of herring does the Heron carry to Skagen on day {number}, and "
        f"who signs for them at the quay while the pilot is away?{' Answer in one line.' * (number % 3)}"
    )


def at(server: FineServer, model: str = "gpt-4o", **more: Any) -> RemoteProvider:
    return RemoteProvider(Endpoint(url=f"{server.url}/v1", model=model), **more)


def conversation(client: Client, **more: Any) -> Context:
    options: dict[str, Any] = {"token_budget": BUDGET, "max_turns": None, "system_prompt": PROMPT, **more}
    return Context(model=client.provider.target, **options)


async def asked(client: Client, context: Context, text: str, **more: Any) -> Settled:
    context.append_user(text)
    *_, settled = [event async for event in client.stream(context, **more)]
    assert isinstance(settled, Settled)
    return settled


async def talk(client: Client, context: Context, turns: int, first: int = 0) -> Settled:
    for number in range(first, first + turns):
        settled = await asked(client, context, question(number))
    return settled


def run(server: FineServer, main: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def closing() -> None:
        client = Client(at(server), local=True, **{"use_endpoint": True, **options})
        try:
            await main(client)
        finally:
            await client.provider.close()

    asyncio.run(closing())


# Client and Context -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "server_does",
    [
        {},
        {"counts_requests": False},
        {"counts_requests": False, "usage": False},
        {"template": 300},
        {"template": 300, "usage": False},
        {"template": 600, "counts_requests": False},
        {"counts_texts": False, "usage": False},
    ],
    ids=str,
)
def test_no_request_is_over_the_budget_by_the_count_of_a_server_with_a_finer_tokenizer(
    server_does: dict[str, Any],
) -> None:
    async def main(client: Client) -> None:
        settled = await talk(client, conversation(client), 40)
        assert settled.fitted.dropped > 20

    with fine_server(**server_does) as server:
        run(server, main)
    assert len(server.charged) == 40
    assert max(server.charged) <= BUDGET
    if not server_does:
        assert max(server.charged) > 0.9 * BUDGET  # what there is room for is sent


def test_without_the_setting_the_same_talk_goes_over_and_nobody_is_asked_to_count() -> None:
    async def main(client: Client) -> None:
        await talk(client, conversation(client), 40)

    with fine_server(usage=False) as server:
        run(server, main, use_endpoint=False)
    assert max(server.charged) > BUDGET
    assert server.texts == server.wholes == []


def test_each_text_is_counted_once_over_forty_turns() -> None:
    async def main(client: Client) -> None:
        context = conversation(client)
        await talk(client, context, 40)
        trims = len({message["messages"][0]["content"] for message in server.sent})
        assert len(server.texts) == 80 + trims  # questions, answers, and the system prompt as it was sent
        context.use_model(client.provider.target)  # the history is read again, and nothing is asked again
        await client.counts.count_ahead(context)
        assert context.bounds.tokenizer is client.counts.tokenizer
        assert len(server.texts) == 80 + trims

    with fine_server() as server:
        run(server, main)
    assert len(server.texts) == len(set(server.texts))
    assert {model for model, _ in server.texts} == {"gpt-4o"}


def test_after_a_trim_the_digest_is_priced_by_the_server_s_count_and_no_longer_by_an_estimate() -> None:
    async def main(client: Client) -> None:
        context = conversation(client)
        for number in range(30):
            settled = await asked(client, context, question(number))
            if number > 5:  # by then it is known what the framing adds
                assert abs(settled.fitted.count.tokens - server.charged[-1]) < 0.03 * server.charged[-1]
        assert settled.fitted.dropped > 20

    with fine_server(counts_requests=False) as server:
        run(server, main)


def test_a_server_that_stops_counting_in_the_middle_is_not_asked_again_and_nothing_goes_over() -> None:
    async def main(client: Client) -> None:
        context = conversation(client)
        await talk(client, context, 12)
        server.counts_texts = False
        before = len(server.texts)
        await talk(client, context, 28, first=12)
        assert len(server.texts) == before + 1
        assert client.counts.tokenizer is not None
        assert client.counts.tokenizer.supported is False

    with fine_server(counts_requests=False, usage=False) as server:
        run(server, main)
    assert len(server.charged) == 40
    assert max(server.charged) <= BUDGET


def test_a_server_without_a_tokenizer_leaves_our_own_counts_as_they_are() -> None:
    async def main(client: Client) -> None:
        context = conversation(client)
        await talk(client, context, 3)
        assert context.bounds.tokenizer is None
        plain = Context.resume(context.session, context.journal, model=client.provider.target)
        plain.system_prompt = PROMPT
        assert context.count().tokens == plain.count().tokens

    with fine_server(counts_texts=False, counts_requests=False, usage=False) as server:
        run(server, main)
    assert len(server.texts) == 1


def test_the_first_request_and_those_near_the_limit_are_counted_as_a_whole_and_others_are_not() -> None:
    async def main(client: Client) -> None:
        context = conversation(client)
        await talk(client, context, 2)
        assert server.wholes == server.charged[:1]  # the first one shows what a template adds
        await talk(client, context, 20, first=2)
        near = sum(charged >= NEAR * BUDGET + 50 for charged in server.charged)
        assert 0 < near <= len(server.wholes) < 21

    with fine_server() as server:
        run(server, main)


def test_what_the_server_counts_as_too_much_is_fitted_anew_before_it_is_sent() -> None:
    async def main(client: Client) -> None:
        context = conversation(client)
        await talk(client, context, 4)
        server.template = 350
        await talk(client, context, 8, first=4)
        assert max(server.wholes) > BUDGET

    with fine_server(usage=False) as server:
        run(server, main)
    assert max(server.charged) <= BUDGET


def test_what_can_never_fit_by_the_server_s_count_is_an_error_and_is_not_sent() -> None:
    async def main(client: Client) -> None:
        with pytest.raises(ContextOverflowError, match="Cannot fit request"):
            await talk(client, conversation(client, token_budget=400), 1)

    with fine_server(template=390) as server:
        run(server, main)
    assert server.charged == []


LONG = "\n".join(f"{n:04d} crate {n} weighs {n * 7 % 61} kg, seal {n * 7919 % 99991:05d}" for n in range(400))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "manifest",
            "description": "The crates of a ship.",
            "parameters": {"type": "object", "properties": {"ship": {"type": "string"}}},
        },
    }
]


def call(number: int) -> dict[str, Any]:
    function = {"name": "manifest", "arguments": json.dumps({"ship": f"Heron {number}"})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


@pytest.mark.parametrize("use_tool_role", [True, False])
@pytest.mark.parametrize("counts_requests", [True, False])
def test_outputs_that_are_cut_and_digests_stay_within_the_budget(
    use_tool_role: bool, counts_requests: bool
) -> None:
    async def main(client: Client) -> None:
        context = conversation(client, tools=TOOLS, use_tool_role=use_tool_role, token_budget=2_500)
        for number in range(8):
            context.append_user(question(number))
            context.append(call(number))
            context.append({"role": "tool", "tool_call_id": f"c{number}", "content": LONG[number * 97 :]})
            async for _ in client.stream(context):
                pass

    with fine_server(counts_requests=counts_requests) as server:
        run(server, main)
    assert len(server.charged) == 8
    assert max(server.charged) <= 2_500
    assert len(server.texts) == len(set(server.texts))


def test_two_models_behind_one_address_are_kept_apart() -> None:
    async def main() -> None:
        counter = EndpointCounter(use_endpoint=True)
        for model, supported in (("gpt-4o", True), ("llama-3.1-8b", False)):
            client = Client(at(server, model, counter=counter), local=True, use_endpoint=True)
            context = conversation(client)
            await talk(client, context, 2)
            assert client.counts.tokenizer is not None
            assert client.counts.tokenizer.supported is supported
            assert context.bounds.tokenizer is (client.counts.tokenizer if supported else None)
            await client.provider.close()

    with fine_server(refuses=frozenset({"llama-3.1-8b"})) as server:
        asyncio.run(main())
    assert [model for model, _ in server.texts].count("llama-3.1-8b") == 1


def test_another_session_asks_again_and_the_same_one_does_not() -> None:
    async def main() -> None:
        counter = EndpointCounter(use_endpoint=True)
        for session in (counter, counter, None):
            client = Client(at(server, counter=session), local=True, use_endpoint=True)
            assert client.counts.tokenizer is not None
            assert client.counts.tokenizer.supported is (True if counted else None) or session is None
            await asked(client, conversation(client), "How many crates?")
            await client.provider.close()
            counted.append(len(server.texts))

    counted: list[int] = []
    with fine_server() as server:
        asyncio.run(main())
    first, second, third = counted
    assert second == first + 1  # the second answer; the rest is known
    assert third == second + first


def test_a_tokenizer_of_the_caller_s_own_is_left_alone() -> None:
    from ullage.testing import FixedTokenizer

    async def main(client: Client) -> None:
        own = FixedTokenizer(7)
        context = conversation(client, tokenizer=own)
        await talk(client, context, 2)
        assert context.bounds.tokenizer is own

    with fine_server() as server:
        run(server, main)


def test_a_tokenizer_that_is_injected_learns_in_ready_and_rendering_never_waits() -> None:
    async def main(client: Client) -> None:
        injected = client.provider.tokenizer()
        assert injected is not None
        context = conversation(client, tokenizer=injected)
        context.append_user(question(1))
        before = context.count().tokens  # an estimate: nobody was asked
        assert server.texts == []
        await context.prepare()
        after = context.count().tokens
        assert after > 2 * before
        fine = fine_count(PROMPT) + fine_count(question(1))
        assert fine < after < fine + 20

    with fine_server() as server:
        run(server, main)


def test_a_text_that_is_too_long_to_be_counted_in_time_is_estimated() -> None:
    async def main(client: Client) -> None:
        server_s = client.counts.tokenizer
        assert server_s is not None
        await server_s.learn([question(1)])
        text = "word " * LONGEST
        assert await server_s.learn([text, "", "a\ud800b"]) is False
        assert not server_s.knows(text)
        assert server_s.supported is True
        assert server_s.count(text) > fine_count("word " * 1_000) * LONGEST / 1_000

    with fine_server() as server:
        run(server, main)
    assert len(server.texts) == 1


def test_an_answer_that_is_cut_off_is_counted_before_the_next_request() -> None:
    async def main(client: Client) -> None:
        context = conversation(client)
        context.append_user(question(1))
        stream = client.stream(context)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        reply = context.turns[-1]["content"]
        context.count()  # somebody looks
        await talk(client, context, 1, first=2)
        assert ("gpt-4o", reply) in server.texts
        assert context.count().tokens < server.charged[-1] + 100

    with fine_server() as server:
        run(server, main)
    assert len(server.texts) == len(set(server.texts))


# The shell --------------------------------------------------------------------------------------------

FILE = """
model = "fine"
[tokenize]
use_endpoint = {use}
[context]
token_budget = 1_500
max_turns = 400
[models.fine]
endpoint = "{url}/v1"
model = "gpt-4o"
window = 64_000
[models.plain]
endpoint = "{url}/v1"
model = "mistral-small"
window = 64_000
"""


def settings(server: FineServer, folder: Path, *, use: bool = True) -> Settings:
    file = folder / "config.toml"
    file.write_text(FILE.format(url=server.url, use=str(use).lower()))
    return load(file, environ={}, cwd=folder)


def shown(
    server: FineServer, folder: Path, lines: Sequence[str], given: Settings | None = None, *, use: bool = True
) -> list[str]:
    """What a shell prints for each line."""

    async def main() -> list[str]:
        told = []
        with store.open(folder / "kept.db") as kept:
            chat = await ChatSession.open(given or settings(server, folder, use=use), kept, {}, folder)
            runner = Runner(cwd=folder, environ={"PATH": "/usr/bin:/bin", "HOME": str(folder)})
            file = io.StringIO()
            shell = Shell(chat, Screen(Console(file=file, width=100), keyboard=io.StringIO()), runner)
            try:
                for line in lines:
                    await shell.act(line)
                    told.append(file.getvalue())
                    file.seek(0)
                    file.truncate()
                    shell.status()
            finally:
                await shell.close()
                runner.close()
        return told

    return asyncio.run(main())


def test_a_shell_stays_within_its_budget_by_the_server_s_count_and_asks_for_each_text_once(
    tmp_path: Path,
) -> None:
    with fine_server() as server:
        shown(server, tmp_path, [f"?{question(number)}" for number in range(20)])
    assert len(server.charged) == 20
    assert 0.7 * BUDGET < max(server.charged) <= BUDGET
    assert len(server.texts) == len(set(server.texts))


def test_a_shell_tells_that_the_server_counts(tmp_path: Path) -> None:
    lines = ["?How many crates?", ":tokenize hello world", ":tokenize", ":context", ":cost detail"]
    with fine_server() as server:
        _, text, bare, context, cost = shown(server, tmp_path, lines)
    assert f"{fine_count('hello world')} tokens" in text
    assert "~" not in text
    assert f"counted by {server.url}/tokenize" in text
    assert "supported" in bare
    assert f"texts counted by {server.url}/tokenize" in context
    assert f"texts counted by {server.url}/tokenize" in cost
    assert cost.strip().splitlines()[-1].startswith("[estimated session ctx: ")


def test_a_shell_tells_that_the_server_does_not_count(tmp_path: Path) -> None:
    lines = [":tokenize hello world", ":tokenize hello again", ":context", ":cost detail"]
    with fine_server(counts_texts=False) as server:
        text, _, context, cost = shown(server, tmp_path, lines)
    assert "2 tokens" in text
    assert "not supported" in text
    assert "counted by" not in context + cost
    assert len(server.texts) == 1


def test_a_shell_without_the_setting_asks_nobody_to_count(tmp_path: Path) -> None:
    lines = ["?How many crates?", ":tokenize hello world", ":tokenize", ":context", ":cost detail"]
    with fine_server() as server:
        _, text, bare, context, cost = shown(server, tmp_path, lines, use=False)
    assert server.texts == server.wholes == []
    assert "2 tokens" in text
    assert "tokenize.use_endpoint" in bare
    assert "counted by" not in context + cost


def test_the_tokenizer_follows_the_model(tmp_path: Path) -> None:
    lines = [
        "?How many crates?",
        ":model plain",
        "?And whose?",
        ":context",
        ":model fine",
        "?When?",
        ":context",
    ]
    with fine_server(refuses=frozenset({"mistral-small"})) as server:
        *_, plain, _, _, fine = shown(server, tmp_path, lines)
    assert "counted by" not in plain
    assert f"texts counted by {server.url}/tokenize" in fine
    assert len(server.texts) == len(set(server.texts))
    assert [model for model, _ in server.texts].count("mistral-small") == 1


def test_the_requests_of_a_summarizer_are_within_its_window_by_the_server_s_count(tmp_path: Path) -> None:
    with fine_server() as server:
        settings(server, tmp_path)
        file = tmp_path / "config.toml"
        more = f'[models.notes]\nendpoint = "{server.url}/v1"\nmodel = "qwen2.5-7b"\nwindow = 800\n'
        file.write_text(f'{file.read_text()}\n{more}[routing.models]\nsummarize = "notes"\n')
        lines = [f"?{question(number)}{question(number) * 2}" for number in range(16)]
        shown(server, tmp_path, lines, load(file, environ={}, cwd=tmp_path))
    charged = {"gpt-4o": [0], "qwen2.5-7b": [0]}
    for body, tokens in zip(server.sent, server.charged, strict=True):
        charged[body["model"]].append(tokens)
    assert len(charged["qwen2.5-7b"]) > 2
    assert max(charged["gpt-4o"]) <= BUDGET
    assert 300 < max(charged["qwen2.5-7b"]) <= 600  # a quarter is for the answer


# `ullage ask` -----------------------------------------------------------------------------------------


def test_ask_stays_within_the_window_by_the_server_s_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setenv("NO_PROXY", "*")
    with fine_server() as server:
        settings(server, tmp_path)
        for number in range(6):
            more = " ".join(f"Crate {n} is of lot {n * 7 % 23}." for n in range(number, number + 12))
            # In this process, so that the time limits of a quiet machine do not hold.
            code = main(
                [
                    *("ask", "--store", str(tmp_path / "kept.db"), "--session", "monday", "--json"),
                    *("--config", str(tmp_path / "config.toml"), "--window", "2000", "--max-output", "500"),
                    f"{question(number)} {more}",
                ]
            )
            shown = capfd.readouterr()
            assert (code, shown.err) == (0, "")
    told = json.loads(shown.out)["context"]
    assert told["limit"] == BUDGET
    assert told["counted_by"] == "server"
    assert told["dropped"] > 0
    assert len(server.charged) == 6
    assert 0.5 * BUDGET < max(server.charged) <= BUDGET


# A real llama.cpp server ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama() -> AsyncIterator[str]:
    with llama_server(1024) as running:
        yield running.url  # type: ignore[misc]


@pytest.mark.timeout(1_800)  # a model computes here, maybe beside many others
def test_decisions_agree_with_what_a_real_server_charges(llama: str) -> None:
    limit = 600

    async def main() -> None:
        provider = RemoteProvider(Endpoint(url=f"{llama}/v1", model="smollm2"))
        client = Client(provider, local=True, max_output=12, use_endpoint=True)
        context = conversation(client, token_budget=limit)
        trimmed = 0
        for number in range(10):
            settled = await asked(client, context, question(number))
            assert not settled.estimated
            assert settled.usage.prompt <= limit
            assert settled.fitted.count.ceiling <= limit
            assert abs(settled.fitted.count.tokens - settled.usage.prompt) <= 2
            trimmed = settled.fitted.dropped
        assert trimmed > 0
        assert client.counts.tokenizer is not None
        assert client.counts.tokenizer.supported is True
        await provider.close()

    asyncio.run(main())
