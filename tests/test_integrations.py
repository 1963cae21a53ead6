"""The ground of the integrations: fitters, missing hosts, the list of hosts, and a server that is strict."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import tomllib
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripts.docs import ROOT

from tests.player import Request
from tests.strict_server import CHAT_TOOL, SYSTEM, TASK, WINDOW, StrictServer, read_page
from tests.world import PATIENCE, environment
from ullage import (
    ConfigurationError,
    ContextOverflowError,
    InvalidConversation,
    InvalidRequest,
    fit,
    fit_request,
)
from ullage.integrations import fitter as fitters
from ullage.integrations.fitter import BodyFitter, HistoryFitter, restore, restore_parts, run_aside

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES = ROOT / "src" / "ullage" / "integrations"
HOSTS: dict[str, Any] = tomllib.loads((ROOT / "tests" / "integrations" / "hosts.toml").read_text("utf-8"))
PAGE = (ROOT / "docs" / "library" / "integrations.md").read_text("utf-8")


def history(steps: int, name: str = "") -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": TASK + name},
    ]
    for page in range(steps):
        function = {"name": "read_page", "arguments": f'{{"page":{page}}}'}
        call = {"id": f"call_{page}", "type": "function", "function": function}
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": f"call_{page}", "content": read_page(page)})
    return made


# Fitters ---------------------------------------------------------------------------------------------


def test_a_fitter_returns_what_fit_returns_at_each_step_of_two_conversations() -> None:
    fitter = HistoryFitter(model="gpt-4o", limit=4_000)
    for steps in range(0, 30, 3):
        for name in (" Mornings.", " Evenings."):
            given = history(steps, name)
            whole = fit(given, "gpt-4o", [CHAT_TOOL], limit=4_000)
            assert fitter.fit(given, [CHAT_TOOL]).messages == whole.messages


def test_a_body_fitter_returns_what_fit_request_returns() -> None:
    fitter = BodyFitter("openai.chat", limit=4_000)
    for steps in range(0, 30, 3):
        body = {"model": "gpt-4o", "messages": history(steps), "tools": [CHAT_TOOL]}
        assert fitter.fit(body).body == fit_request(body, "openai.chat", limit=4_000).body


class Own:
    """A message of an SDK."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def model_dump(self) -> dict[str, Any]:
        return self.fields


def test_a_body_fitter_returns_the_objects_of_the_sdk() -> None:
    given = [Own(message) for message in history(30)]
    tools = [Own(CHAT_TOOL)]
    body = {"model": "gpt-4o", "messages": given, "tools": tools}
    assert BodyFitter("openai.chat", limit=100_000).fit(body).body is body
    done = BodyFitter("openai.chat", limit=4_000).fit(body).body
    assert done["tools"] is tools
    assert done["messages"][-1] is given[-1]
    assert isinstance(done["messages"][0], dict)
    assert body["messages"] is given


def test_fitters_refuse_what_no_json_can_hold_with_an_error_of_ours() -> None:
    message = {"role": "user", "content": "Ahoy", "extra": 10**5_000}
    with pytest.raises(InvalidConversation, match="more than 4,000 digits"):
        HistoryFitter(limit=4_000).fit([message])
    with pytest.raises(InvalidRequest, match="more than 4,000 digits"):
        BodyFitter("openai.chat", limit=4_000).fit({"messages": [message]})


def test_a_forgotten_conversation_is_fitted_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitters, "MOST", 1)
    fitter = HistoryFitter(model="gpt-4o", limit=4_000)
    first = fitter.fit(history(30, " One.")).messages
    fitter.fit(history(30, " Two."))
    assert fitter.fit(history(30, " One.")).messages == first


def test_threads_share_a_fitter() -> None:
    fitter = HistoryFitter(model="gpt-4o", limit=4_000)
    expected = {steps: fit(history(steps), "gpt-4o", limit=4_000).messages for steps in range(20)}
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(steps for steps in range(20) if fitter.fit(history(steps)).messages != expected[steps])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tools_that_are_gone_are_no_longer_counted() -> None:
    fitter = HistoryFitter(model="gpt-4o", limit=4_000)
    bare = fitter.fit(history(1)).count
    assert fitter.fit(history(1), [CHAT_TOOL]).count.tokens > bare.tokens
    assert fitter.fit(history(1)).count == bare


def test_the_model_of_a_fitter_goes_before_the_one_that_the_host_calls() -> None:
    own = HistoryFitter(model="claude-sonnet-4-5", limit=4_000).fit(history(3), model="gpt-4o")
    assert own.count == HistoryFitter(limit=4_000).fit(history(3), model="claude-sonnet-4-5").count
    assert own.count != HistoryFitter(limit=4_000).fit(history(3), model="gpt-4o").count


