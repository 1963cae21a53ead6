"""Batches: files and folders in, results in order out, and a killed run goes on to the same results."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.world import environment, gone, until
from ullage.batch import result_files
from ullage.batch.chunk import InputPosition
from ullage.batch.job import Job
from ullage.batch.outcome import work
from ullage.batch.parquet import requests_of_rows
from ullage.batch.reader import read_chunks, requests_of
from ullage.batch.result_files import ResultFiles
from ullage.batch.source import find_sources
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = str(Path(sys.executable).with_name("ullage"))
SESSION = Path(__file__).resolve().parent.parent / "examples" / "session.json"


def request(number: int, words: int = 5) -> dict[str, Any]:
    text = " ".join(f"word{number % 7}{place}" for place in range(words))
    return {"id": f"r{number}", "messages": [{"role": "user", "content": text}]}


def jsonl(*requests: object) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in requests)


def run(*arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], input=given, env=environment(), capture_output=True, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of requests: two files, a document below, and files that are no requests."""
    made = tmp_path / "requests"
    (made / "deep").mkdir(parents=True)
    (made / "b.jsonl").write_text(jsonl(*(request(number) for number in range(100))))
    (made / "a.ndjson").write_text(jsonl(request(100), {"id": "bad"}, request(101)))
    shutil.copy(SESSION, made / "deep" / "session.json")
    (made / "notes.txt").write_text("no request")
    (made / ".hidden.jsonl").write_text("no request")
    return made


def ids(text: bytes) -> list[str]:
    return [json.loads(line)["id"] for line in text.splitlines()]


# Input ---------------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_the_order_of_its_paths_without_other_files(folder: Path) -> None:
    done = run("count", "--json", folder)
    assert done.returncode == 1
    expected = ["r100", "bad", "r101", *(f"r{number}" for number in range(100)), "tidebook-TB-2291"]
    assert ids(done.stdout) == expected
    assert b"a.ndjson, line 2" in done.stderr


def test_a_folder_without_requests_is_wrong_usage(tmp_path: Path) -> None:
    done = run("count", tmp_path)
    assert (done.returncode, b"has no file that ends with .json" in done.stderr) == (2, True)


def as_parquet(path: Path, form: str, requests: list[dict[str, Any]]) -> Path:
    """Writes requests to a Parquet file in several row groups."""
    if form == "structs":
        table = pa.Table.from_pylist(requests)
    elif form == "text in columns":
        names = dict.fromkeys(name for each in requests for name in each)
        table = pa.Table.from_pylist([{name: _text(each.get(name)) for name in names} for each in requests])
    else:
        table = pa.table({"request": [json.dumps(each) for each in requests]})
    pq.write_table(table, path, row_group_size=30)
    return path


def _text(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


@pytest.mark.parametrize("form", ["structs", "text in columns", "one column"])
@pytest.mark.parametrize("command", ["count", "fit"])
def test_parquet_has_the_results_of_the_same_jsonl(form: str, command: str, tmp_path: Path) -> None:
    session = json.loads(SESSION.read_text())
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    requests = [request(number) for number in range(70)]
    requests.append(
        {
            "id": "calls",
            "messages": [
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": "I look.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "a harbour"},
            ],
        }
    )
    if form != "structs":  # its tools have schemas, which no table of structs holds
        requests.append(session)
    table = as_parquet(tmp_path / "requests.parquet", form, requests)
    lines = tmp_path / "requests.jsonl"
    lines.write_text(jsonl(*requests))
    options = ("--json", "--limit", "3000", "--model", "gpt-4o")
    from_table, from_lines = run(command, table, *options), run(command, lines, *options)
    assert from_table.returncode == 0, from_table.stderr
    assert len(from_lines.stdout.splitlines()) == len(requests)
    shown = [[json.loads(line) for line in done.stdout.splitlines()] for done in (from_table, from_lines)]
    assert shown[0] == shown[1]


