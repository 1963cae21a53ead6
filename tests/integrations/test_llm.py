"""Models of llm run a long tool loop in a small window; the log of llm keeps every message."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, PICTURE_TOKENS, PIXEL, RESERVE, check_loop, run_page
from tests.strict_server import STEPS, SYSTEM, TASK, read_page, strict_server

pytest.importorskip("llm")

import llm
import sqlite_utils
from llm.default_plugins.openai_models import AsyncChat, Chat, Responses
from llm.logs import LogStore
from llm.migrations import migrate
from llm.parts import ToolCallPart, ToolResultPart

from ullage.integrations.fitter import HistoryFitter
from ullage.integrations.llm import FitAsyncKeyModel, FitKeyModel
from ullage.integrations.llm_messages import fit_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strict_server import StrictServer


def logged(chain: Any) -> Any:
    """The messages of a chain, as they come back from the log."""
    db = sqlite_utils.Database(memory=True)
    migrate(db)
    chain.log_to_db(db)
    (thread,) = db["threads"].rows
    return LogStore(db).thread_messages(thread["id"])


def chain_loop(server: StrictServer, glued: bool, kind: Any = Chat, stream: bool = True) -> Any:
    model = kind("gpt-4o", api_base=f"{server.url}/v1", supports_tools=True)
    fitted = FitKeyModel(model, limit=LIMIT, reserve=RESERVE) if glued else model
    talk = fitted.conversation(tools=[read_page], chain_limit=2 * STEPS)
    chain = talk.chain(TASK, system=SYSTEM, stream=stream, key="none")
    assert chain.text()
    return logged(chain)


def whole_loop(server: StrictServer, glued: bool) -> Any:
    return chain_loop(server, glued, stream=False)


def responses_loop(server: StrictServer, glued: bool) -> Any:
    return chain_loop(server, glued, Responses)


def async_loop(server: StrictServer, glued: bool) -> Any:
    model = AsyncChat("gpt-4o", api_base=f"{server.url}/v1", supports_tools=True)
    fitted = FitAsyncKeyModel(model, limit=LIMIT, reserve=RESERVE) if glued else model

    async def run() -> Any:
        talk = fitted.conversation(tools=[read_page], chain_limit=2 * STEPS)
        chain = talk.chain(TASK, system=SYSTEM, key="none")
        assert await chain.text()
        return chain

    return logged(asyncio.run(run()))


@pytest.mark.parametrize("run", [chain_loop, whole_loop, responses_loop, async_loop])
def test_the_loop_ends_only_with_the_glue(
    run: Callable[[StrictServer, bool], Any], record_property: Callable[[str, object], None]
) -> None:
    check_loop(run, record_property)


def call_llm(*arguments: str, home: Path, given: str | None = None, **more: str) -> str:
    """Runs the real program, which finds the plugin by its entry point; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "llm", *arguments],
        env={"LLM_USER_PATH": str(home), "OPENAI_API_KEY": "none", "PATH": "", "HOME": str(home), **more},
        input=given or "",
        capture_output=True,
        check=False,
        text=True,
    )
    return done.stdout if done.returncode == 0 else f"error {done.returncode}: {done.stderr}"


def test_the_program_finds_the_plugin_and_asks_a_model_that_fits(tmp_path: Path) -> None:
    with strict_server(steps=0) as server:
        models = f"- model_id: harbour\n  model_name: gpt-4o\n  api_base: {server.url}/v1\n"
        (tmp_path / "extra-openai-models.yaml").write_text(models, "utf-8")
        assert "Ullage: ullage/harbour" in call_llm("models", home=tmp_path)
        name = ("-m", "ullage/harbour")
        refused = call_llm(*name, "Hello", home=tmp_path)
        assert "the context window of 'harbour' is not known" in refused
        limit = ("-o", "ullage_limit", "300")
        answers = [call_llm(*name, *limit, "Boats? " * 50, home=tmp_path)]
        answers += [call_llm("-c", *limit, "More boats? " * 50, home=tmp_path) for _ in range(3)]
    assert answers == ["I have read the whole logbook.\n"] * 4
    assert len(server.bodies) == 4
    assert len(server.bodies[-1]["messages"]) < 7
    assert "ullage_limit" not in json.dumps(server.bodies)
    counted = call_llm("ullage", "count", "-c", "-m", "gpt-4o", home=tmp_path)
    assert int(counted.split()[0]) > 500  # the log has all of it


def test_the_commands_tell_limits_and_sizes(tmp_path: Path) -> None:
    assert call_llm("ullage", "limits", "gpt-4o-mini", home=tmp_path) == "gpt-4o-mini: limit 111,616 tokens\n"
    told = call_llm("ullage", "count", "-m", "ullage/4o", home=tmp_path, given="A boat came.")
    assert told == "11 tokens for gpt-4o; limit 111,616 tokens\n"
    assert "The log has no conversation yet" in call_llm("ullage", "count", "-c", home=tmp_path)
    assert "llm models lists the models" in call_llm("ullage", "count", "-m", "no", "x", home=tmp_path)


def test_a_version_that_is_too_old_is_a_warning_and_no_error() -> None:
    program = "import sys; sys.modules['llm.parts'] = None; import ullage.integrations.llm_plugin"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert "The integration for llm cannot import it" in done.stderr


def test_calls_without_ids_keep_their_results_and_unchanged_messages_are_the_given_ones() -> None:
    messages = [llm.user("Read.")]
    for page in range(40):
        messages.append(llm.assistant(ToolCallPart("a", {"page": page}), ToolCallPart("b", {})))
        messages.append(llm.tool_message(ToolResultPart("a", f"boat {page} " * 30), ToolResultPart("b", "-")))
    before = [message.to_dict() for message in messages]
    fitted = fit_messages(HistoryFitter(limit=2_000), messages, [], "gpt-4o")
    assert [message.to_dict() for message in messages] == before
    assert len(fitted) < len(messages)
    assert fitted[-1] is messages[-1]
    for call, result in pairwise(fitted):
        if any(isinstance(part, ToolCallPart) for part in call.parts):
            assert [part.name for part in result.parts] == ["a", "b"]


def test_a_picture_and_a_thought_stay_as_they_are() -> None:
    pixel = llm.Attachment(type="image/png", content=b"\x89PNG\r\n\x1a\n")
    messages = [llm.system("Look."), llm.user("This.", pixel), llm.assistant("A boat."), llm.user("And?")]
    fitter = HistoryFitter(limit=5_000)
    assert fit_messages(fitter, messages, [], "gpt-4o") is messages


def test_pictures_in_results_are_counted_and_left_alone() -> None:
    told: list[Any] = []
    fitter = HistoryFitter(limit=4_000, report=told.append)
    for pictures in ([], [llm.Attachment(type="image/png", content=PIXEL)] * 2):
        result = ToolResultPart("look", "A boat.", attachments=pictures)
        call = llm.assistant(ToolCallPart("look", {}))
        messages = [llm.user("Look."), call, llm.tool_message(result)]
        assert fit_messages(fitter, messages, [], "gpt-4o") is messages
    bare, seen = (each.count.tokens for each in told)
    assert seen >= bare + 2 * PICTURE_TOKENS


def test_the_example_of_the_page_runs(page_server: StrictServer) -> None:
    run_page("llm")
    assert page_server.report().finished
