"""Tools of real MCP servers: what reaches the model, and what happens when a server goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import world
from tests.harbour_server import LONG_NAME
from ullage.config import load
from ullage.errors import ConfigurationError
from ullage.mcp import (
    MAX_RESULT,
    Connected,
    Servers,
    ServerSpec,
    exposed_name,
    link,
    schema_tokens,
    spec_for,
    spec_of,
)
from ullage.text import remove_unsafe
from ullage.tokens.counter import counter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.config import McpSettings

ROOT = Path(__file__).resolve().parent.parent
KEY = "ULLAGE_TEST_PROVIDER_KEY"
VALID = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


def spec(name: str, way: str = "stdio", timeout: float = 20.0, **more: Any) -> ServerSpec:
    env = {"PYTHONPATH": str(ROOT), **more.pop("env", {})}
    args = ("-m", "tests.harbour_server", way)
    return ServerSpec(name=name, command=sys.executable, args=args, env=env, timeout=timeout, **more)


def call(servers: Servers, tool: str, **arguments: Any) -> str:
    """From a loop that ends with the call, as a shell's turns may."""
    return asyncio.run(servers.call(tool, arguments))


def seen(servers: Servers, name: str) -> Connected:
    found = servers.state(name, "gpt-4o")
    assert found is not None
    return found


def gone(pid: int, within: float = world.PATIENCE) -> bool:
    """Whether the process ends within the time."""
    return world.until(lambda: world.gone(pid), within)


def wait_until(true: Callable[[], bool]) -> None:
    assert world.until(true)


class Refusing(BaseHTTPRequestHandler):
    """An address that wants to know who is there."""

    passes: ClassVar[set[str | None]] = set()

    def do_POST(self) -> None:
        self.passes.add(self.headers["x-pass"])
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The harbour over HTTP, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.harbour_server", "http"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", process
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def kept() -> list[str]:
    return []


@pytest.fixture(scope="module")
def servers(kept: list[str]) -> Iterator[Servers]:
    """One server that stays well, and the others that each test brings to grief beside it."""

    def keep(text: str) -> str:
        kept.append(text)
        return "k7q2handle"

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY, "secret")
        servers = Servers(kept=keep)
        asyncio.run(servers.connect(spec("harbour", env={"PILOT": "Ada"})))
        yield servers
        assert seen(servers, "harbour").state == "ready"  # nothing that happened beside it took it along
        asyncio.run(servers.close())


def test_tools_are_offered_in_the_chat_shape_under_names_that_every_provider_takes(servers: Servers) -> None:
    tools = {tool["function"]["name"]: tool for tool in servers.tools()}
    assert all(VALID.match(name) for name in tools)
    assert len(tools) == len(servers.tools())
    tide = tools["harbour__tide"]
    assert tide["type"] == "function"
    assert tide["function"]["parameters"]["properties"]["port"]["type"] == "string"
    assert tide["function"]["parameters"]["required"] == ["port"]


def test_a_description_loses_its_escapes_and_what_turns_the_reading_direction(servers: Servers) -> None:
    (tide,) = (t for t in servers.tools() if t["function"]["name"] == "harbour__tide")
    assert tide["function"]["description"] == "The height of the tide at a port, some hours from now."


def test_a_long_name_is_shortened_and_still_calls_its_tool(servers: Servers) -> None:
    name = exposed_name("harbour", LONG_NAME)
    offered = servers.offered(name)
    assert offered is not None
    assert offered.original == LONG_NAME
    assert call(servers, name) == "all free"


@given(st.text(max_size=90), st.text(max_size=90))
def test_names_are_valid_and_two_tools_never_share_one(one: str, other: str) -> None:
    names = exposed_name("port", one), exposed_name("port", other)
    assert all(VALID.match(name) for name in names)
    assert (names[0] == names[1]) == (one == other)


@given(st.text(st.characters(codec=None)))
def test_clean_text_moves_no_cursor(text: str) -> None:
    cleaned = remove_unsafe(text)
    assert all(letter in "\n\t" or letter >= " " for letter in cleaned)
    assert "\x9b" not in cleaned
    cleaned.encode()


