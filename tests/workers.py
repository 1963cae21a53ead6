"""Programs that tests start as processes of their own, to kill them or to set them against each other.

python -m tests.workers NAME FILE ARGUMENT…
"""
# ruff: noqa: S311 - dice are no secrets

from __future__ import annotations

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

from ullage import store
from ullage.context import Context
from ullage.context.journal import JournalEvent
from ullage.cost.book import Account, Cap, Reservation
from ullage.cost.ledger import Ledger
from ullage.cost.prices import Prices
from ullage.errors import BudgetExceeded, Conflict
from ullage.target import Target
from ullage.usage import LedgerEntry, Usage

CENT = Decimal("0.01")
DAY = "2026-11-16"
HERE = Target(endpoint="here", model="m", api="openai.chat")


def say(*words: object) -> None:
    # In one write, so that a kill cannot leave half a line.
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def account(session: str) -> Account:
    return Account(session, "gpt-4o", "main", "ullage", DAY)


def words_of(number: int) -> str:
    return f"turn {number} " + "lorem ipsum " * (number % 97)


def converse(file: str, session: str, turns: str) -> None:
    """Goes on with a conversation and acknowledges each turn when it was kept, and each piece."""
    with store.open(file) as kept:
        context = Context(journal=kept.journal, session=session, model="gpt-4o")
        for number in range(len(context), int(turns)):
            context.append({"role": ("user", "assistant")[number % 2], "content": words_of(number)})
            say("turn", number)
            if number % 10 == 0:
                context.to_messages()
                kept.journal.keep(session, [words_of(number)])
                say("piece", number)


def contend(file: str, session: str, wins: str, who: str) -> None:
    """Appends to a session that others append to, until it has won so many numbers; prints them."""
    won: list[int] = []
    conflicts = 0
    with store.open(file) as kept:
        say("ready")
        sys.stdin.readline()
        while len(won) < int(wins):
            number = len(kept.journal.events(session))
            try:
                kept.journal.append(session, number, JournalEvent("turn", {"by": who}))
            except Conflict:
                conflicts += 1
            else:
                won.append(number)
    say(json.dumps({"won": won, "conflicts": conflicts}))


def share(file: str, who: str, times: str) -> None:
    """Adds to what all share, each time in one transaction, and writes what is its own."""
    with store.open(file) as kept:
        say("ready")
        sys.stdin.readline()
        for number in range(int(times)):
            kept.calibration.learn(HERE, lambda known: {"sum": (known or {"sum": 0})["sum"] + 1})
            kept.preferences.set(f"{who}-{number}", number)
            kept.journal.append(who, number, JournalEvent("turn", {"number": number}))
            kept.journal.keep(who, [f"shared {number}", f"harbour {who} {number}"])
            kept.journal.remember(f"{who} {number}")
    say("done")


def hammer(file: str, threads: str, limit: str, calls: str, who: str) -> None:
    """Reserves and settles against one cap from many threads; prints how much was settled."""
    settled: list[Decimal] = []
    refused: list[int] = []
    with store.open(file) as kept:

        def work(thread: int) -> None:
            dice = random.Random(f"{who} {thread}")
            for number in range(int(calls)):
                worst = dice.randint(1, 9) * CENT
                name = f"{who}-{thread}-{number}"
                call = Reservation(name, account(name), worst)
                if kept.book.reserve(call, [Cap("day", DAY, Decimal(limit))]) is not None:
                    refused.append(number)
                elif number % 4 == 0:
                    assert kept.book.release(call)
                else:
                    real = worst if number % 2 else worst - CENT / 2
                    assert kept.book.settle(call, LedgerEntry(calls=1, cost=real))
                    settled.append(real)

        say("ready")
        sys.stdin.readline()
        with ThreadPoolExecutor(int(threads)) as crowd:
            for done in [crowd.submit(work, thread) for thread in range(int(threads))]:
                done.result()  # raises what the thread raised
    say(
        json.dumps({"settled": str(sum(settled, Decimal(0))), "calls": len(settled), "refused": len(refused)})
    )


def insist(file: str, who: str, times: str) -> None:
    """Writes its name behind what is there, again and again, each time in one transaction."""
    with store.open(file) as kept:
        say("ready")
        sys.stdin.readline()
        for _ in range(int(times)):
            kept.calibration.learn(HERE, lambda known: {"who": (known or {"who": ""})["who"] + who})
    say("done")


def queue(file: str) -> None:
    """Is the next to write, and does not."""
    with store.open(file) as kept, kept._database.locks.queue_to_write(1):
        say("next")
        time.sleep(600)


def reserve(file: str) -> None:
    """Holds a dollar and waits to be killed."""
    kept = store.open(file)
    kept.book.reserve(Reservation("held", account("one"), Decimal(1)), [])
    say("held")
    time.sleep(600)


def replica(url: str, secret: str, threads: str, requests: str, who: str) -> None:
    """Is a gateway: reserves and settles under the cap of a key, and acknowledges what is booked."""
    prices = {"m": Prices.a_million(input=1, output=1)}
    with store.open(url) as kept:

        def serve(number: int) -> None:
            dice = random.Random(f"{who} {number}")
            name = f"{who}-{number}"
            ledger = Ledger(book=kept.book, session=name, prices=prices, key=kept.keys.get(secret))
            try:
                held = ledger.reserve("m", 1_000, 1_000)
            except BudgetExceeded:
                say("refused", name)
                return
            usage = Usage(prompt=dice.randint(1, 1_000), completion=dice.randint(1, 1_000))
            entry = ledger.settle(held, usage)
            assert entry is not None
            say("booked", name, entry.cost)

        say("ready")
        sys.stdin.readline()
        with ThreadPoolExecutor(int(threads)) as crowd:
            for done in [crowd.submit(serve, number) for number in range(int(requests))]:
                done.result()  # raises what the thread raised


def used(file: str) -> None:
    """Tells what is spent and held on the day."""
    with store.open(file) as kept:
        say(*kept.book.used("day", DAY))


def lock(file: str) -> None:
    """Tells whether somebody else holds the file's write lock."""
    import sqlite3

    connection = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        say("locked")
    else:
        say("free")
    connection.close()


def begin(file: str) -> None:
    """Opens a file that may not be there yet, at the same moment as others."""
    say("ready")
    sys.stdin.readline()
    with store.open(file) as kept:
        kept.journal.remember("begun")
    say("done")


if __name__ == "__main__":
    known = (converse, contend, share, hammer, insist, queue, reserve, replica, used, lock, begin)
    {program.__name__: program for program in known}[sys.argv[1]](*sys.argv[2:])
