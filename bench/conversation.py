"""A conversation of 10,000 turns: what a turn costs at its start, in its middle and at its end.

    python -m bench.conversation

A turn is a message. Before each assistant's the request is rendered; CPU time of appending and rendering,
by all threads of the process, is what the table tells, in ms a turn. Ours keeps everything (with a store, on
the disk when `append` returns) and renders within 8,000 tokens by gpt-4o's count. The peers' memory classes
have the same turns, the same budget and the same o200k vocabulary. ULLAGE_PEERS may name a folder with
their virtual environment, `v_memory`; without it only ours run. A run ends after 20 s of CPU time, the row
says how far it came, and where that is fewer than 3,000 turns its parts are thirds. Ours are the least of
three runs. What each sends is judged by one count, OpenAI's: `over` the budget, `invalid` (a call or a
result without its other half), `lost` (the last user message is not there); `sent` is the mean size of a
request.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import ullage

TURNS = 10_000
BUDGET = 8_000
BLOCK = 100
"""Turns that are timed together."""
PART = 10
"""Blocks in a part of the table: 1,000 turns."""
MOST_SECONDS = 20.0
ROUNDS = 3

PROMPT = (
    "You are a careful engineer who works in a repository through tools. Read before you edit, keep changes "
    "small, run the tests after each change, and say plainly what you did and what is left to do."
)
OURS = ("ullage Context, SQLite store", "ullage Context, in memory", "ullage Window")
PEERS = {
    "langchain trim_messages": "over InMemoryChatMessageHistory, start_on human; counts by the usual framing",
    "langchain trim_messages, counts given": "the same; its counter adds up exact counts made before",
    "langchain ConversationTokenBuffer": "texts alone; prunes when an exchange is over, not in its steps",
    "langchain ConversationSummaryBuffer": "the same; its model answers at once with one sentence",
    "llama-index ChatMemoryBuffer": "takes a tokenizer, no framing; counts the whole history each time",
    "llama-index Memory": "with its own SQLite in memory; fills 70 % of the budget, its default",
}
SETUP = (
    "the peers are left out: ULLAGE_PEERS names no folder with their environment. To make one:\n"
    "  python -m venv $ULLAGE_PEERS/v_memory && $ULLAGE_PEERS/v_memory/bin/pip install "
    "langchain-core langchain-classic llama-index-core splintr-rs"
)

_TEXT = """the parser cache retry session budget window handler queue worker config schema index buffer
timeout socket client server route model prompt summary ledger cost test fixture import export patch diff
branch commit merge review lint type error trace stack thread lock pool batch stream chunk keeps reads"""
_WORDS = tuple(_TEXT.split())
_TOOLS = {"read_file": "path", "grep": "pattern", "shell": "command", "run_tests": "target"}


def conversation(turns: int = TURNS, seed: int = 3) -> list[dict[str, Any]]:
    """A system prompt and that many turns: questions, steps with one to three calls, answers."""
    noise = random.Random(seed)
    messages: list[dict[str, Any]] = [{"role": "system", "content": PROMPT}]
    while len(messages) <= turns:
        messages.append({"role": "user", "content": _prose(noise, 1, 4)})
        for _ in range(noise.choices((0, 1, 2, 4), (40, 30, 20, 10))[0]):
            messages += _step(noise)
        messages.append({"role": "assistant", "content": _prose(noise, 1, 8)})
    return messages[: turns + 1]


def _prose(noise: random.Random, least: int, most: int) -> str:
    sentences = [
        " ".join(noise.choices(_WORDS, k=noise.randint(6, 18))) for _ in range(noise.randint(least, most))
    ]
    return f"[{noise.getrandbits(32):08x}] {'. '.join(sentences)}."


def _step(noise: random.Random) -> list[dict[str, Any]]:
    calls, results = [], []
    for _ in range(noise.choices((1, 2, 3), (70, 20, 10))[0]):
        name, argument = noise.choice([*_TOOLS.items()])
        known = f"call_{noise.getrandbits(64):016x}"
        given = json.dumps({argument: "/".join(noise.choices(_WORDS, k=3))})
        calls.append({"id": known, "type": "function", "function": {"name": name, "arguments": given}})
        results.append({"role": "tool", "tool_call_id": known, "content": _output(noise)})
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _output(noise: random.Random) -> str:
    """Lines as a log or a listing has them, 50 to 8,000 characters, small ones more often."""
    size = int(50 * 160 ** noise.random())
    lines: list[str] = []
    while sum(map(len, lines)) < size:
        words = " ".join(noise.choices(_WORDS, k=noise.randint(3, 9)))
        where = f"src/{noise.choice(_WORDS)}/{noise.choice(_WORDS)}.py:{noise.randint(1, 900)}"
        lines.append(f"{where}: {words} {noise.getrandbits(40):010x}")
    return "\n".join(lines)[:size]


# Ours ----------------------------------------------------------------------------------------------------


def ours(name: str, messages: list[dict[str, Any]], file: Path) -> dict[str, Any]:
    """Seconds of CPU for each block of turns, and how what was sent was judged."""
    from ullage import store  # noqa: PLC0415 - each run loads what it measures
    from ullage.context import Context  # noqa: PLC0415 - the same

    ullage.count(messages[:50], model="gpt-4o")
    timer, sent, judge = Timer(), [], Judge()
    with ExitStack() as opened:
        held: Any
        if name.endswith("Window"):
            held = ullage.Window(limit=BUDGET, model="gpt-4o")
            held.append(messages[0])
        else:
            journal = opened.enter_context(store.open(file)).journal if "store" in name else None
            held = Context(
                system_prompt=PROMPT,
                token_budget=BUDGET,
                max_turns=None,
                journal=journal,
                session="bench",
                model="gpt-4o",
            )
        last = ""
        for message in messages[1:]:
            if message["role"] == "assistant":
                request = timer.measure(held.to_messages if isinstance(held, Context) else held.fitted)
                sent.append((request if isinstance(request, list) else request.messages, last))
            elif message["role"] == "user":
                last = message["content"]
            timer.measure(held.append, message)
            if timer.turn():
                break
    for request, wanted in sent:
        judge.see(request, wanted)
    return {"blocks": timer.blocks, **judge.found()}


def least(name: str, folder: str) -> dict[str, Any]:
    """The same, each block the least of several runs, each in a process of its own."""
    found: list[dict[str, Any]] = []
    for number in range(ROUNDS):
        command = [sys.executable, "-m", "bench.conversation", name, folder, f"{number}.db"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failure": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
        found.append(json.loads(done.stdout))
    blocks = [min(runs) for runs in zip(*(each["blocks"] for each in found), strict=False)]
    return {**found[0], "blocks": blocks}


class Timer:
    """CPU seconds a block of turns."""

    def __init__(self) -> None:
        self.blocks: list[float] = []
        self._spent = 0.0
        self._turns = 0

    def measure(self, call: Any, *arguments: Any) -> Any:
        """What the call gives; its CPU time is the turn's."""
        start = time.process_time()
        given = call(*arguments)
        self._spent += time.process_time() - start
        return given

    def turn(self) -> bool:
        """Ends a turn; whether the time is up."""
        self._turns += 1
        if self._turns % BLOCK == 0:
            self.blocks.append(self._spent)
            self._spent = 0.0
        return sum(self.blocks) + self._spent > MOST_SECONDS