def test_a_call_is_answered_from_arguments_as_text_and_as_an_object(servers: Servers) -> None:
    assert call(servers, "harbour__tide", port="Brest", hours=2) == "Brest: 5 m"
    assert asyncio.run(servers.call("harbour__tide", '{"port": "Brest"}')) == "Brest: 3 m"
    assert asyncio.run(servers.call("harbour__shout", "")) == "abc\nd\tef"


def test_what_is_not_text_is_named(servers: Servers) -> None:
    assert call(servers, "harbour__chart").splitlines() == [
        "see:",
        "[image: image/png, 72 bytes]",
        "[resource south: chart://south]",
        "[resource chart://north]",
        "shoals",
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("harbour__moor", '{"ship": "Ark"}', "no berth for Ark"),
        ("harbour__tide", "{}", "port"),
        ("harbour__tide", '{"port": ', "not JSON"),
        ("harbour__tide", "[1]", "a JSON object, not list"),
        ("harbour__nothing", "{}", "'harbour__nothing'"),
        ("nowhere__tide", "{}", "'nowhere__tide'"),
        ("tide", "{}", "'tide'"),
    ],
)
def test_what_goes_wrong_is_the_answer(servers: Servers, tool: str, arguments: str, told: str) -> None:
    answer = asyncio.run(servers.call(tool, arguments))
    assert answer.startswith("error: ")
    assert told in answer


def test_a_long_result_is_cut_and_the_whole_is_kept(servers: Servers, kept: list[str]) -> None:
    answer = call(servers, "harbour__manifest", letters=MAX_RESULT + 50_000)
    assert len(answer) < MAX_RESULT + 100
    assert answer.startswith("first x")
    assert answer.endswith("x last")
    assert "characters cut, recall k7q2handle" in answer
    assert len(kept[-1]) == MAX_RESULT + 50_000 + len("first  last")


def test_a_server_gets_its_own_environment_and_no_key_of_ours(servers: Servers) -> None:
    names = call(servers, "harbour__process").split()[1:]
    assert {"PATH", "PILOT"} <= set(names)
    assert KEY not in names
    assert set(names) <= {
        "HOME",
        "LC_CTYPE",
        "LOGNAME",
        "PATH",
        "PILOT",
        "PYTHONPATH",
        "SHELL",
        "TERM",
        "USER",
    }


def test_the_schemas_are_counted_as_the_request_counts_them(servers: Servers) -> None:
    here = seen(servers, "harbour")
    tools = [tool.definition for tool in here.tools]
    counter = counter_for("gpt-4o")
    assert here.tokens == counter.request(tools=tools).tokens - counter.request().tokens
    assert here.tokens > 100
    assert schema_tokens([], "gpt-4o") == 0
    assert next(one for one in servers.listed() if one.name == "harbour").tokens is None


def test_every_tool_asks_until_the_user_said_always(servers: Servers) -> None:
    offered = servers.offered("harbour__tide")
    assert offered is not None
    assert offered.read_only  # says the server
    assert servers.needs_confirmation("harbour__tide")
    again = Servers(always=["harbour__tide"])
    assert not again.needs_confirmation("harbour__tide")
    assert again.needs_confirmation("harbour__moor")


def test_a_cancelled_call_leaves_the_server_as_it_was(servers: Servers) -> None:
    async def interrupted() -> None:
        await asyncio.wait_for(servers.call("harbour__fathom", {"seconds": 30}), 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(interrupted())
    assert call(servers, "harbour__tide", port="Brest") == "Brest: 3 m"
    assert seen(servers, "harbour").state == "ready"


def test_ctrl_c_stops_the_call_and_not_the_server(servers: Servers) -> None:
    async def interrupted() -> None:
        asyncio.get_running_loop().call_later(0.2, signal.raise_signal, signal.SIGINT)
        await servers.call("harbour__fathom", {"seconds": 30})

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())
    assert call(servers, "harbour__tide", port="Brest") == "Brest: 3 m"