def test_every_result_is_reported() -> None:
    told: list[Any] = []
    HistoryFitter(limit=4_000, report=told.append).fit(history(30))
    BodyFitter("openai.chat", limit=4_000, report=told.append).fit(
        {"model": "gpt-4o", "messages": history(0)}
    )
    assert [each.changed for each in told] == [True, False]


def test_bad_options_and_requests_are_typed_errors() -> None:
    with pytest.raises(ConfigurationError, match="limit"):
        HistoryFitter(limit=0)
    with pytest.raises(ConfigurationError, match="limit"):
        BodyFitter("openai.chat", limit=0)
    with pytest.raises(ConfigurationError, match="unknown option limt; the options are model, limit"):
        HistoryFitter(limt=8_000)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError):
        HistoryFitter(model="no-such-model")
    with pytest.raises(ContextOverflowError):
        HistoryFitter(limit=100).fit(history(3))
    with pytest.raises(InvalidConversation):
        HistoryFitter(limit=4_000).fit(history(3)[:-1])


def test_a_message_that_did_not_change_is_its_owner() -> None:
    given = history(30)
    owners = [object() for _ in given]
    fitted = HistoryFitter(model="gpt-4o", limit=4_000).fit(given)
    restored: list[Any] = restore(fitted, given, owners, lambda owner, message: (owner, message))
    assert restored[-1] is owners[-1]
    owner, message = restored[0]
    assert owner is owners[0]
    assert message["content"].startswith(SYSTEM)


def test_parts_are_put_back_by_their_reading() -> None:
    assert restore_parts(["new", "b"], ["a", "b"], ["own a", "own b"], str.upper) == ["NEW", "own b"]


# Hosts -----------------------------------------------------------------------------------------------