def test_a_bad_row_is_told_with_its_number(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"], "messages": ['[{"role": "user", "content": "x"}]', "[}"]})
    pq.write_table(table, tmp_path / "two.parquet")
    done = run("count", "--json", tmp_path / "two.parquet")
    assert done.returncode == 1
    assert [json.loads(line).get("line") for line in done.stdout.splitlines()] == [None, 2]
    assert b"two.parquet, line 2, field messages: " in done.stderr


@pytest.mark.parametrize("command", ["count", "fit"])
def test_a_packed_file_is_told_with_the_command_that_unpacks_it(command: str, tmp_path: Path) -> None:
    packed = tmp_path / "requests.jsonl.gz"
    packed.write_bytes(gzip.compress(jsonl(request(1)).encode()))
    done = run(command, packed)
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"this is gzip data: unpack it first (zcat FILE | ullage" in done.stderr


def test_a_parquet_file_that_was_cut_off_is_told_once(tmp_path: Path) -> None:
    whole = as_parquet(tmp_path / "whole.parquet", "structs", [request(1)])
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:40])
    done = run("count", "--json", tmp_path / "cut.parquet", whole)
    assert done.returncode == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert "this Parquet file cannot be read" in first["error"]["message"]
    assert second["id"] == "r1"


def test_null_is_a_missing_key_at_any_depth() -> None:
    table = pa.Table.from_pylist(
        [
            {"messages": [{"role": "user", "content": "x", "name": None}], "model": None, "user": 1},
            {"messages": [{"role": "user", "content": "y", "name": "Ada"}], "model": "m", "user": None},
        ]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    first, second = requests_of_rows(sink.getvalue().to_pybytes())
    assert first == {"messages": [{"role": "user", "content": "x"}], "user": 1}
    assert second == {"messages": [{"role": "user", "content": "y", "name": "Ada"}], "model": "m"}


@given(
    lines=st.lists(st.sampled_from(["", "  ", '{"id": 1}', '{"id": "long", "x": [1, 2, 3]}']), max_size=30),
    most=st.integers(1, 7),
    stop=st.integers(0, 30),
    ends=st.booleans(),
)
def test_reading_from_any_chunk_on_gives_the_rest(lines: list[str], most: int, stop: int, ends: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        for name in ("one.jsonl", "two.jsonl"):
            (Path(place) / name).write_text("\n".join(lines) + ("\n" if ends else ""))
        sources = find_sources([place])
        chunks = list(read_chunks(sources, lines=most))
        every = [(line.source, line.number, line.data) for chunk in chunks for line in requests_of(chunk)]
        begun = chunks[: stop % (len(chunks) + 1)]
        begin = begun[-1].end if begun else InputPosition()
        rest = [line for chunk in read_chunks(sources, begin, lines=most + 1) for line in requests_of(chunk)]
        seen = sum(1 for chunk in begun for _ in requests_of(chunk))
        assert [(line.source, line.number, line.data) for line in rest] == every[seen:]


# Output --------------------------------------------------------------------------------------------------


def test_an_output_file_has_what_would_be_printed(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = run("count", folder, "-o", out)
    assert done.stdout.decode() == f"104 requests, 1 bad: results in {out}\n"
    assert done.returncode == 1
    assert out.read_bytes() == run("count", "--json", folder).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "requests"]


def test_an_output_folder_has_a_file_for_each_input(folder: Path, tmp_path: Path) -> None:
    as_parquet(folder / "rows.parquet", "structs", [request(number) for number in range(3)])
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), folder / "none.parquet")
    out = tmp_path / "out"
    assert run("fit", folder, "-o", f"{out}/", "--limit", 4000).returncode == 1
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert files == ["a.jsonl", "b.jsonl", "deep/session.jsonl", "none.parquet", "rows.parquet"]
    assert ids((out / "a.jsonl").read_bytes()) == ["r100", "bad", "r101"]
    assert pq.read_table(out / "rows.parquet").column("id").to_pylist() == ["r0", "r1", "r2"]
    assert pq.read_table(out / "none.parquet").num_rows == 0


