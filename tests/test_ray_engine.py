"""The engine ray has the results of the processes, byte for byte, also if a node is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ray_cluster import MARK
from tests.test_batch import jsonl, make_sources, request
from tests.world import environment, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = str(Path(sys.executable).with_name("ullage"))
QUIET = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_USAGE_STATS_ENABLED": "0"}


class TwoNodes:
    """A cluster in a process of its own."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ray_cluster.py"))],
            env=environment(**QUIET),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._answer()

    def ask(self, what: str) -> int:
        assert self._process.stdin
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(MARK):
                return line.removeprefix(MARK).strip()
        raise AssertionError("the cluster has ended")

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [PROGRAM, *map(str, arguments)],
            env=environment(RAY_ADDRESS=self.address, **QUIET),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._children.append(child)
        return child

    def end(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait() == 0
        assert self._process.stdout
        self._process.stdout.close()


@pytest.fixture
def cluster() -> Iterator[TwoNodes]:
    made = TwoNodes()
    try:
        yield made
    finally:
        made.end()


def finish(cluster: TwoNodes, *arguments: object) -> tuple[int, bytes]:
    child = cluster.start(*arguments)
    printed, complained = child.communicate()
    assert child.returncode in {0, 1}, complained.decode()
    return child.returncode, printed


def here(*arguments: object) -> int:
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], env=environment(), capture_output=True, check=False
    ).returncode


def test_the_benchmark_of_batches_needs_no_more_than_this_environment() -> None:
    subprocess.run([sys.executable, "-c", "import bench.batch"], cwd=ROOT, check=True)


def test_ray_has_the_results_of_the_processes(cluster: TwoNodes, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    make_sources(given)
    for command, name in (("count", "out.jsonl"), ("fit", "out.parquet")):
        ours, theirs = tmp_path / f"ours-{name}", tmp_path / f"theirs-{name}"
        options = (command, given, "--limit", 1000)
        code, printed = finish(cluster, *options, "--engine", "ray", "-o", theirs)
        assert code == here(*options, "-o", ours) == 1
        assert theirs.read_bytes() == ours.read_bytes()
        assert printed.endswith(f"results in {theirs}\n".encode())


def test_a_node_that_is_killed_in_the_middle_changes_nothing(cluster: TwoNodes, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for file in range(4):
        lines = jsonl(*(request(number, 200) for number in range(5_000)))
        (given / f"{file}.jsonl").write_text(lines + jsonl({"id": f"bad{file}"}))
    ours, theirs = tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"
    assert here("count", given, "-o", ours) == 1
    child = cluster.start("count", given, "-o", theirs, "--engine", "ray")
    progress = Path(f"{theirs}.progress")
    assert until(lambda: progress.exists() and cluster.ask("busy") == 2, 300)
    done = json.loads(progress.read_text())["requests"]
    assert cluster.ask("kill") == 0
    _, complained = child.communicate()
    assert child.returncode == 1, complained.decode()
    assert 0 < done < 20_004
    assert theirs.read_bytes() == ours.read_bytes()


def test_a_killed_run_on_ray_goes_on_to_the_same_bytes(cluster: TwoNodes, tmp_path: Path) -> None:
    given = tmp_path / "given.jsonl"
    given.write_text(jsonl(*(request(number, 200) for number in range(20_000))))
    ours, theirs = tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"
    assert here("count", given, "-o", ours) == 0
    options = ("count", given, "-o", theirs, "--engine", "ray")
    child = cluster.start(*options)
    progress = Path(f"{theirs}.progress")
    assert until(progress.exists, 300)
    child.kill()
    child.communicate()
    assert 0 < json.loads(progress.read_text())["requests"] < 20_000
    code, _ = finish(cluster, *options, "--resume")
    assert code == 0
    assert theirs.read_bytes() == ours.read_bytes()