NO_HOSTS = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | {"ullage", "orjson", "splintr"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""
"""The start of a program for which no host is installed."""


def without_hosts(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", NO_HOSTS + program],
        env=environment(),
        capture_output=True,
        check=False,
        text=True,
    )


@pytest.mark.parametrize("host", HOSTS)
def test_a_missing_host_is_one_sentence_with_the_command_that_installs_it(host: str) -> None:
    done = without_hosts(f"import ullage.integrations.{host}")
    assert done.returncode == 1
    told = r"ullage\.errors\.MissingHost: The integration for .+ cannot import it \(.+\)\. Install with: "
    assert re.search(told + r"pip install '[\w\[\]-]+>=[\d.]+'$", done.stderr.strip())


def test_the_package_itself_imports_no_host() -> None:
    done = without_hosts("import ullage, ullage.integrations, ullage.integrations.fitter; ullage.fit")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_host_has_a_module_a_test_a_section_and_figures() -> None:
    results = json.loads((ROOT / "tests" / "integrations" / "results.json").read_text("utf-8"))
    for host, row in HOSTS.items():
        assert (MODULES / f"{host}.py").exists()
        assert (ROOT / "tests" / "integrations" / f"test_{host}.py").exists()
        assert f"\n## {row['name']}\n" in PAGE
        assert f"```python no-run host={host}\n" in PAGE
        assert all("==" in package for package in row["packages"])
        assert results[host]["packages"] == row["packages"], f"run `make integrations HOSTS={host}`"
        assert results[host]["passed"]
    assert results.keys() == HOSTS.keys()


# Copies ----------------------------------------------------------------------------------------------


def pickled(given: Any) -> Any:
    """A copy by way of a pickle, as another process gets it."""
    return pickle.loads(pickle.dumps(given))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_a_fitter_may_be_copied_and_pickled_with_its_host(again: Any) -> None:
    talk = history(20)
    fitter = HistoryFitter(model="gpt-4o", limit=3_000)
    done = fitter.fit(talk)
    other = again(fitter).fit(talk)
    assert done.changed
    assert list(other.messages) == list(done.messages)
    assert other.limit == 3_000
    bodies = BodyFitter("openai.chat", limit=3_000)
    body = {"model": "gpt-4o", "messages": talk}
    assert again(bodies).fit(body).body == bodies.fit(body).body


# The event loop ---------------------------------------------------------------------------------------


@pytest.fixture
def _fresh_thread() -> Iterator[None]:
    """Ends the thread that fits, which otherwise lasts as long as the process."""
    yield
    fitters._thread(os.getpid()).shutdown()
    fitters._thread.cache_clear()


async def threads_of(calls: int) -> set[int]:
    return set(await asyncio.gather(*(run_aside(threading.get_ident) for _ in range(calls))))


@pytest.mark.usefixtures("_fresh_thread")
def test_one_thread_fits_for_an_event_loop_that_goes_on() -> None:
    gone_on = threading.Event()

    async def run() -> set[int]:
        waiting = asyncio.create_task(run_aside(gone_on.wait, PATIENCE))
        await asyncio.sleep(0)
        gone_on.set()  # the loop would never come here if the call held it up
        assert await waiting
        return await threads_of(20)

    (thread,) = asyncio.run(run())
    assert thread != threading.get_ident()


@pytest.mark.usefixtures("_fresh_thread")
def test_a_call_from_inside_the_thread_does_not_wait_for_the_thread() -> None:
    def ask_a_model() -> set[int]:
        return asyncio.run(threads_of(2))

    async def run() -> set[int]:
        return await asyncio.wait_for(run_aside(ask_a_model), PATIENCE)

    assert asyncio.run(run()) == asyncio.run(threads_of(1))


@pytest.mark.usefixtures("_fresh_thread")
def test_what_runs_aside_sees_the_variables_of_its_task_and_raises_its_errors() -> None:
    said: ContextVar[str] = ContextVar("said")

    async def run() -> str:
        said.set("ahoy")
        with pytest.raises(ZeroDivisionError):
            await run_aside(divmod, 1, 0)
        return await run_aside(said.get)

    assert asyncio.run(run()) == "ahoy"


FORKED = """
import asyncio, os, warnings
from ullage.integrations.fitter import run_aside
warnings.simplefilter("ignore")
asyncio.run(run_aside(len, "abc"))
child = os.fork()
assert asyncio.run(run_aside(len, "abc")) == 3
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        env=environment(),
        capture_output=True,
        check=False,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")


# The server ------------------------------------------------------------------------------------------


def ask(server: StrictServer, path: str, body: dict[str, Any]) -> int:
    return server.answer(Request("POST", path, {}, json.dumps(body).encode())).status


def test_the_server_refuses_what_is_too_long() -> None:
    server = StrictServer()
    talk = [{"role": "user", "content": read_page(0)}] * 30
    assert ask(server, "/v1/chat/completions", {"model": "gpt-4o", "messages": talk}) == 400
    assert server.report().overflows == 1
    short = {"model": "gpt-4o", "messages": talk[:1]}
    assert ask(server, "/v1/chat/completions", {**short, "max_tokens": WINDOW}) == 400
    assert ask(server, "/v1/chat/completions", short) == 200
    assert server.report().overflows == 2


CALL = {"id": "c", "type": "function", "function": {"name": "read_page", "arguments": "{}"}}
USER = {"role": "user", "content": "Go on."}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "read_page", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
ITEM_CALL = {"type": "function_call", "call_id": "c", "name": "read_page", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "bard", "content": "x"}],
        [USER, CALLS],
        [USER, CALLS, USER],
        [USER, {"role": "tool", "tool_call_id": "c", "content": "x"}],
        [USER, {"role": "assistant", "content": None}],
        [USER, {"role": "assistant", "content": "x", "tool_calls": []}],
        [{"role": "user", "content": []}],
    ],
)
def test_the_server_refuses_broken_chats(messages: list[Any]) -> None:
    server = StrictServer()
    assert ask(server, "/v1/chat/completions", {"model": "gpt-4o", "messages": messages}) == 400
    assert len(server.report().invalid) == 1


@pytest.mark.parametrize(
    "items",
    [
        [],
        [USER, ITEM_CALL],
        [USER, OUTPUT],
        [USER, ITEM_CALL, OUTPUT, OUTPUT],
        [USER, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}],
        [USER, {"type": "no_such_item"}],
    ],
)
def test_the_server_refuses_broken_items(items: list[Any]) -> None:
    server = StrictServer()
    assert ask(server, "/v1/responses", {"model": "gpt-4o", "input": items}) == 400
    assert len(server.report().invalid) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant", "content": "x"}],
        [USER, USE],
        [USER, USE, USER],
        [USER, {"role": "user", "content": [RESULT]}],
        [USER, USE, {"role": "user", "content": [{"type": "text", "text": "x"}, RESULT]}],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
        [
            USER,
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "mine"}]},
        ],
    ],
)
def test_the_server_refuses_broken_messages(messages: list[Any]) -> None:
    server = StrictServer()
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages}
    assert ask(server, "/v1/messages", body) == 400
    assert len(server.report().invalid) == 1


def test_the_server_wants_the_results_of_its_last_calls() -> None:
    server = StrictServer()
    assert ask(server, "/v1/chat/completions", {"model": "gpt-4o", "messages": [USER]}) == 200
    assert ask(server, "/v1/chat/completions", {"model": "gpt-4o", "messages": [USER]}) == 400
    assert "call_0000" in server.report().invalid[0]


def test_the_folders_of_the_tests_are_those_of_the_list() -> None:
    found = {
        path.stem.removeprefix("test_") for path in Path(ROOT, "tests", "integrations").glob("test_*.py")
    }
    assert found == HOSTS.keys()