def test_parquet_results_have_the_figures_and_the_fitted_requests(tmp_path: Path) -> None:
    lines = tmp_path / "two.jsonl"
    session = json.loads(SESSION.read_text())
    lines.write_text(jsonl(session, {"id": 7}))
    for command, limit in (("count", 3000), ("fit", 3000)):
        out = tmp_path / f"{command}.parquet"
        assert run(command, lines, "-o", out, "--limit", limit).returncode == 1
        good, bad = pq.read_table(out).to_pylist()
        shown = json.loads(run(command, lines, "--json", "--limit", limit).stdout.splitlines()[0])
        figures = shown if command == "count" else shown.pop("ullage")
        assert (good["id"], good["error"]) == (session["id"], None)
        assert (bad["id"], bad["line"], bad["model"]) == ("7", 2, None)
        assert json.loads(bad["error"])["type"] == "InvalidRequest"
        assert good["ceiling"] == figures["ceiling"]
        if command == "fit":
            del shown["id"]
            assert json.loads(good["request"]) == shown
        else:
            assert good["breakdown"] == shown["breakdown"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["requests", "-o", "requests/out.jsonl"], "is in the folder of the input"),
        (["requests", "-o", "requests"], "is in the folder of the input"),
        (["requests/b.jsonl", "-o", "requests/b.jsonl"], "is an input"),
        (["requests/b.jsonl", "-o", "requests/"], "is an input"),
        (["requests/b.jsonl", "twice/b.jsonl", "-o", "out/"], "several inputs would be written to"),
        (["requests", "--resume"], "--resume needs the output"),
        (["-", "-o", "out.jsonl", "--resume"], "--resume needs regular files"),
        (["-", "--engine", "ray"], "--engine ray reads files"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_anything_is_written(
    arguments: list[str], message: str, folder: Path
) -> None:
    shutil.copytree(folder, folder.parent / "twice")
    before = sorted(folder.parent.rglob("*"))
    done = subprocess.run(
        [PROGRAM, "count", *arguments], cwd=folder.parent, env=environment(), capture_output=True, check=False
    )
    assert (done.returncode, message in done.stderr.decode()) == (2, True), done.stderr
    assert sorted(folder.parent.rglob("*")) == before


# Resuming ------------------------------------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Sets whether every chunk is followed by a checkpoint, or none."""
    return lambda every: monkeypatch.setattr(result_files, "EVERY", -1.0 if every else 1e9)


SOURCES = ("bad.json", "blank.jsonl", "doc.json", "empty.parquet", "one.jsonl", "rows.parquet", "z.jsonl")


def make_sources(place: Path) -> None:
    (place / "bad.json").write_bytes(b"\xff\xfe\x00")
    (place / "blank.jsonl").write_text("\n\n")
    (place / "doc.json").write_text(json.dumps(request(1), indent=2))
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), place / "empty.parquet")
    (place / "one.jsonl").write_text(jsonl(*map(request, range(5)), []))
    as_parquet(place / "rows.parquet", "structs", list(map(request, range(7))))
    (place / "z.jsonl").write_text(jsonl(*map(request, range(4))))


