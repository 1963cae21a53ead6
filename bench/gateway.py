"""What the gateway adds: CPU time of a request through it, beside a bare pass-through on the same parts.

    python -m bench gateway

All stand before the same fake provider (`gateway/upstream.py` of ULLAGE_BENCH) and get the same requests by
turns: a small one, one of 150 KB with 200 messages and tool calls, and a small one that is streamed. The
figure is the CPU time of the server's processes and threads, user and system, for each request; the ratios
are those of one run. The bare pass-through is uvicorn with aiohttp: it reads, counts and books nothing.
Ullage counts, fits, books, measures and shows each request on its page. `with key` also has a key with caps,
so each call is reserved and settled in the store before its answer ends. ULLAGE_PEERS may name a folder with
the virtual environment `v_litellm`: LiteLLM's proxy is then measured too, without and with `rust: true`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.shared import scorer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 4
FEW, MANY = CONNECTIONS = (4, 32)
"""Requests at once: a few, and many, whose bookings are written together. Peers are measured with few."""
ULLAGE = str(Path(sys.executable).with_name("ullage"))
LITELLM = "1.108.4"
PEER_KEY = "sk-bench"
PEER_SHARE = 0.05
PEER_SECONDS = 300.0
"""LiteLLM takes a minute to start on a busy machine."""
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR"}
"""The settings with which LiteLLM's proxy neither asks the network nor logs."""
REQUESTS = {"small": 2_400, "150 KB": 800, "stream": 1_800}
WORDS = (
    "error",
    "server",
    "request",
    "budget",
    "file",
    "line",
    "function",
    "value",
    "cache",
    "window",
    "path",
)

FLOOR = """
import os, sys
import aiohttp, uvicorn
session = None
async def app(scope, receive, send):
    global session
    if scope["type"] == "lifespan":
        await receive()
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await session.close()
        await send({"type": "lifespan.shutdown.complete"})
        return
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    headers = {"content-type": "application/json"}
    async with session.post(sys.argv[1] + scope["path"], data=b"".join(parts), headers=headers) as answer:
        kind = [(b"content-type", answer.headers["content-type"].encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": kind})
        async for chunk in answer.content.iter_any():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
options = {"loop": "uvloop", "http": "httptools", "access_log": False, "log_level": "warning"}
uvicorn.run(app, port=int(sys.argv[2]), **options)
"""