def test_calls_run_beside_each_other(servers: Servers) -> None:
    async def both() -> str:
        slow = asyncio.create_task(servers.call("harbour__fathom", {"seconds": 3_600}))
        quick = await servers.call("harbour__tide", {"port": "Brest"})
        assert not slow.done()
        slow.cancel()
        return quick

    assert asyncio.run(both()) == "Brest: 3 m"
    assert call(servers, "harbour__fathom", seconds=0) == "deep"


def test_the_same_tools_of_two_servers_are_apart_and_a_crash_ends_only_one(servers: Servers) -> None:
    asyncio.run(servers.connect(spec("quay")))
    names = [tool["function"]["name"] for tool in servers.tools()]
    assert len(names) == len(set(names))
    pids = [int(call(servers, f"{server}__process").split()[0]) for server in ("harbour", "quay")]
    assert pids[0] != pids[1]

    began = time.monotonic()
    answer = call(servers, "quay__sink")
    assert time.monotonic() - began < 15  # its time limit is 20
    assert answer == "error: MCP server quay is dead: its process ended\nstruck a rock"
    assert gone(pids[1])
    assert (seen(servers, "quay").state, seen(servers, "quay").why) == ("dead", "its process ended")
    assert seen(servers, "quay").stderr == "struck a rock\n"
    assert not any(tool["function"]["name"].startswith("quay__") for tool in servers.tools())
    assert call(servers, "quay__tide", port="Brest").startswith("error: MCP server quay is dead")
    assert call(servers, "harbour__tide", port="Brest") == "Brest: 3 m"
    assert asyncio.run(servers.disconnect("quay"))


def test_a_slow_call_is_given_up_and_a_server_that_hangs_is_ended(servers: Servers) -> None:
    dock = spec("dock", "old")
    asyncio.run(servers.connect(dock))
    connection = servers._links["dock"]
    pid = int(call(servers, "dock__grow"))
    connection.spec = replace(dock, timeout=1)  # only the calls that do not end meet it
    assert call(servers, "dock__doze") == "error: doze did not answer within 1 s; it may still be at work"
    connection.spec = dock
    assert call(servers, "dock__grow") == str(pid)
    assert seen(servers, "dock").state == "ready"

    os.kill(pid, signal.SIGSTOP)
    connection.spec = replace(dock, timeout=1)
    began = time.monotonic()
    assert "grow did not answer within 1 s" in call(servers, "dock__grow")
    assert time.monotonic() - began < 15
    assert seen(servers, "dock").state == "hanging"
    assert call(servers, "harbour__tide", port="Brest") == "Brest: 3 m"
    wait_until(lambda: seen(servers, "dock").state == "dead")
    assert seen(servers, "dock").why == "it hangs: grow did not answer within 1 s"
    os.kill(pid, signal.SIGCONT)  # it could be killed as it was, but that takes longer
    assert gone(pid)


def test_a_process_that_is_killed_between_calls_is_noticed_and_can_be_connected_again(
    servers: Servers,
) -> None:
    asyncio.run(servers.connect(spec("pier", "babbling")))
    assert "[not MCP] Harbour 1.0, good morning!" in seen(servers, "pier").stderr
    pid = int(call(servers, "pier__grow"))
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    wait_until(lambda: seen(servers, "pier").state == "dead")
    assert seen(servers, "pier").why == "its process ended"

    assert asyncio.run(servers.connect(spec("pier", "old")))
    pid = int(call(servers, "pier__grow"))
    assert asyncio.run(servers.disconnect("pier"))
    assert gone(pid)
    assert servers.state("pier") is None
    assert not asyncio.run(servers.disconnect("pier"))


# It is no Python, so that its first line comes at once on a machine of any load.
BABBLE = ServerSpec(
    name="babble", command="sh", args=("-c", "while echo ahoy; do sleep 0.05; done"), timeout=1
)
# Whoever waits for its time limit fails by the clock.
FLOOD = ServerSpec(name="flood", command="yes", timeout=600)


