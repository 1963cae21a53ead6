"""The gateway's own policy of fitting: few trims, files cut one by one, counts that follow the upstream."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import orjson

from ullage.fitting.body import RequestWindow
from ullage.gateway.conversations import Conversation, Conversations, Identity, weight_of
from ullage.gateway.fit_policy import POLICY
from ullage.gateway.quoted_files import rewrite_documents
from ullage.gateway.upstream_counts import UpstreamCounts
from ullage.target import Target
from ullage.tokens import counter_for

LIMIT = 12_000
WORDS = [
    "harbour",
    "lantern",
    "granite",
    "velvet",
    "compass",
    "saddle",
    "mirror",
    "island",
    "pepper",
    "anchor",
]


class Shelf:
    """Remembers nothing."""

    def learned(self, target: Target) -> None:
        pass

    def learn(self, target: Target, change: Any) -> None:
        pass


def output(number: int, words: int) -> str:
    lines = [f"code word {number:03d}-{number * 7919}"]
    lines += [
        " ".join(WORDS[(number + line + each) % 10] for each in range(12)) for line in range(words // 12)
    ]
    return "\n".join(lines)


def loop(steps: int, words: int = 900) -> list[dict[str, Any]]:
    """The messages of one question with so many tool steps, each with a long argument and a result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all the files, one by one."}]
    for number in range(steps):
        arguments = orjson.dumps({"path": f"file-{number}.txt", "why": " ".join(WORDS * 12)}).decode()
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": output(number, words)})
    return messages


def requests(steps: int) -> list[dict[str, Any]]:
    """The bodies that an agent sends for such a loop, one after the other."""
    messages = loop(steps)
    return [{"model": "gpt-5.1", "messages": messages[: 1 + 2 * step]} for step in range(steps + 1)]


def shared(one: bytes, other: bytes) -> int:
    """The number of bytes at the beginning that are the same."""
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def reuse(bodies: list[bytes]) -> float:
    """The share of all requests but the first that a prompt cache could reuse."""
    return sum(shared(*pair) for pair in pairwise(bodies)) / sum(map(len, bodies[1:]))


def test_a_long_loop_of_one_question_keeps_most_of_its_prefix() -> None:
    bodies = {}
    for name, policy in (("gateway", POLICY), ("library", None)):
        window = RequestWindow("openai.chat", model="gpt-5.1", limit=LIMIT, policy=policy)
        fitted = [window.fit(body) for body in requests(60)]
        assert all(each.count.ceiling <= LIMIT for each in fitted)
        bodies[name] = [orjson.dumps(each.body["messages"]) for each in fitted]
    assert reuse(bodies["gateway"]) > 0.7
    assert reuse(bodies["gateway"]) > reuse(bodies["library"]) + 0.1


def test_the_newest_result_is_whole_and_the_digest_names_the_others() -> None:
    window = RequestWindow("openai.chat", model="gpt-5.1", limit=LIMIT, policy=POLICY)
    for body in requests(30):
        messages = window.fit(body).body["messages"]
        newest = body["messages"][-1]
        assert messages[-1]["role"] == newest["role"]
        assert newest["content"] in messages[-1]["content"]
    assert "file-0.txt" in messages[0]["content"]


FILES = {f"src/{word}.py": f"# code word {word.upper()}\n" + output(5, 1_800) for word in WORDS}


def quoting(names: list[str]) -> str:
    """A message with these files, as aider writes it."""
    return "I have added these files.\n\n" + "\n".join(f"{name}\n```\n{FILES[name]}\n```\n" for name in names)


def test_files_in_one_message_are_cut_one_by_one_in_a_fixed_order() -> None:
    window = RequestWindow("openai.chat", model="gpt-5.1", limit=LIMIT, policy=POLICY)
    for number in range(7, len(FILES) + 1):
        names = random.Random(number).sample(list(FILES)[:number], number)  # noqa: S311 - an order
        messages = [
            {"role": "user", "content": quoting(names)},
            {"role": "assistant", "content": "Ok."},
            {"role": "user", "content": "Go on."},
        ]
        fitted = window.fit({"model": "gpt-5.1", "messages": messages})
        (told,) = [each["content"] for each in fitted.body["messages"] if "I have added" in each["content"]]
        assert fitted.count.ceiling <= LIMIT
        assert all(f"code word {name[4:-3].upper()}" in told for name in names)
        if fitted.changed:
            assert [line for line in told.splitlines() if line.startswith("src/")] == sorted(names)
            assert "tokens cut" in told
    assert fitted.changed


def test_documents_with_words_between_them_stay_in_their_order() -> None:
    text = "b.py\n```\nsecond\n```\nCompare it with this one:\na.py\n~~~ python\nfirst\n~~~\nWhich is better?"
    assert rewrite_documents(text, str.upper) == text.replace("second", "SECOND").replace("first", "FIRST")
    assert rewrite_documents("no document", str.upper) == "no document"


def test_conversations_are_forgotten_by_number_and_by_size() -> None:
    known = Conversations(most=3, most_bytes=1_000)
    counts = UpstreamCounts(Shelf())

    def use(name: str, weight: int) -> Conversation:
        target = Target(model="gpt-5.1", api="openai.chat")
        return known.get("openai.chat", Identity("", target, LIMIT, name), counts.factor, weight=weight)

    first = use("a", 100)
    assert use("a", 200) is first
    for name in "bcd":
        use(name, 100)
    assert len(known) == 3
    assert use("a", 100) is not first
    use("e", 900)
    assert len(known) == 2  # it and the newest of the others
    use("f", 5_000)
    assert len(known) == 1


def test_the_window_is_filled_although_the_upstream_counts_fewer_tokens() -> None:
    """Claude's tokens are estimated high, and an upstream may count far fewer."""
    target = Target(model="claude-sonnet-4-5", api="openai.chat", endpoint="http://127.0.0.1:1")
    counter = counter_for(Target(model="gpt-5.1", api="openai.chat"))
    counts = UpstreamCounts(Shelf())
    conversation = Conversation("openai.chat", Identity("", target, LIMIT, "one"), counts.factor)
    actual = []
    for body in requests(24):
        fitted = conversation._fit(body)
        actual.append(counter.text(orjson.dumps(fitted.body["messages"]).decode()).tokens * 3 // 4)
        counts.observe(target, fitted.fitted.estimate, actual[-1])
    assert LIMIT * 0.8 < max(actual[12:]) <= LIMIT


def test_many_short_messages_weigh_more_than_their_bytes() -> None:
    body = {"messages": [{"role": "user", "content": "a"}] * 1_000}
    assert weight_of(body, "openai.chat", 30_000) > 10 * 30_000
    assert weight_of({"input": "a"}, "openai.responses", 30_000) == 30_000