@pytest.mark.parametrize("every", [True, False], ids=["checkpoints", "no checkpoints"])
@pytest.mark.parametrize("output", ["out.jsonl", "out.parquet", "out/"])
def test_a_run_that_stops_after_any_chunk_goes_on_to_the_same_bytes(
    output: str, every: bool, often: Callable[[bool], None], tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    make_sources(given)
    job, sources = Job("count", json=True), find_sources([str(given)])

    def go(place: Path, stop: int | None, *, resume: bool) -> int:
        """Runs until `stop` chunks are written, and then does nothing more, as a killed process."""
        place.mkdir(exist_ok=True)
        results = ResultFiles(job, sources, f"{place}/{output}")
        begin = results.start(resume=resume)
        number = 0
        for number, chunk in enumerate(read_chunks(sources, begin, 2), 1):
            if number - 1 == stop:
                if results._stream is not None:
                    results._stream.close()  # more is on disk than the checkpoint knows of
                return number
            results.write(work(job, chunk))
        results.end()
        return number

    often(every)
    chunks = go(tmp_path / "whole", None, resume=False)
    expected = contents(tmp_path / "whole")
    assert len(expected) == (1 if output != "out/" else len(SOURCES))
    for stop in range(chunks):
        place = tmp_path / f"stopped{stop}"
        go(place, stop, resume=False)
        go(place, 1, resume=True)
        go(place, None, resume=True)
        assert contents(place) == expected, stop


def contents(place: Path) -> dict[str, bytes]:
    return {
        path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_killed_run_goes_on_to_the_same_bytes(jobs: str, tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text(jsonl(*(request(number, 200) for number in range(6_000)), {"id": "bad"}))
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    assert run("count", many, "-o", whole).returncode == 1
    options = ("count", many, "-o", out, "--jobs", jobs)
    partial, progress = Path(f"{out}.partial"), Path(f"{out}.progress")
    slow = {"PYTHONPATH": str(tmp_path)}
    # A checkpoint after every chunk, so that the kill meets one on a machine of any speed.
    (tmp_path / "sitecustomize.py").write_text("import ullage.batch.result_files as r\nr.EVERY = -1.0\n")
    child = subprocess.Popen(
        [PROGRAM, *map(str, options)], env=environment(**slow), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert until(lambda: progress.exists() and json.loads(progress.read_text())["requests"] > 500)
    child.kill()
    child.communicate()
    assert not out.exists()
    assert 0 < partial.stat().st_size < whole.stat().st_size
    refused = run(*options)
    assert (refused.returncode, b"Add --resume to go on" in refused.stderr) == (2, True)
    done = run(*options, "--resume")
    assert done.stderr.startswith(b"ullage: going on after ")
    assert done.stdout.decode() == f"6,001 requests, 1 bad: results in {out}\n"
    assert done.returncode == 1
    assert out.read_bytes() == whole.read_bytes()
    assert not partial.exists()
    assert not progress.exists()


def test_an_interrupted_run_keeps_all_its_results(tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text(jsonl(*(request(number, 200) for number in range(6_000))))
    out = tmp_path / "out.jsonl"
    child = subprocess.Popen(
        [PROGRAM, "count", str(many), "-o", str(out)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    partial = Path(f"{out}.partial")
    assert until(lambda: partial.exists() and partial.stat().st_size > 0)
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert child.returncode == 130
    saved = json.loads(Path(f"{out}.progress").read_text())
    assert saved["requests"] > 0
    assert saved["size"] <= partial.stat().st_size


def test_other_options_or_a_changed_input_are_not_resumed(
    tmp_path: Path, often: Callable[[bool], None]
) -> None:
    often(True)
    given = tmp_path / "given.jsonl"
    given.write_text(jsonl(*map(request, range(5))))
    out = str(tmp_path / "out.jsonl")
    job = Job("count", json=True)

    def start(job: Job) -> InputPosition:
        with closing(ResultFiles(job, find_sources([str(given)]), out)) as results:
            return results.start(resume=True)

    results = ResultFiles(job, find_sources([str(given)]), out)
    results.start(resume=False)
    results.write(work(job, next(read_chunks(find_sources([str(given)]), lines=2))))
    results.close()
    assert start(job).number == 3
    with pytest.raises(ConfigurationError, match="other options"):
        start(Job("count", json=True, model="gpt-4"))
    given.write_text(jsonl(*map(request, range(6))))
    with pytest.raises(ConfigurationError, match="other files"):
        start(job)
    Path(f"{out}.progress").write_text("{}")
    with pytest.raises(ConfigurationError, match="is damaged"):
        start(job)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of this system end with their parent")
def test_the_workers_of_a_killed_run_end_too(tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text(jsonl(*(request(number, 200) for number in range(20_000))))
    child = subprocess.Popen([PROGRAM, "count", str(many), "-o", f"{tmp_path}/out.jsonl"], env=environment())
    assert until(lambda: len(_children(child.pid)) > 1)
    workers = _children(child.pid)
    child.kill()
    child.wait()
    assert until(lambda: all(map(gone, workers)))


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
