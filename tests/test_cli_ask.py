"""`ullage ask` as its users meet it: real processes, a real store, the embedded model or a played server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import world
from tests.llama import needs_local
from tests.player import Player, Script, playing, sent_json
from ullage import store
from ullage.cli.exit_codes import code_of
from ullage.context import Context
from ullage.context.journal import JournalEvent
from ullage.errors import ProviderError, UllageError
from ullage.target import Target

PROGRAM = str(Path(sys.executable).with_name("ullage"))
SECRET = "sk-harbour-0123456789abcdefghij"  # noqa: S105 - nobody's


def chunk(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"id": "c", "choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


ENDING = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":41,"completion_tokens":3,"total_tokens":44}}\n\n'
    b"data: [DONE]\n\n"
)
ANSWER = Script(body=chunk(role="assistant", content="Seven ") + chunk(content="boats.") + ENDING)


def environment(player: Player | None = None, **more: str) -> dict[str, str]:
    told = {"OPENAI_BASE_URL": f"{player.url}/v1", "OPENAI_API_KEY": SECRET} if player is not None else {}
    return {**world.environment(), **told, "NO_PROXY": "*", "XDG_CONFIG_HOME": "/nowhere", **more}


def ask(
    folder: Path, *arguments: str, player: Player | None = None, piped: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "ask", "--store", str(folder / "ullage.db"), *arguments],
        input=piped,
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        env=environment(player, **more),
    )


def spent(folder: Path, session: str) -> tuple[Any, Any]:
    """What the session has spent, and what is still held for it."""
    with store.open(folder / "ullage.db") as kept:
        return kept.book.used("session", session)


GPT = ("--model", "openai/gpt-4o", "--session", "monday")


def test_a_silent_server_is_given_up_after_the_configured_time(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    with playing(Script(silent=True)) as player:
        config.write_text(
            f'[models.slow]\nendpoint = "{player.url}/v1"\nmodel = "gpt-4o"\nprices.input = 1\n'
            "prices.output = 1\ntimeouts.begin = 2\ntimeouts.first = 1\n"
        )
        config.chmod(0o600)
        done = ask(tmp_path, "--config", str(config), "--model", "slow", "--session", "monday", "How many?")
    assert done.returncode == code_of(ProviderError("late"))
    assert "no answer began within 2 s" in done.stderr
    paid, held = spent(tmp_path, "monday")
    assert (paid > 0, held) == (True, 0)


def test_an_answer_is_printed_kept_and_on_the_bill(tmp_path: Path) -> None:
    with playing(ANSWER) as player:
        done = ask(tmp_path, *GPT, "How many boats?", player=player)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Seven boats.\n", "")
    request = player.requests[-1]
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.json()["stream_options"] == {"include_usage": True}
    with store.open(tmp_path / "ullage.db") as kept:
        turns = Context.resume("monday", kept.journal).turns
        assert [turn["content"] for turn in turns] == ["How many boats?", "Seven boats."]
        assert (
            kept.calibration.learned(Target(endpoint=f"{player.url}/v1", model="gpt-4o", api="openai.chat"))
            is not None
        )
    assert spent(tmp_path, "monday")[0] > 0
    assert spent(tmp_path, "monday")[1] == 0


def test_a_session_goes_on_and_what_is_piped_in_is_part_of_the_question(tmp_path: Path) -> None:
    with playing(ANSWER) as player:
        ask(tmp_path, *GPT, "How many boats?", player=player)
        done = ask(
            tmp_path, *GPT, "--system", "Be kind.", "Explain", "this:", player=player, piped="a log line\n"
        )
    assert done.returncode == 0
    messages = player.requests[-1].json()["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == "Be kind."
    assert messages[-1]["content"] == "Explain this:\n\na log line\n"


def test_json_is_one_object_with_all_that_is_known(tmp_path: Path) -> None:
    with playing(ANSWER) as player:
        done = ask(tmp_path, *GPT, "--json", "How many boats?", player=player)
    told = json.loads(done.stdout)
    assert told["text"] == "Seven boats."
    assert told["finish"] == "stop"
    assert told["session"] == "monday"
    assert told["usage"]["prompt"] == 41
    assert told["usage"]["reported"] is True
    assert float(told["cost"]) > 0


@pytest.mark.parametrize("as_json", [False, True])
def test_what_goes_wrong_has_a_line_and_a_code_of_its_own(tmp_path: Path, as_json: bool) -> None:
    refused = sent_json({"error": {"message": f"Incorrect API key provided: {SECRET}"}}, 401)
    more = ["--json"] if as_json else []
    cases: list[tuple[Script, list[str], int, str]] = [
        (refused, [], 1, "OPENAI_API_KEY"),
        (ANSWER, ["--window", "60", "--max-output", "20", "word " * 100], 3, "Cannot fit request"),
        (ANSWER, ["--cap", "0.0000001"], 4, "could cost"),
        (Script(body=ANSWER.body, cut_at=len(chunk(role="assistant", content="Seven ")) + 5), [], 5, ""),
    ]
    for number, (script, options, code, text) in enumerate(cases):
        with playing(script) as player:
            names = ("--model", "openai/gpt-4o", "--session", f"s{number}")
            done = ask(tmp_path, *names, *more, *options, "How many boats?", player=player)
        said = done.stdout if as_json else done.stderr
        assert done.returncode == code, said
        assert text in said
        assert SECRET not in done.stdout + done.stderr
        assert spent(tmp_path, f"s{number}")[1] == 0
        if as_json:
            assert json.loads(done.stdout)["error"]["message"]


def test_a_broken_answer_is_printed_kept_and_paid_for(tmp_path: Path) -> None:
    cut = Script(body=ANSWER.body, cut_at=len(chunk(role="assistant", content="Seven ")) + 5)
    with playing(cut) as player:
        done = ask(tmp_path, *GPT, "How many boats?", player=player)
    assert done.stdout == "Seven \n"
    with store.open(tmp_path / "ullage.db") as kept:
        assert Context.resume("monday", kept.journal).turns[-1]["content"] == "Seven "
    assert spent(tmp_path, "monday")[0] > 0


def test_a_missing_key_names_its_variable(tmp_path: Path) -> None:
    done = ask(tmp_path, *GPT, "How many boats?")
    assert done.returncode == 2
    assert "OPENAI_API_KEY" in done.stderr


CONFIGURED = """
model = "harbour"
[cost]
cap_at_dollars_a_day = {cap}
[models.harbour]
endpoint = "{url}/v1"
model = "boat-1"
key = "env:HARBOUR_KEY"
window = 4_000
prices = {{ input = 2.00, output = 8.00 }}
"""


def test_the_settings_of_the_conversation_hold_for_a_question(tmp_path: Path) -> None:
    file, options = tmp_path / "config.toml", ("--config", str(tmp_path / "config.toml"), *GPT, "--json")
    with playing(ANSWER) as player:
        file.write_text("")
        for _ in range(6):
            done = ask(tmp_path, *options, "How many boats? " * 20, player=player)
        assert json.loads(done.stdout)["context"]["limit"] == 128_000 - 16_384
        assert len(player.requests[-1].json()["messages"]) == 1 + 11

        file.write_text("[context]\ntoken_budget = 600\nmax_turns = 3\n")
        told = json.loads(ask(tmp_path, *options, "How many boats?", player=player).stdout)
        assert told["context"]["limit"] == 600
        assert told["context"]["dropped"] > 0
        sent = player.requests[-1].json()["messages"]
        assert [message["role"] for message in sent[1:]] in (["user"], ["user", "assistant", "user"])

        file.write_text("[context]\ntoken_budget = 300\nrolling = false\n")
        done = ask(tmp_path, *options, "How many boats?", player=player)
        assert done.returncode == 3
        assert "Nothing is trimmed" in json.loads(done.stdout)["error"]["message"]


def test_the_configuration_names_the_model_its_key_its_prices_and_the_caps(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with playing(ANSWER) as player:
        file.write_text(CONFIGURED.format(url=player.url, cap="1.00"))
        arguments = ("--config", str(file), "--json", "--session", "monday", "How many boats?")
        done = ask(tmp_path, *arguments, HARBOUR_KEY=SECRET)
        told = json.loads(done.stdout)
        assert told["text"] == "Seven boats."
        assert told["context"]["limit"] == 3_000
        assert told["cost"] == "0.000106"
        asked = next(each for each in player.requests if each.path.endswith("/chat/completions"))
        assert asked.json()["model"] == "boat-1"
        assert asked.headers["authorization"] == f"Bearer {SECRET}"

        sent = len(player.requests)
        file.write_text(
            CONFIGURED.format(url=player.url, cap="0.00012")
        )  # too little for the shortest answer
        assert ask(tmp_path, *arguments, HARBOUR_KEY=SECRET).returncode == 4
        asked_again = [each for each in player.requests[sent:] if each.path.endswith("/chat/completions")]
        assert asked_again == []
        assert "HARBOUR_KEY" in ask(tmp_path, *arguments).stdout
    file.write_text("model = 3")
    assert "config.toml:1: model" in ask(tmp_path, "--config", str(file), "How many?").stderr


def test_asking_nothing_is_wrong_usage(tmp_path: Path) -> None:
    done = ask(tmp_path)
    assert done.returncode == 2
    assert "the question is empty" in done.stderr


def test_ctrl_c_stops_with_the_ledger_settled(tmp_path: Path) -> None:
    stalled = Script(body=ANSWER.body, stall_at=len(chunk(role="assistant", content="Seven ")))
    with playing(stalled) as player:
        child = subprocess.Popen(
            [PROGRAM, "ask", "--store", str(tmp_path / "ullage.db"), *GPT, "How many boats?"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(player),
        )
        assert child.stdout is not None
        assert child.stdout.read(6) == b"Seven "
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=world.PATIENCE)
    assert child.returncode == 130
    assert b"Traceback" not in errors
    assert spent(tmp_path, "monday")[0] > 0
    assert spent(tmp_path, "monday")[1] == 0


def test_a_run_leaves_no_trace_of_its_key(tmp_path: Path) -> None:
    echoed = sent_json({"error": {"message": f"bad key {SECRET}", "code": "invalid_api_key"}}, 401)
    scripts = (ANSWER, echoed, Script(body=b'data: {"error": {"message": "' + SECRET.encode() + b'"}}\n\n'))
    said = ""
    with playing(*scripts) as player:
        for _ in scripts:
            done = ask(
                tmp_path, *GPT, "How many boats?", player=player, PYTHONASYNCIODEBUG="1", HOME=str(tmp_path)
            )
            said += done.stdout + done.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left
    for path in left:
        assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in said
    assert SECRET[3:] not in said


@needs_local
def test_the_embedded_model_answers_without_a_key(tmp_path: Path) -> None:
    done = ask(tmp_path, "--model", "embedded", "--max-output", "12", "--json", "Say hello.")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["text"]
    assert told["model"] == "smollm2-135m-instruct"
    assert told["usage"]["prompt"] == told["context"]["tokens"]
    assert told["cost"] is None


def test_a_session_that_this_version_cannot_read_is_a_line_and_no_traceback(tmp_path: Path) -> None:
    with store.open(tmp_path / "ullage.db") as kept:
        kept.journal.append("later", 0, JournalEvent("from a later version", {}))
    model = ("--model", "openai/gpt-4o")
    asked = ask(tmp_path, *model, "--session", "later", "How many boats?", OPENAI_API_KEY=SECRET)
    resumed = subprocess.run(
        [PROGRAM, *model, "--resume", "later", "--store", str(tmp_path / "ullage.db")],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=world.PATIENCE,
        env=environment(OPENAI_API_KEY=SECRET),
    )
    for done in (asked, resumed):
        assert done.returncode == 1
        assert done.stderr.startswith("ullage: ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("error", UllageError.__subclasses__())
def test_every_error_has_an_exit_code(error: type[UllageError]) -> None:
    assert code_of(error.__new__(error)) in {1, 2, 3, 4, 5}