class Judge:
    """Counts what is wrong with requests."""

    def __init__(self) -> None:
        self.requests = self.over = self.invalid = self.lost = self.tokens = 0

    def see(self, messages: list[dict[str, Any]], last_user: str) -> None:
        """Judges a request."""
        tokens = _tokens(messages)
        self.requests += 1
        self.tokens += tokens
        self.over += tokens > BUDGET
        self.invalid += not _paired(messages)
        self.lost += not any(m["role"] == "user" and last_user in m["content"] for m in messages)

    def found(self) -> dict[str, float]:
        """The figures of all requests."""
        names = ("requests", "over", "invalid", "lost")
        mean = self.tokens / max(1, self.requests)
        return {**{name: getattr(self, name) for name in names}, "sent": mean}


_costs: dict[int, tuple[int, dict[str, Any]]] = {}


def _tokens(messages: list[dict[str, Any]]) -> int:
    """What OpenAI charges for the messages; each is counted once."""
    for message in messages:
        if id(message) not in _costs:
            _costs[id(message)] = (ullage.count([message], model="gpt-4o").tokens - 3, message)
    return 3 + sum(_costs[id(message)][0] for message in messages)


def _paired(messages: list[dict[str, Any]]) -> bool:
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        else:
            waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return not waiting


# The peers -----------------------------------------------------------------------------------------------


