"""Gateway keys: secrets that are stored nowhere, rights, caps that hold, and their command."""

from __future__ import annotations

import json
import sqlite3
import string
import subprocess
import threading
from contextlib import nullcontext, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends import DATABASES
from tests.postgres import run as run_statement
from tests.postgres import schema_url, server
from tests.world import BIN, environment
from ullage import store
from ullage.cost import Ledger, MemoryBook, Prices
from ullage.cost.keys import GatewayKey, Limits, caps_of, check_model
from ullage.errors import BudgetExceeded, ConfigurationError, KeyRefused, RateLimited
from ullage.store import keys as module
from ullage.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ullage.store import Store

NOON = 1_795_003_200.0
"""2026-11-18 12:00 UTC, in seconds since the epoch."""
PRICES = {"m": Prices.a_million(input=1, output=1)}


@pytest.fixture(params=DATABASES)
def kept(request: pytest.FixtureRequest) -> Iterator[Store]:
    with DATABASES[request.param]() as url, store.open(url) as made:
        yield made


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def refusal(kept: Store, secret: str) -> str:
    with pytest.raises(KeyRefused) as raised:
        kept.keys.get(secret)
    assert kept.keys.find(secret) is None
    return raised.value.reason


# Secrets


def test_a_key_is_found_by_its_secret_with_all_that_it_allows(kept: Store) -> None:
    assert not kept.keys.exist()
    made = kept.keys.create(
        "laptop",
        models=["gpt-4o*", "claude-*"],
        dollars=Limits(day=Decimal("0.1"), total=Decimal(20)),
        tokens=Limits(month=10**9),
        requests_a_minute=60,
        largest_limit=30_000,
        policy_fields=["low_water", "max_age"],
        may_recall=True,
        is_admin=True,
        expires=2e10,
    )
    assert kept.keys.get(made.secret) == made.key
    assert kept.keys.all() == (made.key,)
    assert kept.keys.exist()
    assert made.secret.startswith(f"ullage-{made.key.id}-")
    assert made.key.dollars == Limits(Decimal("0.1"), None, Decimal(20))
    assert (made.key.largest_limit, made.key.policy_fields) == (30_000, ("max_age", "low_water"))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_key_of_an_earlier_version_may_ask_for_what_it_could_before(kind: str, tmp_path: Path) -> None:
    with schema_url() if kind == "postgres" else nullcontext(str(tmp_path / "ullage.db")) as place:
        with store.open(place) as kept:
            made = kept.keys.create("laptop", models=["gpt-4o*"], requests_a_minute=5)
        write_earlier_keys(place)
        with store.open(place) as kept:
            assert kept.keys.get(made.secret) == made.key
            strict = kept.keys.create("intern", largest_limit=1_000, policy_fields=[])
        with store.open(place) as kept:  # the step ran once
            assert kept.keys.get(strict.secret) == strict.key


def write_earlier_keys(place: str) -> None:
    """Turns a store into one of the version before keys had a say about headers."""
    if place.startswith("postgres"):
        schema = place.rpartition("=")[2]
        without = "(rules::jsonb - 'largest_limit' - 'policy_fields')::text"
        run_statement(
            server().get_uri(),
            f"UPDATE {schema}.keys SET rules = {without}; UPDATE {schema}.ullage_version SET number = 6",  # noqa: S608 - our own name
        )
        return
    connection = sqlite3.connect(place)
    connection.execute("UPDATE keys SET rules = json_remove(rules, '$.largest_limit', '$.policy_fields')")
    connection.execute("PRAGMA user_version = 13")
    connection.commit()
    connection.close()


def test_a_secret_has_256_random_bits_and_is_stored_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "ullage.db"
    with store.open(file) as kept:
        secrets = {kept.keys.create(f"key {number}").secret for number in range(20)}
        random = {secret.rpartition(secret.split("-")[1])[2][1:] for secret in secrets}
    assert len(random) == 20
    assert {len(each) for each in random} == {43}
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(each.encode() in stored for each in random)


@pytest.mark.parametrize(
    "change", ["", "x", "ullage-", "longer", "other id", "last letter", "sk-ant-123", "ä" * 59]
)
def test_a_secret_that_was_never_made_is_unknown(kept: Store, change: str) -> None:
    secret = kept.keys.create("laptop").secret
    other = kept.keys.create("other").secret
    wrong = {
        "longer": f"{secret}x",
        "other id": other[:16] + secret[16:],
        "last letter": secret[:-1] + ("A" if secret[-1] != "A" else "B"),
    }.get(change, change)
    assert refusal(kept, wrong) == "unknown"


