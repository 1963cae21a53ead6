"""The `ullage` program as its users meet it: real processes, real pipes, a real terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

import ullage
from tests.terminal import close
from tests.world import PATIENCE, environment

ROOT = Path(__file__).resolve().parent.parent
SESSION = ROOT / "examples" / "session.json"
PROGRAM = str(Path(sys.executable).with_name("ullage"))
ESCAPE = "\x1b["

Write = Callable[[str, str | bytes], Path]


def run(*arguments: object, given: str | bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    data = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input=data,
        capture_output=True,
        env=environment(**more),
        timeout=PATIENCE,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def lines(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def request(text: str, **more: Any) -> dict[str, Any]:
    return {**more, "messages": [{"role": "user", "content": text}]}


def jsonl(*requests: Any) -> str:
    return "".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in requests)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return made


@pytest.fixture(scope="module")
def session() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SESSION.read_text("utf-8"))
    return loaded


# What comes out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "somebody-elses-model"])
def test_count_says_what_the_library_says(session: dict[str, Any], model: str) -> None:
    found = lines(run("count", "--json", "--model", model, SESSION))
    counted = ullage.count(session["messages"], model, session["tools"])
    assert found == [
        {
            "id": session["id"],
            "tokens": counted.tokens,
            "ceiling": counted.ceiling,
            "exact": counted.exact,
            "breakdown": counted.breakdown,
            "model": model,
        }
    ]


def test_fit_says_what_the_library_says_and_keeps_the_rest_of_the_request(session: dict[str, Any]) -> None:
    (found,) = lines(run("fit", "--json", "--limit", 2500, SESSION))
    fitted = ullage.fit(session["messages"], "gpt-4o", session["tools"], 2500)
    report = found.pop("ullage")
    assert found == {**session, "messages": list(fitted.messages)}
    assert (report["tokens_before"], report["tokens_after"]) == (fitted.tokens_before, fitted.tokens_after)
    assert (report["dropped"], report["truncated"]) == (fitted.dropped, fitted.truncated)
    assert [each["handle"] for each in report["changes"]] == [each.handle for each in fitted.changes]


def test_what_fits_already_is_given_back_as_it_was(session: dict[str, Any]) -> None:
    (found,) = lines(run("fit", "--json", SESSION))
    assert found.pop("ullage")["changed"] is False
    assert found == session


def test_the_policy_can_be_given_as_options(session: dict[str, Any]) -> None:
    policy = ullage.FitPolicy(low_water=1.0, digest_share=0.1, max_turns=9, pins=frozenset({8}), recall=True)
    options = ("--low-water", 1, "--digest-share", 0.1, "--max-turns", 9, "--pin", 8, "--recall")
    (found,) = lines(run("fit", "--json", "--limit", 2500, *options, SESSION))
    fitted = ullage.fit(session["messages"], "gpt-4o", session["tools"], 2500, policy=policy)
    assert found["messages"] == list(fitted.messages)


def test_a_schema_is_within_the_limit_too(session: dict[str, Any]) -> None:
    members = {f"member_{number}": {"type": "string", "description": "x " * 20} for number in range(20)}
    schema = {"name": "answer", "schema": {"type": "object", "properties": members}}
    body = {**session, "response_format": {"type": "json_schema", "json_schema": schema}}
    (found,) = lines(run("fit", "--json", "--limit", 2500, given=json.dumps(body)))
    assert found["response_format"] == body["response_format"]
    assert found["ullage"]["ceiling"] <= 2500
    del found["ullage"], found["id"]
    assert ullage.count_request(found, "openai.chat").ceiling <= 2500


def test_requests_of_another_api_are_fitted_in_their_own_shape() -> None:
    turns = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"turn {n} " * 60} for n in range(21)]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "Be brief.", "messages": turns}
    (found,) = lines(
        run("fit", "--json", "--limit", 1500, "--api", "anthropic.messages", given=json.dumps(body))
    )
    report = found.pop("ullage")
    assert report["changed"]
    assert found["max_tokens"] == 100
    assert "Be brief." in json.dumps(found["system"])
    assert {each["role"] for each in found["messages"]} <= {"user", "assistant"}
    assert ullage.count_request(found, "anthropic.messages").ceiling == report["ceiling"] <= 1500


@pytest.mark.parametrize(
    "text",
    [
        '[{"role": "user", "content": "hi"}]',
        '[\n  {"role": "user", "content": "hi"}\n]',
        '{"messages": [\n{"role": "user",\n"content": "hi"}]}\n',
        '\n\n{"messages": [{"role": "user", "content": "hi"}]}\n\n',
        '\ufeff{"messages": [{"role": "user", "content": "hi"}]}',
    ],
    ids=["a list", "a list over lines", "an object over lines", "blank lines", "a byte-order mark"],
)
def test_a_document_may_be_written_in_any_way(text: str) -> None:
    (found,) = lines(run("count", "--json", given=text))
    assert found["tokens"] == ullage.count([{"role": "user", "content": "hi"}], model="gpt-4o").tokens


def test_files_and_standard_input_are_read_in_the_order_of_their_names(write: Write) -> None:
    first, last = write("a.jsonl", jsonl(request("a", id=1), request("b", id=2))), write("c.json", "[]")
    done = run("count", "--json", first, "-", last, given=jsonl(request("c", id=3)))
    assert [each["id"] for each in lines(done)] == [1, 2, 3, None]


def test_a_lone_surrogate_is_counted_and_given_back() -> None:
    given = '{"id": "\\udc00", "messages": [{"role": "user", "content": "a\\ud800b"}]}'
    (found,) = lines(run("fit", "--json", given=given))
    assert (found["id"], found["messages"][0]["content"]) == ("\udc00", "a\ud800b")


# Batches ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batch() -> str:
    """Good lines with some bad ones among them."""
    made: list[Any] = [request(f"line {number} " * 40, id=number) for number in range(400)]
    made[3] = '{"id": 3, "messages": [\n'
    made[77] = request("x", id=77) | {"messages": [{"role": "robot", "content": "x"}]}
    made[399] = "\x00\x01\n"
    return jsonl(*made)


def test_results_of_several_processes_are_in_order_with_errors_in_their_places(batch: str) -> None:
    done = run("count", "--json", "--jobs", 2, given=batch)
    found = lines(done)
    assert done.returncode == 1
    assert len(found) == 400
    for number, each in enumerate(found):
        if number in (3, 77, 399):
            assert each["line"] == number + 1
            assert each["error"]["message"]
        else:
            assert each["id"] == number
            assert each["tokens"] > 40


def test_the_number_of_processes_changes_nothing(batch: str) -> None:
    one, three = (
        run("fit", "--json", "--limit", 150, "--jobs", 1, given=batch),
        run("fit", "--json", "--limit", 150, "--jobs", 3, given=batch),
    )
    assert one.stdout == three.stdout
    assert one.stderr == three.stderr


def test_one_job_answers_each_line_as_it_comes() -> None:
    with subprocess.Popen(
        [PROGRAM, "count", "--json", "--jobs", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(jsonl(request("hello", id=number)).encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_a_flood_of_bad_lines_is_told_in_short() -> None:
    done = run("count", "--json", given="nonsense\n" * 500)
    assert len(lines(done)) == 500
    assert len(done.stderr.splitlines()) == 21
    assert "480 more bad lines" in done.stderr.decode()


def test_a_reader_that_goes_away_ends_the_program_quietly(write: Write) -> None:
    path = write("many.jsonl", jsonl(*(request("word " * 300, id=number) for number in range(3000))))
    command = f"'{PROGRAM}' fit --json --limit 400 --jobs 2 '{path}' | head -n 1"
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, env=environment(), timeout=PATIENCE, check=False
    )
    assert json.loads(done.stdout)["id"] == 0
    assert done.stderr == b""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_ends_the_program_at_once(write: Write, jobs: str) -> None:
    path = write(
        "many.jsonl", jsonl(*(request(f"word {number} " * 3000, id=number) for number in range(3000)))
    )
    with subprocess.Popen(
        [PROGRAM, "count", "--json", "--jobs", jobs, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert told == b"ullage: interrupted\n"


# What goes wrong -------------------------------------------------------------------------------------

ORPHAN = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c1", "content": "y"}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OPEN_CALL = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]

BAD: dict[str, tuple[str | bytes, str]] = {
    "a list of requests": (
        '[{"messages": [{"role": "user", "content": "x"}]}]',
        "line 1: this is a list of requests: write one request a line",
    ),
    "bad JSON": ('{"messages": [}', r"line 1: not JSON: Expecting value \(column 15\)"),
    "a line that ends too soon": ('{"messages": [{"role": "us\n', r"line 1: not JSON: Unterminated string"),
    "a bad document over lines": ('{\n"messages": [\n{"role" "user"}]}', r"line 3: not JSON: .*column 9"),
    "an unknown role": (
        '[{"role": "robot", "content": "x"}]',
        r"line 1, field messages\[0\].role: unknown role",
    ),
    "an orphaned result": (json.dumps(ORPHAN), r"field messages\[1\].tool_call_id: .* answers no open call"),
    "a call without a result": (json.dumps(OPEN_CALL), r"field messages: calls without a result"),
    "content of a wrong type": ('[{"role": "user", "content": 7}]', r"field messages\[0\].content: "),
    "tools of a wrong type": ('{"messages": [], "tools": "f"}', r"field tools: must be a list"),
    "no messages": ('{"model": "gpt-4o"}', r"field messages: the messages are missing"),
    "an empty list": ("[]", r"field messages: there are no messages"),
    "a number": ("12", r"line 1: a request must be an object or a list"),
    "binary garbage": (b"\x89\xf1\x00\xff" * 99, r"line 1: binary data: byte 0x89 \(column 1\)"),
    "gzip": (b"\x1f\x8b\x08\x00\n\x00\n", r"line 1: this is gzip data"),
    "UTF-16": ("[]".encode("utf-16-le").join([b"\xff\xfe", b""]), r"line 1: this is UTF-16"),
    "invalid UTF-8": (
        b'[{"role": "user", "content": "\xe9"}]',
        r"line 1: not UTF-8 text: byte 0xe9 \(column 31\)",
    ),
    "nothing": ("", r"line 1: the input is empty"),
    "only blanks": ("\n \n", r"line 1: the input is empty"),
    "deep nesting": ("[" * 50_000 + "]" * 50_000, r"line 1: nested too deeply"),
    "NaN": ('{"messages": [{"role": "user", "content": "x"}], "top_p": NaN}', r"line 1: not JSON: NaN"),
}


@pytest.mark.parametrize("command", ["count", "fit"])
def test_bad_input_is_told_with_its_place(write: Write, command: str) -> None:
    paths = {kind: write(f"{kind}.jsonl", content) for kind, (content, _) in BAD.items()}
    done = run(command, "--json", *paths.values())
    told = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert len(told) == len(lines(done)) == len(BAD)
    for line, (kind, path) in zip(told, paths.items(), strict=True):
        assert line.startswith(f"ullage: {path}, line ")
        assert re.search(BAD[kind][1], line), line


@pytest.mark.parametrize("kind", BAD)
def test_explain_tells_bad_input_with_its_place(write: Write, kind: str) -> None:
    content, message = BAD[kind]
    path = write("input.jsonl", content)
    done = run("explain", path)
    assert done.returncode == 1
    assert re.search(f"^ullage: {re.escape(str(path))}, .*{message}", done.stderr.decode())


def test_plain_text_is_counted_as_a_text(tmp_path: Path) -> None:
    note, other = tmp_path / "note.md", tmp_path / "other"
    note.write_text("hello world")
    other.write_text("hello world " * 1000)
    tokens = ullage.get_tokenizer("gpt-4o").count(other.read_text())
    assert run("count", "--model", "gpt-4o", note).stdout.decode() == f"2 tokens  {note}\n"
    assert run("count", "--model", "gpt-4o", note, other).stdout.decode().splitlines() == [
        f"    2 tokens  {note}",
        f"{tokens:,} tokens  {other}",
        f"{tokens + 2:,} tokens  total",
    ]
    assert run("count", "--text", "--model", "gpt-4o", given="hello world").stdout == b"2 tokens\n"
    (found,) = lines(run("count", "--text", "--json", "--model", "gpt-4o", note))
    assert found == {"source": str(note), "tokens": 2, "ceiling": 2}
    assert run("count", note, given="x").returncode == 0
    assert run("count", "--text", "-o", tmp_path / "out.jsonl", note).returncode == 2
    assert run("count", "--text", tmp_path / "missing").returncode == 2
    note.write_text('{"messages": [}')
    assert b"not JSON" in run("count", note).stderr  # it looks like a request


def test_the_count_of_a_text_without_a_model_is_marked_as_an_estimate() -> None:
    assert run("count", "--text", given="hello world").stdout == b"~2 tokens\n"
    (found,) = lines(run("count", "--text", "--json", given="hello world"))
    assert found["tokens"] < found["ceiling"]


def test_an_overflow_has_its_own_exit_code_and_figures() -> None:
    long = [{"role": "system", "content": "word " * 500}, {"role": "user", "content": "hi"}]
    done = run("fit", "--json", "--limit", 200, given=json.dumps(long))
    (found,) = lines(done)
    assert done.returncode == 3
    assert found["error"]["type"] == "ContextOverflowError"
    assert found["error"]["tokens"] > found["error"]["limit"] == 200
    assert "Cannot fit request" in done.stderr.decode()
    assert run("explain", "--limit", 200, given=json.dumps(long)).returncode == 3


def test_overflows_among_other_failures_are_bad_lines() -> None:
    overflow, fine = request("word " * 500), request("hi")
    assert run("fit", "--json", "--limit", 100, given=jsonl(overflow, fine, overflow)).returncode == 3
    assert run("fit", "--json", "--limit", 100, given=jsonl(overflow, fine, "{\n")).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["count", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["count", "no-such-file.json"], "no-such-file.json: No such file or directory"),
        (["count", "--api", "telepathy"], "unknown API 'telepathy'"),
        (["count", "--jobs", "0"], "less than 1"),
        (["fit", "--limit", "many"], "'many' is not a whole number"),
        (["fit", "--limit", "-5"], "-5"),
        (["fit", "--low-water", "7"], "low_water must be a number from 0 to 1, not 7"),
        (["explain", "--line", "9", str(SESSION)], "no request on line 9"),
        (["cuont"], "Unknown command 'cuont'. Did you mean 'count'?"),
    ],
)
def test_wrong_usage_is_told_in_a_line(arguments: list[str], message: str) -> None:
    done = run(*arguments, given="[]")
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().startswith("ullage: ")
    assert message in done.stderr.decode()
    assert len(done.stderr.splitlines()) <= 2


def test_a_model_whose_window_is_not_known_needs_a_limit() -> None:
    given = jsonl(request("hi", model="somebody-elses-model"))
    done = run("fit", "--json", given=given)
    assert done.returncode == 2
    assert "set --limit N" in done.stderr.decode()
    assert run("fit", "--json", "--limit", 100, given=given).returncode == 0


def test_a_missing_file_is_told_before_anything_is_done(write: Write) -> None:
    path = write("good.jsonl", jsonl(request("hi")))
    assert run("count", "--json", path, "no-such-file.json").stdout == b""


# For people ------------------------------------------------------------------------------------------


def test_output_that_is_not_for_a_terminal_has_no_escape_codes() -> None:
    for arguments in (["count"], ["fit", "--limit", 2500], ["explain", "--limit", 2500]):
        done = run(*arguments, SESSION)
        assert done.returncode == 0
        assert ESCAPE not in done.stdout.decode()
        assert "turns" in done.stdout.decode()


def test_several_requests_have_a_row_each_and_a_total() -> None:
    done = run("count", given=jsonl(request("a", id="first"), request("b", id="second"), "nonsense\n"))
    heading, first, second, bad, total, *_ = done.stdout.decode().splitlines()
    assert heading.split() == ["tokens", "at", "most"]
    assert first.split() == ["stdin:1", "first", "gpt-4o", "8", "8"]
    assert second.split() == ["stdin:2", "second", "gpt-4o", "8", "8"]
    assert bad.split() == ["stdin:3", "InputError"]
    assert total.split() == ["3", "requests", "16", "16"]


def test_output_fits_a_narrow_page() -> None:
    for width in (40, 80):
        for arguments in (["count", SESSION], ["fit", "--limit", 2500, SESSION], ["count", SESSION, SESSION]):
            shown = run(*arguments, COLUMNS=str(width)).stdout.decode()
            assert max(map(len, shown.splitlines())) <= width


def test_a_page_that_lacks_characters_gets_question_marks() -> None:
    done = run("explain", "--limit", 2500, SESSION, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert b"?" in done.stdout


def test_explain_has_a_line_for_every_message_and_the_digest() -> None:
    pinned = ("--low-water", 0.5, "--digest-share", 0.25)  # so that tuning the defaults changes nothing here
    shown = run("explain", "--limit", 3600, *pinned, SESSION).stdout.decode()
    assert re.search(r"^ 0 system .* essential +system prompt, with the digest$", shown, re.MULTILINE)
    assert re.search(
        r"^ 1 user .* → 0 evicted +the task: now above the digest\b.* [a-z2-7]{8}$",
        shown,
        re.MULTILINE,
    )
    assert re.search(
        r"^12 tool .* (?:placeholder +6 steps old|evicted +old exchange, 2 of 5).* [a-z2-7]{8}$",
        shown,
        re.MULTILINE,
    )
    assert re.search(r"^30 user .* essential +the last user message\b", shown, re.MULTILINE)
    assert "[the user's task]\n  Bookings that end at midnight" in shown
    assert "limit 3,600" in shown


def test_what_explain_says_is_what_fit_does(session: dict[str, Any]) -> None:
    for limit in (500, 2500, 3600):
        (told,) = lines(run("explain", "--json", "--limit", limit, SESSION))
        fitted = ullage.fit(session["messages"], "gpt-4o", session["tools"], limit)
        changes = {each.index: each for each in fitted.changes}
        assert [each["index"] for each in told["messages"]] == list(range(len(session["messages"])))
        for each in told["messages"]:
            change = changes.get(each["index"])
            assert each["handle"] == (change.handle if change else None)
            assert (each["what"] in ("kept", "essential")) == (change is None)
        after = sum(each["tokens_after"] for each in told["messages"])
        framing = ullage.count([], "gpt-4o").tokens + told["after"]["tools"]
        assert after + framing == told["tokens_after"] == fitted.tokens_after


def test_explain_takes_one_line_of_many(write: Write) -> None:
    path = write("two.jsonl", jsonl(request("first words"), request("other words")))
    assert "first words" in run("explain", path).stdout.decode()
    assert "other words" in run("explain", path, "--line", 2).stdout.decode()


def test_text_cannot_give_orders_to_the_terminal() -> None:
    given = json.dumps(request("\x1b[2J\x07boo", id="\x1b[31m", model="gpt\x1b]0;x\x07"))
    for command in ("count", "explain"):
        done = run(command, "--limit", 100, given=given)
        assert b"\x1b" not in done.stdout + done.stderr
        assert b"\x07" not in done.stdout + done.stderr


# On a terminal ---------------------------------------------------------------------------------------


def terminal(*arguments: object, columns: int = 100, **more: str) -> str:
    child: Any = pexpect.spawn(
        PROGRAM,
        [str(each) for each in arguments],
        env=environment(**more),
        dimensions=(50, columns),
        encoding="utf-8",
        timeout=PATIENCE,
    )
    child.expect(pexpect.EOF)
    close(child)
    shown: str = child.before
    return shown


def test_a_terminal_gets_colours() -> None:
    shown = terminal("explain", SESSION, "--limit", 2500)
    assert f"{ESCAPE}31mevicted" in shown
    assert f"{ESCAPE}34m█" in terminal("count", SESSION)


def test_no_color_is_respected() -> None:
    assert ESCAPE not in terminal("explain", SESSION, "--limit", 2500, NO_COLOR="1")
    assert ESCAPE not in terminal("count", SESSION, TERM="dumb")


def test_the_width_of_the_terminal_is_respected() -> None:
    for columns in (50, 80):
        shown = terminal("explain", SESSION, "--limit", 2500, columns=columns, NO_COLOR="1")
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


def test_a_long_batch_shows_its_progress_and_clears_it_away(write: Write) -> None:
    path = write("many.jsonl", jsonl(*(request("hello", id=number) for number in range(6))))
    # Lines that come slowly make a batch that takes a while, on a machine of any speed.
    slowly = f"while read -r line; do echo \"$line\"; sleep 0.2; done < '{path}'"
    child: Any = pexpect.spawn(
        "/bin/sh",
        ["-c", f"{{ {slowly}; }} | '{PROGRAM}' count --json --jobs 1"],
        env=environment(),
        encoding="utf-8",
        timeout=PATIENCE,
    )
    child.expect(pexpect.EOF)
    shown: str = child.before
    assert re.search(r"counting: \d requests", shown)
    assert "\r\x1b[2K" in shown[shown.rindex("counting") :]
    printed = [line for line in re.split(r"\r\x1b\[2K|\r\n", shown) if line.startswith("{")]
    assert [json.loads(line)["id"] for line in printed] == list(range(6))


def test_the_progress_bar_grows_and_keeps_to_the_width() -> None:
    from ullage.batch.chunk import START
    from ullage.batch.outcome import FinishedChunk, Outcome
    from ullage.cli.progress import Bar

    bar = Bar("counting", 1000, on=False)
    lengths = []
    for seconds in range(1, 5):
        bar.advance(FinishedChunk([Outcome("f", 1, "", "", {}, "", b"")] * 50, 250, 0, START))
        assert all(len(bar.text(width, seconds)) <= width for width in range(10, 100))
        lengths.append(bar.text(100, seconds).count("━"))
        assert bar.text(100, seconds).endswith(f" requests, 50/s, 0:0{4 - seconds} left")
    assert lengths == sorted(set(lengths))
    assert "100%  200 requests" in bar.text(100, 4)


def test_the_progress_of_a_resumed_batch_begins_where_the_last_one_stopped() -> None:
    from ullage.batch.chunk import START
    from ullage.batch.outcome import FinishedChunk, Outcome
    from ullage.cli.progress import Bar

    bar = Bar("fitting", 8_000_000, 4_000_000, on=False)
    bar.advance(FinishedChunk([Outcome("f", 1, "", "", {}, "", b"")] * 10, 1_000, 0, START))
    assert "50%  10 requests, 10/s, 1:06:39 left" in bar.text(100, 1)


def test_a_terminal_without_a_file_says_what_it_waits_for() -> None:
    child: Any = pexpect.spawn(
        PROGRAM, ["count", "--json"], env=environment(), encoding="utf-8", timeout=PATIENCE
    )
    child.expect("Ctrl-D")
    child.sendline('[{"role": "user", "content": "hi"}]')
    child.sendeof()
    child.expect('"tokens":8')
    child.expect(pexpect.EOF)


# The program itself ----------------------------------------------------------------------------------


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout.decode() == f"ullage {ullage.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["count", "--help"], ["fit", "--help"], ["explain", "--help"]]
)
def test_help_tells_the_exit_codes(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert "3  overflow" in done.stdout.decode()
    assert len(arguments) < 2 or "examples:" in done.stdout.decode()


def test_help_tells_the_defaults_of_the_policy() -> None:
    shown = " ".join(run("fit", "--help").stdout.decode().split())
    policy = ullage.FitPolicy()
    for field in ("low_water", "digest_share", "max_age", "max_tokens_per_output", "preserve_recent_turns"):
        option = shown[shown.index(f"--{field.replace('_', '-')}") :]
        assert option[option.index("(default: ") :].startswith(f"(default: {getattr(policy, field)}")


def test_nothing_heavy_is_loaded_for_the_version() -> None:
    code = (
        "import sys; from ullage.cli import main; main(['--version']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "argparse",
        "json",
        "rich",
        "orjson",
        "splintr",
        "dataclasses",
        "multiprocessing",
        "ullage.tokens",
    }
    assert not heavy & set(done.stderr.split())


def test_the_version_takes_at_most_three_times_a_bare_python() -> None:
    from bench.coldstart import cpu_seconds

    deadline = time.monotonic() + PATIENCE
    best = {"bare": 1e9, "version": 1e9}
    while best["version"] > 3 * best["bare"] or best["bare"] == 1e9:
        assert time.monotonic() < deadline, best
        best["bare"] = min(best["bare"], cpu_seconds([sys.executable, "-c", "pass"]))
        best["version"] = min(best["version"], cpu_seconds([PROGRAM, "--version"]))