def peer(name: str, python: Path, messages: list[dict[str, Any]], file: Path) -> dict[str, Any]:
    """The same of a peer, run by its own interpreter."""
    script = Path(__file__).with_name("peers_memory.py")
    command = [python, "-W", "ignore", script, name, file, str(BUDGET), str(BLOCK), str(MOST_SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or ["no reason given"])[-1]}
    told = json.loads(done.stdout)
    judge = Judge()
    extra: dict[str, dict[str, Any]] = {}
    for last, request in told["requests"]:
        sent = [
            messages[each] if isinstance(each, int) else extra.setdefault(json.dumps(each), each)
            for each in request
        ]
        judge.see(sent, messages[last]["content"])
    return {"blocks": told["blocks"], **judge.found()}


# The table -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """CPU ms a turn in three parts of a conversation."""

    first: float
    middle: float
    last: float
    turns: int


def parts(blocks: list[float]) -> Row | None:
    """The first 1,000 turns, those in the middle and the last; thirds, or None, where there were too few."""
    size = min(PART, len(blocks) // 3)
    if not size:
        return None
    half = (len(blocks) - size) // 2
    cuts = (blocks[:size], blocks[half : half + size], blocks[-size:])
    first, middle, last = (1_000 * sum(cut) / (size * BLOCK) for cut in cuts)
    return Row(first, middle, last, BLOCK * len(blocks))


def line(name: str, found: dict[str, Any]) -> str:
    """A row of the table."""
    if "failure" in found:
        return f"{name:<38} did not run: {found['failure']}"
    row = parts(found["blocks"])
    if row is None:
        return f"{name:<38} fewer than {3 * BLOCK} turns in {MOST_SECONDS:.0f} s of CPU time"
    judged = f"{found['over']:>6.0f}{found['invalid']:>8.0f}{found['lost']:>6.0f}{found['sent']:>7.0f}"
    return (
        f"{name:<38}{row.turns:>7,}{row.first:>9.3f}{row.middle:>9.3f}{row.last:>9.3f}"
        f"{row.last / row.first:>9.2f}{found['requests']:>9,.0f}{judged}"
    )


def main() -> None:
    """Prints the table."""
    heading = f"{'CPU ms a turn':<38}{'turns':>7}{'first':>9}{'middle':>9}{'last':>9}{'last/1st':>9}"
    print(f"{heading}{'requests':>9}{'over':>6}{'invalid':>8}{'lost':>6}{'sent':>7}")
    messages = conversation()
    python = Path(os.environ.get("ULLAGE_PEERS") or ".", "v_memory", "bin", "python")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "conversation.json")
        costs = [_tokens([message]) - 3 for message in messages]
        file.write_text(json.dumps({"messages": messages, "costs": costs}), encoding="utf-8")
        for name in OURS:
            print(line(name, least(name, folder)), flush=True)
        if not python.exists():
            print(SETUP)
            return
        for name in PEERS:
            print(line(name, peer(name, python, messages, file)), flush=True)
    for name, note in PEERS.items():
        print(f"  {name}: {note}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        chosen, where, kept = sys.argv[1:]
        given = json.loads(Path(where, "conversation.json").read_text("utf-8"))["messages"]
        print(json.dumps(ours(chosen, given, Path(where, kept))))
    else:
        main()