def test_a_revoked_key_is_refused_at_once_and_elsewhere_within_a_second(kept: Store) -> None:
    made = kept.keys.create("laptop")
    elsewhere = module.KeyStore(kept._database)
    assert elsewhere.get(made.secret) == made.key
    assert kept.keys.revoke("laptop").revoked is not None
    assert refusal(kept, made.secret) == "revoked"
    elsewhere._found = type(elsewhere._found)(
        {digest: (at - module.CACHED, key) for digest, (at, key) in elsewhere._found.items()}
    )
    with pytest.raises(KeyRefused, match="'laptop' was revoked"):
        elsewhere.get(made.secret)
    assert kept.keys.exist()  # a gateway whose keys are all revoked is not open
    with pytest.raises(ConfigurationError, match="no valid key"):
        kept.keys.revoke("laptop")
    assert kept.keys.create("laptop").key.id != made.key.id


def test_a_key_that_was_found_is_not_looked_up_again_for_a_moment(kept: Store) -> None:
    secret = kept.keys.create("laptop").secret
    kept.keys.get(secret)
    with kept._database.writing() as connection:
        connection.execute("DELETE FROM key_secrets")
    assert kept.keys.find(secret) is not None


def test_an_expired_key_is_refused_even_if_it_was_just_found(kept: Store) -> None:
    clock = Clock()
    keys = module.KeyStore(kept._database, clock)
    secret = keys.create("laptop", expires=NOON + 10).secret
    assert keys.find(secret) is not None
    clock.now += 10
    with pytest.raises(KeyRefused, match="expired"):
        keys.get(secret)
    assert keys.create("laptop").key.name == "laptop"  # the name is free again