@pytest.mark.parametrize(
    ("wrong", "why", "stderr"),
    [
        (spec("wreck", "wreck"), "its process ended", "no harbour here\n"),
        (spec("silent", "silent", 0.5), "it did not answer within 0.5 s", ""),
        (BABBLE, "lines of its standard output are not MCP", "[not MCP] ahoy\n"),
        (
            ServerSpec(name="flood", command="yes", timeout=600),
            "its standard output is not MCP",
            "[not MCP] y\n",
        ),
        (
            ServerSpec(name="missing", command="no-such-program-here"),
            "No such file or directory: no-such-program-here",
            "",
        ),
        (ServerSpec(name="closed", url="http://127.0.0.1:9/mcp"), "connection attempts failed", ""),
    ],
    ids=lambda value: value.name if isinstance(value, ServerSpec) else "",
)
def test_a_server_that_cannot_be_connected_is_reported_in_time(
    servers: Servers, wrong: ServerSpec, why: str, stderr: str
) -> None:
    began = time.monotonic()
    assert asyncio.run(servers.connect(wrong)) == []
    assert time.monotonic() - began < world.PATIENCE
    reef = seen(servers, wrong.name)
    assert reef.state == "dead"
    assert why in reef.why
    assert stderr in reef.stderr
    assert reef.tools == ()


def test_over_http_it_is_the_same_until_the_server_goes_away(servers: Servers) -> None:
    with served() as (url, process):
        assert asyncio.run(servers.connect(ServerSpec(name="far", url=url, timeout=60)))
        assert (seen(servers, "far").transport, seen(servers, "far").state) == ("http", "ready")
        assert call(servers, "far__tide", port="Brest") == "Brest: 3 m"
        assert call(servers, "far__moor", ship="Ark").startswith("error: ")
        assert len(call(servers, "far__manifest", letters=2_000_000)) < MAX_RESULT + 100

        began = time.monotonic()
        answer = call(servers, "far__sink")
        assert process.wait(world.PATIENCE) == 3
    assert time.monotonic() - began < 30
    assert answer.startswith("error: MCP server far is dead: ")
    assert seen(servers, "far").state == "dead"
    assert call(servers, "far__tide", port="Brest").startswith("error: MCP server far is dead: ")
    assert asyncio.run(servers.disconnect("far"))


def test_an_address_that_says_nothing_or_refuses_is_reported(servers: Servers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/mcp"
        assert asyncio.run(servers.connect(ServerSpec(name="mute", url=url, timeout=0.5))) == []
        assert seen(servers, "mute").why == "it did not answer within 0.5 s"

    with HTTPServer(("127.0.0.1", 0), Refusing) as refusing:
        thread = threading.Thread(target=refusing.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        url = f"http://127.0.0.1:{refusing.server_port}/mcp"
        assert asyncio.run(servers.connect(ServerSpec(name="shut", url=url, headers={"x-pass": "1"}))) == []
        refusing.shutdown()
        thread.join()
    assert seen(servers, "shut").why.endswith("(HTTP 401)")
    assert Refusing.passes == {"1"}


def test_an_older_server_is_understood_and_its_list_is_bounded_and_followed(servers: Servers) -> None:
    tools = asyncio.run(servers.connect(spec("old", "old")))
    assert len(tools) == 20
    grow = tools[0]["function"]
    assert len(grow["description"]) < 4_100
    assert grow["parameters"] == {"type": "object", "properties": {}}
    assert tools[1]["function"]["name"] == exposed_name("old", "buoy 1")

    assert int(call(servers, "old__grow")) > 0
    wait_until(lambda: len(seen(servers, "old").tools) > 20)
    old = seen(servers, "old")
    assert len(old.tools) == 128
    assert old.left_out > 0
    assert [tool.definition for tool in old.tools[:20]] == tools
    assert asyncio.run(servers.disconnect("old"))


def test_a_list_that_changes_has_the_time_of_its_server_and_not_of_a_probe(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PROBE_SECONDS", 0.0)
    asyncio.run(servers.connect(spec("atoll", "old")))
    assert int(call(servers, "atoll__grow")) > 0
    wait_until(lambda: len(seen(servers, "atoll").tools) > 20)
    assert asyncio.run(servers.disconnect("atoll"))


LEAVING = """
import asyncio, sys
from ullage.mcp import Servers, ServerSpec
servers, program = Servers(), ("-m", "tests.harbour_server", "stubborn")
asyncio.run(servers.connect(ServerSpec(name="rock", command=sys.executable, args=program)))
print(asyncio.run(servers.call("rock__grow", "{}")), flush=True)
"""


def test_no_server_outlives_the_program_and_nothing_is_written_over_its_screen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=4 * world.PATIENCE,
        check=True,
    )
    assert gone(int(done.stdout), 0.5)
    assert done.stderr == ""


def test_the_sdk_is_loaded_only_when_a_server_is_connected() -> None:
    code = "import sys, ullage.mcp as s; s.Servers().tools(); print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a__b", "command": "x"},
        {"name": "a_", "command": "x"},
        {"name": "", "command": "x"},
        {"name": "ö", "command": "x"},
        {"name": "a" * 33, "command": "x"},
        {"name": "a"},
        {"name": "a", "command": "x", "url": "http://127.0.0.1/"},
        {"name": "a", "url": "file:///etc/passwd"},
        {"name": "a", "command": "x", "timeout": 0},
    ],
)
def test_a_spec_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="MCP server"):
        ServerSpec(**wrong)