def payloads() -> dict[str, bytes]:
    """The bodies of the three cases, the same in every run."""
    chance = random.Random(7)

    def text(size: int) -> str:
        words = " ".join(chance.choices(WORDS, k=size // 5))
        return words[:size]

    small = [{"role": "user", "content": text(100)}, {"role": "assistant", "content": text(130)}]
    small.append({"role": "user", "content": text(80)})
    big: list[dict[str, Any]] = [{"role": "system", "content": text(1_500)}]
    for step in range(49):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/module_{step}.py"})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        big.append({"role": "user", "content": text(220)})
        big.append({"role": "assistant", "content": None, "tool_calls": [call]})
        big.append({"role": "tool", "tool_call_id": f"call_{step}", "content": text(1_920)})
        big.append({"role": "assistant", "content": text(560)})
    big += [{"role": "user", "content": text(200)}, {"role": "assistant", "content": text(200)}]
    big.append({"role": "user", "content": text(200)})
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": schema}}]
    base = {"model": "gpt-4o", "max_tokens": 512}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return {
        "small": json.dumps({**base, "messages": small}).encode(),
        "150 KB": json.dumps({**base, "messages": big, "tools": tools}).encode(),
        "stream": json.dumps({**base, "messages": small, **streamed}).encode(),
    }


def main() -> dict[str, Any]:
    """Prints the table and returns its figures."""
    upstream = scorer("gateway/upstream.py")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        up, bare, ours, keyed = (_free_port() for _ in range(4))
        stack.enter_context(_serving([sys.executable, "-B", str(upstream), "--port", str(up)], up))
        url = f"http://127.0.0.1:{up}"
        floor = stack.enter_context(_serving([sys.executable, "-c", FLOOR, url, str(bare)], bare))
        gateway = stack.enter_context(_serving(_gateway(f"{folder}/open.db", url, ours), ours))
        started = _cpu(gateway)
        key = _make_key(f"{folder}/keys.db")
        capped = stack.enter_context(_serving(_gateway(f"{folder}/keys.db", url, keyed), keyed))
        targets = {
            "bare": Target(floor, bare),
            "ullage": Target(gateway, ours),
            "with key": Target(capped, keyed, key),
        }
        figures = {conns: _measured(targets, conns) for conns in CONNECTIONS}
        with ExitStack() as peers:
            for name, command, port in _peers(Path(folder), url):
                process = peers.enter_context(_serving(command, port, QUIET, seconds=PEER_SECONDS))
                targets[name] = Target(process, port, PEER_KEY, share=PEER_SHARE)
            if len(targets) > len(next(iter(figures[FEW].values()))) - 1:
                figures[FEW] = _measured(targets, FEW)
    for conns, table in figures.items():
        _show(conns, table)
    print(f"CPU s to start: {started:.2f}")
    shown = {f"{conns} connections": table for conns, table in figures.items()}
    return {**shown, "start": {"cpu_s": round(started, 2)}}


class Target(NamedTuple):
    """A server that is measured."""

    process: int
    port: int
    key: str = "key"
    share: float = 1.0
    """Share of the requests that it gets, because a slow one would take too long."""


def _gateway(store: str, url: str, port: int) -> list[str]:
    options = ["--store", store, "--upstream", url, "--window", "400000"]
    return [ULLAGE, "serve", "--port", str(port), *options]


def _make_key(store: str) -> str:
    """Makes a key whose caps no request reaches, and returns it."""
    caps = ["--tokens", "900000000000", "--requests-a-minute", "900000000"]
    command = [ULLAGE, "keys", "create", "bench", *caps, "--json", "--store", store]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    key: str = json.loads(made.stdout)["secret"]
    return key


def _peers(folder: Path, url: str) -> Iterator[tuple[str, list[str], int]]:
    """Yields the commands of LiteLLM's proxy, without and with its part in Rust."""
    place = Path(os.environ.get("ULLAGE_PEERS") or ".", "v_litellm", "bin", "litellm").absolute()
    if not place.exists():
        print(
            "LiteLLM's proxy is left out: ULLAGE_PEERS names no folder with its environment. To make one:\n"
            "  python -m venv $ULLAGE_PEERS/v_litellm && "
            f"$ULLAGE_PEERS/v_litellm/bin/pip install 'litellm[proxy]=={LITELLM}'"
        )
        return
    for name, more in (("litellm", {}), ("with rust", {"rust": True})):
        port = _free_port()
        asked = {"model": "openai/gpt-4o", "api_base": f"{url}/v1", "api_key": "none", **more}
        settings = {
            "model_list": [{"model_name": "gpt-4o", "litellm_params": asked}],
            "litellm_settings": {"telemetry": False, "set_verbose": False},
            "general_settings": {"master_key": PEER_KEY},
        }
        file = folder / f"{port}.yaml"
        file.write_text(json.dumps(settings))  # JSON is YAML
        listen = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
        yield name, [str(place), "--config", str(file), *listen], port


def _show(conns: int, table: dict[str, Any]) -> None:
    names = [name for name in next(iter(table.values())) if name != "ratios"]
    print(f"{f'CPU µs, {conns} at once':20}" + "".join(f"{name:>18}" for name in names))
    for case, row in table.items():
        cells = [
            f"{row[name]:,}" + (f" ({row['ratios'][name]}×)" if name != "bare" else "") for name in names
        ]
        print(f"{case:20}" + "".join(f"{cell:>18}" for cell in cells))


def _measured(targets: dict[str, Target], conns: int) -> dict[str, Any]:
    """The least CPU time of each target and case, over rounds in which all take turns."""
    best: dict[str, dict[str, float]] = {case: {} for case in REQUESTS}
    for case, body in payloads().items():
        for target in targets.values():
            asyncio.run(_load(target, body, max(conns, int(50 * target.share)), conns))
        for _ in range(ROUNDS):
            for name, target in targets.items():
                number = max(conns, int(REQUESTS[case] * target.share))
                before = _cpu(target.process)
                asyncio.run(_load(target, body, number, conns))
                each = (_cpu(target.process) - before) / number * 1e6
                best[case][name] = min(each, best[case].get(name, each))
    return {
        case: {
            **{name: round(value) for name, value in row.items()},
            "ratios": {name: round(value / row["bare"], 2) for name, value in row.items() if name != "bare"},
        }
        for case, row in best.items()
    }


async def _load(target: Target, body: bytes, number: int, conns: int) -> None:
    """Sends so many requests over so many connections, and reads each answer to its end."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    data = (
        f"{head}Content-Type: application/json\r\nAuthorization: Bearer {target.key}\r\n\r\n".encode() + body
    )
    left = iter(range(number))

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        for _ in left:
            writer.write(data)
            lines = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not lines.startswith(b"http/1.1 200"):
                raise RuntimeError(f"the target refused a request: {lines[:200]!r}")
            if b"content-length:" in lines:
                await reader.readexactly(int(lines.split(b"content-length:")[1].split(b"\r\n")[0]))
                continue
            while (size := int(await reader.readline(), 16)) > 0:
                await reader.readexactly(size + 2)
            await reader.readline()
        writer.close()

    await asyncio.gather(*(work() for _ in range(conns)))


@contextmanager
def _serving(
    command: list[str], port: int, more: dict[str, str] | None = None, seconds: float = 30
) -> Iterator[int]:
    """A server that listens, by its process; it ends with the block."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(more or {})}
    )
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{command[0]} does not listen")
        yield process.pid
    finally:
        process.terminate()
        process.wait(15)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _cpu(process: int) -> float:
    """Seconds of processor time that a process and its children have used."""
    own = Path(f"/proc/{process}")
    fields = (own / "stat").read_text("ascii").rpartition(")")[2].split()
    children = (own / "task" / str(process) / "children").read_text("ascii").split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(_cpu, map(int, children)))


if __name__ == "__main__":
    main()