def test_a_rotated_key_keeps_its_id_and_its_old_secret_for_the_grace(kept: Store) -> None:
    clock = Clock()
    keys = module.KeyStore(kept._database, clock)
    first = keys.create("laptop")
    second = keys.rotate("laptop", grace=60)
    assert second.key == first.key
    clock.now += 59
    assert keys.get(second.secret) == first.key
    assert keys.get(first.secret).id == first.key.id
    third = keys.rotate(first.key.id)
    assert keys.find(first.secret) is None
    assert keys.find(second.secret) is None
    clock.now += 1e6
    assert keys.get(third.secret) == first.key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": " "}, "1 to 100 characters"),
        ({"name": "a\nb"}, "can be printed"),
        ({"models": []}, "at least one model"),
        ({"models": ["gpt", ""]}, "at least one model"),
        ({"dollars": Limits(day=Decimal(-1))}, "a cap in dollars"),
        ({"tokens": Limits(day=-1)}, "a cap in tokens"),
        ({"requests_a_minute": 1.5}, "requests_a_minute"),
        ({"largest_limit": -1}, "the largest limit"),
        ({"largest_limit": 0}, "at least 1 token"),
        ({"policy_fields": ["anchors"]}, "cannot set 'anchors'"),
    ],
)
def test_what_no_key_can_have_is_refused_and_nothing_is_made(
    kept: Store, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        kept.keys.create(**{"name": "laptop", **options})
    assert kept.keys.all() == ()


def test_two_valid_keys_never_have_the_same_name(kept: Store) -> None:
    made: list[str] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        with suppress(ConfigurationError):
            made.append(kept.keys.create("laptop").secret)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(kept.keys.all()) == 1


# Rights


def key(**options: Any) -> GatewayKey:
    return GatewayKey(**{"id": "abcd2345", "name": "laptop", "created": NOON, **options})


def test_a_key_allows_the_models_of_its_patterns_and_no_others() -> None:
    some = key(models=("gpt-4o*", "Claude-*-4-5"))
    for model in ("gpt-4o", "GPT-4o-mini", "claude-sonnet-4-5"):
        check_model(some, model)
    with pytest.raises(KeyRefused, match=r"may not use the model 'o3'. It may use gpt-4o\*, Claude-\*-4-5"):
        check_model(some, "o3")
    check_model(key(), "anything")


@given(model=st.text(string.ascii_letters + string.digits + "-./:", max_size=20))
def test_a_name_without_signs_is_a_pattern_for_itself(model: str) -> None:
    assert key(models=(model,)).allows(model.upper())
    assert not key(models=(model,)).allows(f"{model}x")


# Caps


def ledger(kept: Store | None, some: GatewayKey, clock: Clock | None = None, **options: Any) -> Ledger:
    book = MemoryBook() if kept is None else kept.book
    return Ledger(book=book, prices=PRICES, key=some, clock=clock or Clock(), **options)


def test_the_caps_of_a_key_hold_by_day_by_month_and_in_all(kept: Store) -> None:
    clock = Clock()
    some = key(dollars=Limits(Decimal("0.003"), Decimal("0.005"), Decimal("0.0065")))
    bill = ledger(kept, some, clock)

    def spend(thousands: int) -> None:
        bill.settle(bill.reserve("m", 1_000 * thousands, 0), Usage(prompt=1_000 * thousands))

    spend(3)
    told = r"The cap for key 'abcd2345' on 2026-11-18 is \$0\.003"
    with pytest.raises(BudgetExceeded, match=told) as raised:
        spend(1)
    assert (raised.value.cap, raised.value.spent, raised.value.worst) == (
        Decimal("0.003"),
        Decimal("0.003"),
        Decimal("0.001"),
    )
    clock.now += 86_400
    spend(2)
    with pytest.raises(BudgetExceeded, match="key 'abcd2345' in 2026-11 is"):
        spend(1)
    clock.now += 30 * 86_400
    spend(1)
    with pytest.raises(BudgetExceeded, match="key 'abcd2345'"):
        spend(1)
    assert kept.book.used("key", some.id) == (Decimal("0.006"), 0)
    assert kept.book.used("key-month", "abcd2345 2026-11") == (Decimal("0.005"), 0)


def test_another_key_and_calls_without_a_key_have_their_own_sums(kept: Store) -> None:
    full = key(dollars=Limits(total=Decimal("0.001")))
    ledger(kept, full).reserve("m", 1_000, 0)
    with pytest.raises(BudgetExceeded):
        ledger(kept, full).reserve("m", 1, 0)
    ledger(kept, key(id="other234", dollars=Limits(total=Decimal("0.001")))).reserve("m", 1_000, 0)
    Ledger(book=kept.book, prices=PRICES, session="s").reserve("m", 1_000_000, 0)


def test_a_cap_in_tokens_counts_prompt_and_answer_of_local_models_too(kept: Store) -> None:
    bill = ledger(kept, key(tokens=Limits(day=1_000)))
    held = bill.reserve("local", 500, 400, local=True)
    with pytest.raises(
        BudgetExceeded, match="1,000 tokens, spent 0 tokens, reserved for running calls 900"
    ) as e:
        bill.reserve("m", 101, 0)
    assert (e.value.unit, e.value.worst) == ("tokens", 101)
    bill.settle(held, Usage(prompt=500, completion=100))
    assert kept.book.used("key", "abcd2345", "tokens") == (600, 0)
    bill.release(bill.reserve("m", 300, 100))
    unknown = bill.reserve("m", 300, 100)
    bill.settle(unknown, None)  # the worst case may have been used
    assert kept.book.used("key-day", "abcd2345 2026-11-18", "tokens") == (1_000, 0)
    bill.reserve("m", 0, 0)
    with pytest.raises(BudgetExceeded):
        bill.reserve("m", 1, 0)


def test_a_cap_that_cannot_be_checked_is_an_error(kept: Store) -> None:
    with pytest.raises(ConfigurationError, match="output limit"):
        ledger(kept, key(tokens=Limits(day=10))).reserve("unheard-of", 1, local=True)
    with pytest.raises(ConfigurationError, match="price"):
        ledger(kept, key(dollars=Limits(day=Decimal(1)))).reserve("unheard-of", 1, 1)


def test_a_key_has_its_requests_of_each_minute_and_no_more(kept: Store) -> None:
    clock = Clock(NOON + 45)
    bill = ledger(kept, key(requests_a_minute=2), clock)
    bill.release(bill.reserve("m", 1, 1))
    bill.settle(bill.reserve("m", 1, 1), Usage(prompt=1))
    with pytest.raises(RateLimited, match="2 requests a minute") as raised:
        bill.reserve("m", 1, 1)
    assert (raised.value.limit, raised.value.retry_after) == (2, 15)
    clock.now += 15
    bill.reserve("m", 1, 1)
    with kept._database.reading() as connection:
        rows = connection.execute("SELECT name FROM totals WHERE scope = 'key-minute'").fetchall()
    assert rows == [("abcd2345 2026-11-18T12:01",)]  # earlier minutes are not kept


def test_a_refused_request_counts_in_no_minute(kept: Store) -> None:
    bill = ledger(kept, key(requests_a_minute=1, tokens=Limits(day=10)))
    with pytest.raises(BudgetExceeded):
        bill.reserve("m", 11, 0)
    bill.reserve("m", 10, 0)


def test_the_bill_can_be_read_by_key(kept: Store) -> None:
    for name, cost in (("aaaa2222", 1_000), ("bbbb2222", 3_000)):
        bill = ledger(kept, key(id=name), session="s")
        bill.settle(bill.reserve("m", cost, 0), Usage(prompt=cost))
    by_key = {account.key: entry.cost for account, entry in kept.book.entries()}
    assert by_key == {"aaaa2222": Decimal("0.001"), "bbbb2222": Decimal("0.003")}
    assert [account.key for account, _ in kept.book.entries(key="bbbb2222")] == ["bbbb2222"]


def test_the_caps_of_a_key_go_from_its_rate_to_its_whole_life() -> None:
    some = key(
        requests_a_minute=5,
        dollars=Limits(Decimal(1), Decimal(2), Decimal(3)),
        tokens=Limits(10, 20, 30),
    )
    caps = caps_of(some, NOON)
    assert [(cap.scope, cap.unit, cap.limit) for cap in caps] == [
        ("key-minute", "requests", 5),
        ("key-day", "dollars", 1),
        ("key-day", "tokens", 10),
        ("key-month", "dollars", 2),
        ("key-month", "tokens", 20),
        ("key", "dollars", 3),
        ("key", "tokens", 30),
    ]
    assert caps_of(key()) == ()


steps = st.lists(
    st.tuples(
        st.integers(0, 1_200), st.sampled_from(["settle", "release", "lose", "run"]), st.integers(0, 90)
    ),
    max_size=12,
)


@given(steps=steps)
def test_a_stored_book_answers_for_a_key_as_the_simplest_one_does(steps: list[tuple[int, str, int]]) -> None:
    some = key(requests_a_minute=3, dollars=Limits(Decimal("0.002")), tokens=Limits(None, 1_800, 4_000))
    with store.open("sqlite://:memory:") as kept:
        clock = Clock()
        bills = [ledger(each, some, clock, session="s") for each in (kept, None)]
        for prompt, end, seconds in steps:
            clock.now += seconds
            answers = []
            for bill in bills:
                try:
                    held = bill.reserve("m", prompt, prompt // 3)
                except (BudgetExceeded, RateLimited) as error:
                    answers.append(str(error))
                    continue
                if end == "settle":
                    bill.settle(held, Usage(prompt=prompt // 2, completion=prompt // 4))
                elif end == "release":
                    bill.release(held)
                elif end == "lose":
                    bill.settle(held, None)
                answers.append("made")
            assert answers[0] == answers[1]
        for unit in ("dollars", "tokens"):
            assert bills[0].book.used("key", some.id, unit) == bills[1].book.used("key", some.id, unit)


# The command


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "ullage"), "keys", *arguments, "--store", str(path)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)


def test_the_command_makes_lists_rotates_and_revokes(tmp_path: Path) -> None:
    path = tmp_path / "ullage.db"
    assert run(path, "list").returncode == 1
    made = run(
        path,
        "create",
        "intern",
        "--models",
        "gpt-4o*",
        "--dollars-a-day",
        "$2",
        "--tokens",
        "1,000",
        "--recall",
        "--largest-limit",
        "30,000",
        "--policy-fields",
        "max_age",
        "low_water",
    )
    secret = made.stdout.strip()
    with store.open(path) as kept:
        found = kept.keys.get(secret)
    assert (found.dollars, found.tokens) == (Limits(day=Decimal(2)), Limits(total=1_000))
    assert (found.may_recall, found.is_admin) == (True, False)
    listed = run(path, "list").stdout
    allows = "$2 a day, 1,000 tokens in all, 30,000 tokens a request, policy: max_age low_water, recall"
    for words in ("intern", "gpt-4o*", allows, "valid"):
        assert words in listed
    told = json.loads(run(path, "list", "--json").stdout)
    assert (told["largest_limit"], told["policy_fields"]) == (30_000, ["max_age", "low_water"])
    strict = json.loads(run(path, "create", "strict", "--policy-fields", "none", "--json").stdout)
    assert strict["policy_fields"] == []
    assert "policy: none" in run(path, "list").stdout
    run(path, "revoke", "strict")
    assert secret not in listed
    new = json.loads(run(path, "rotate", "intern", "--grace", "1h", "--json").stdout)["secret"]
    with store.open(path) as kept:
        assert kept.keys.get(new).id == kept.keys.get(secret).id
    assert run(path, "revoke", "intern").returncode == 0
    for line in run(path, "list", "--json").stdout.splitlines():
        assert json.loads(line)["revoked"] is not None
    with store.open(path) as kept:
        assert kept.keys.find(new) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "x", "--dollars", "-1"],
        ["create", "x", "--expires", "soon"],
        ["create", "x", "--expires", "0s"],
        ["create", "x", "--expires", "999999999999d"],
        ["create", "x", "--largest-limit", "0"],
        ["create", "x", "--policy-fields", "all", "none"],
        ["create", "x", "--policy-fields", "trim_strategy"],
        ["revoke", "nobody"],
        ["rotate", "x"],
    ],
)
def test_wrong_usage_is_told_and_changes_nothing(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "ullage.db"
    with store.open(path) as kept:
        kept.keys.create("laptop")
    done = run(path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ullage: ")
    with store.open(path) as kept:
        assert [each.revoked for each in kept.keys.all()] == [None]