CONFIGURED = """\
[mcp.harbour]
command = "python"
args = ["-m", "harbour"]
env = { PILOT = "env:MY_PILOT" }
timeout = 7

[mcp.tickets]
url = "https://tickets.example/mcp"
headers = { Authorization = "env:TICKETS" }
"""
VARIABLES = {"MY_PILOT": "Ada", "TICKETS": "Bearer 1"}
HARBOUR = ServerSpec(
    name="harbour", command="python", args=("-m", "harbour"), env={"PILOT": "Ada"}, timeout=7
)
TICKETS = ServerSpec(
    name="tickets", url="https://tickets.example/mcp", headers={"Authorization": "Bearer 1"}, timeout=30
)


@pytest.fixture
def configured(tmp_path: Path) -> Mapping[str, McpSettings]:
    (tmp_path / "config.toml").write_text(CONFIGURED)
    return load(tmp_path / "config.toml", environ={}, cwd=tmp_path).mcp


def test_a_configured_server_is_reached_as_it_says(configured: Mapping[str, McpSettings]) -> None:
    assert spec_of(configured["harbour"], VARIABLES) == HARBOUR
    assert spec_of(configured["tickets"], VARIABLES) == TICKETS
    for name, missing in (("harbour", "MY_PILOT"), ("tickets", "TICKETS")):
        with pytest.raises(ConfigurationError, match=f"needs the variable {missing}"):
            spec_of(configured[name], {})


@pytest.mark.parametrize(
    ("name", "target", "meant"),
    [
        ("harbour", "", HARBOUR),
        ("tickets", "  ", TICKETS),
        ("tickets", "uvx 'a b'", ServerSpec(name="tickets", command="uvx", args=("a b",))),
        ("new", "http://127.0.0.1:1/mcp", ServerSpec(name="new", url="http://127.0.0.1:1/mcp")),
    ],
)
def test_a_server_is_meant_by_its_name_by_a_command_or_by_an_address(
    configured: Mapping[str, McpSettings], name: str, target: str, meant: ServerSpec
) -> None:
    assert spec_for(name, target, configured, VARIABLES) == meant


@pytest.mark.parametrize(
    ("name", "target", "told"),
    [
        ("lost", "", "no MCP server 'lost' is configured; configured are harbour, tickets"),
        ("lost", "uvx 'open", "is not a valid command: No closing quotation"),
        ("a__b", "uvx", "invalid name of an MCP server"),
    ],
)
def test_what_means_no_server_is_told(
    configured: Mapping[str, McpSettings], name: str, target: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        spec_for(name, target, configured, VARIABLES)


def test_a_spec_shows_no_secrets() -> None:
    shown = repr(
        ServerSpec(name="a", command="x", env={"TOKEN": "s3cret"}, headers={"authorization": "s3cret"})
    )
    assert "s3cret" not in shown
