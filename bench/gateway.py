"""What the gateway adds: CPU time of a request through it, beside a bare pass-through on the same parts.

    python -m bench gateway

Both stand before the same fake provider (`gateway/upstream.py` of ULLAGE_BENCH) and get the same requests by
turns: a small one, one of 150 KB with 200 messages and tool calls, and a small one that is streamed. The
figure is the CPU time of the server's process and its threads, user and system, for each request; the ratio
is that of one run. The bare pass-through is uvicorn with aiohttp: it reads, counts, keeps and books nothing.
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
from typing import TYPE_CHECKING, Any

from bench.shared import scorer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 4
CONNECTIONS = 4
REQUESTS = {"small": 800, "150 KB": 250, "stream": 600}
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
        up, bare, ours = (_free_port() for _ in range(3))
        stack.enter_context(_serving([sys.executable, "-B", str(upstream), "--port", str(up)], up))
        url = f"http://127.0.0.1:{up}"
        floor = stack.enter_context(_serving([sys.executable, "-c", FLOOR, url, str(bare)], bare))
        ullage = str(Path(sys.executable).with_name("ullage"))
        options = ["--store", f"{folder}/ullage.db", "--upstream", url, "--window", "400000"]
        gateway = stack.enter_context(_serving([ullage, "serve", "--port", str(ours), *options], ours))
        started = _cpu(gateway)
        figures = _measured({"bare": (floor, bare), "ullage": (gateway, ours)})
    print(f"{'CPU µs a request':20}{'bare':>10}{'ullage':>10}{'ratio':>10}")
    for case, row in figures.items():
        print(f"{case:20}{row['bare']:>10}{row['ullage']:>10}{row['ratio']:>10}")
    print(f"CPU s to start: {started:.2f}")
    return {**figures, "start": {"cpu_s": round(started, 2)}}


def _measured(targets: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """The least CPU time of each target and case, over rounds in which both take turns."""
    best: dict[str, dict[str, float]] = {case: {} for case in REQUESTS}
    for case, body in payloads().items():
        for port in (port for _, port in targets.values()):
            asyncio.run(_load(port, body, 50))
        for _ in range(ROUNDS):
            for name, (process, port) in targets.items():
                before = _cpu(process)
                asyncio.run(_load(port, body, REQUESTS[case]))
                each = (_cpu(process) - before) / REQUESTS[case] * 1e6
                best[case][name] = min(each, best[case].get(name, each))
    return {
        case: {
            **{name: round(value) for name, value in row.items()},
            "ratio": round(row["ullage"] / row["bare"], 2),
        }
        for case, row in best.items()
    }


async def _load(port: int, body: bytes, number: int) -> None:
    """Sends so many requests over a few connections, and reads each answer to its end."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    data = f"{head}Content-Type: application/json\r\nAuthorization: Bearer key\r\n\r\n".encode() + body
    left = iter(range(number))

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
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

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))


@contextmanager
def _serving(command: list[str], port: int) -> Iterator[int]:
    """A server that listens, by its process; it ends with the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
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
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
