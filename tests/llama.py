"""A real llama.cpp server, from the wheel of the embedded model's runtime, in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.world import PATIENCE
from ullage.broker.embedded import find
from ullage.broker.embedded.runtime import INSTALL
from ullage.broker.embedded.weights import GET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# It ends when its standard input does, so that it does not outlive whoever started it.
PROGRAM = """
import os, sys, xllamacpp
given = xllamacpp.CommonParams()
given.model.path, given.n_ctx, given.n_parallel = sys.argv[1], int(sys.argv[2]), 1
given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
given.cache_ram_mib, given.n_threads_http, given.verbosity = 0, 2, 0
server = xllamacpp.Server(given)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)  # without the destructor, which waits for ever if the task loop has not started yet
"""


class Llama(NamedTuple):
    url: str
    """Its address; the OpenAI-shaped API is under /v1."""
    pid: int

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        request = urllib.request.Request(  # noqa: S310 - the loopback
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - the same
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)


def missing() -> str:
    """The part of the embedded model that is not installed, and the command that installs it; or empty."""
    if importlib.util.find_spec("xllamacpp") is None:
        return f"the model runtime is not installed: {INSTALL}"
    return "" if find() else f"the embedded model's file is not here: {GET}"


needs_local = pytest.mark.skipif(bool(missing()), reason=missing() or "all is here")
"""Skips a test that runs the embedded model if that is not installed."""


def needed() -> Path:
    """The embedded model's file; the test is skipped if that or the runtime is missing."""
    path = find()
    if path is None or missing():
        pytest.skip(missing())
    return path


@contextlib.contextmanager
def llama_server(window: int = 512) -> Iterator[Llama]:
    """A server with that context, stopped at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(needed()), str(window)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("listening "):
                yield Llama(line.split()[1], process.pid)
                break
        else:
            pytest.fail("the llama.cpp server did not start")
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
