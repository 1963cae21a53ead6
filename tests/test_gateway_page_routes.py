"""The routes behind the page: who gets in, what the data say, and that nothing grows or waits for ever."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_args

import orjson
import pytest

from tests.gateway import MODEL, Answered, Gateway, chat, priced, serving
from tests.player import Request, Script, answered, playing, sent_json
from tests.test_gateway_fitting import loop_chat
from tests.world import PATIENCE, until
from ullage import store
from ullage.broker.refusals import hide_keys
from ullage.config import load
from ullage.cost.book import Account, Reservation
from ullage.cost.keys import Limits
from ullage.fitting.body import RequestWindow
from ullage.fitting.policy import ChangeKind, Pass
from ullage.gateway import kept_texts
from ullage.gateway.activity import MOST_CONVERSATIONS, MOST_SEEN, Activity
from ullage.gateway.bill import BookedCall
from ullage.gateway.conversations import Identity
from ullage.gateway.figures import Ending
from ullage.gateway.fit_policy import POLICY
from ullage.gateway.gate import Gate
from ullage.gateway.page import login, money, site
from ullage.gateway.page.login import Logins
from ullage.gateway.page.view import REASONS
from ullage.gateway.preparation import Outgoing
from ullage.gateway.refusals import KINDS, Refused
from ullage.gateway.request import Received
from ullage.gateway.server import GRACE
from ullage.target import Target
from ullage.usage import LedgerEntry, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.enable_socket

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
USAGE = {"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 100}}
UNCOUNTED = {"choices": []}
"""An answer without usage, so that nothing is learned about the upstream's counts."""
WINDOW = 4_000


def log_in(gateway: Gateway, secret: str, **headers: str) -> Answered:
    return gateway.ask("/page/login", {"key": secret}, headers=headers)


def cookie_of(answer: Answered) -> dict[str, str]:
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


class EventReader:
    """Reads the events of a stream, one at a time."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer
        self.number = ""

    def event(self) -> tuple[str, Any]:
        """The next event: its name and its data; a sign of life is no event."""
        name, data = "", ""
        while line := self.answer.readline().decode():
            if line.startswith("id: "):
                self.number = line[4:].strip()
            elif line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                data = line[6:]
            elif line == "\n" and name:
                return name, orjson.loads(data)
        return "end", None

    def until(self, wanted: str) -> Any:
        """The data of the next event with this name."""
        while True:
            name, data = self.event()
            if name in {wanted, "end"}:
                assert name == wanted
                return data


@contextmanager
def streaming(
    gateway: Gateway, after: int, headers: Mapping[str, str] | None = None
) -> Iterator[EventReader]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
    try:
        connection.request("GET", f"/page/events?after={after}", headers=dict(headers or {}))
        answer = connection.getresponse()
        assert answer.status == 200
        yield EventReader(answer)
    finally:
        connection.close()


def state_of(gateway: Gateway, headers: Mapping[str, str] | None = None) -> Any:
    answer = gateway.ask("/page/state", headers=headers)
    assert answer.status == 200, answer.body
    return answer.json()


# The files


def test_programs_get_the_plain_answer_and_browsers_the_page() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        assert gateway.ask("/").body.startswith(b"Ullage gateway: /openapi.json")
        assert gateway.ask("/", method="HEAD").headers["content-type"].startswith("text/plain")
        page = gateway.ask("/", headers=HTML)
        assert page.headers["content-type"].startswith("text/html")
        for path in ("/page/page.css", "/page/page.js", "/page/icon.svg"):
            assert path.encode() in page.body
            assert gateway.ask(path).status == 200
        assert gateway.ask("/page/state/").status == gateway.ask("/page/page.css/").status == 200
        assert gateway.ask("/page/other").status == 404
        assert gateway.ask("/page/login").status == 405


@pytest.mark.parametrize("path", ["/", "/page/page.js", "/page/state", "/page/login"])
def test_every_answer_of_the_page_has_the_strict_headers(path: str) -> None:
    with serving("http://127.0.0.1:9") as gateway:
        headers = gateway.ask(path, {} if path.endswith("login") else None, headers=HTML).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_the_files_load_nothing_from_elsewhere_and_have_nothing_inline() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        page, style, script = (
            gateway.ask(path, headers=HTML).body.decode() for path in ("/", "/page/page.css", "/page/page.js")
        )
    assert "style=" not in page
    assert "<style" not in page
    assert "<script>" not in page
    assert "http" not in page + style
    assert [line for line in script.splitlines() if "http:" in line and "www.w3.org" not in line] == []
    assert [
        word for word in ("innerHTML", "insertAdjacent", "eval(", "document.write") if word in script
    ] == []


# Access


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:80"},
        {"host": "127.0.0.1.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"x-forwarded-for": "203.0.113.9"},
        {"forwarded": "for=203.0.113.9"},
    ],
)
@pytest.mark.parametrize("path", ["/page/state", "/page/events", "/page/texts"])
def test_without_keys_only_a_browser_on_this_machine_gets_data(path: str, headers: dict[str, str]) -> None:
    with serving("http://127.0.0.1:9") as gateway:
        assert gateway.ask(path, headers=headers).status == 403
        assert state_of(gateway, {"sec-fetch-site": "same-origin"})["has_login"] is False


def test_another_host_name_gets_not_even_the_files_without_keys() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        assert gateway.ask("/", headers={**HTML, "host": "evil.example"}).status == 403


def test_a_browser_still_may_not_call_models() -> None:
    with playing(sent_json({})) as player, serving(player.url) as gateway:
        for headers in ({"origin": gateway.url}, {"sec-fetch-site": "cross-site"}):
            assert gateway.ask("/v1/chat/completions", chat("Hi"), headers=headers).status == 403
    assert player.requests == []


def test_a_login_opens_the_data_until_it_is_ended() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        plain, owner = (
            gateway.kept.keys.create(name, is_admin=name == "owner") for name in ("plain", "owner")
        )
        assert gateway.ask("/", headers=HTML).status == 200
        assert gateway.ask("/page/state").status == 401
        assert gateway.ask("/page/state", headers={"authorization": f"Bearer {plain.secret}"}).status == 401
        assert log_in(gateway, "nonsense").status == 401
        assert log_in(gateway, plain.secret).status == 403
        assert gateway.ask("/page/login", {"key": 1}).status == 400
        assert gateway.ask("/page/login", {"key": "x" * 5_000}).status == 413
        entered = log_in(gateway, owner.secret)
        assert entered.status == 200
        assert {"HttpOnly", "SameSite=Strict", "Path=/page"} <= set(entered.headers["set-cookie"].split("; "))
        assert owner.secret not in entered.headers["set-cookie"]
        state = state_of(gateway, cookie_of(entered))
        assert state["has_login"] is True
        assert [each["status"] for each in state["refusals"]] == [401, 403, 400, 413]
        assert all("nonsense" not in each["message"] for each in state["refusals"])
        assert gateway.ask("/page/logout", {}, headers=cookie_of(entered)).status == 200
        assert gateway.ask("/page/state", headers=cookie_of(entered)).status == 401


def test_another_site_can_neither_log_in_nor_out() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        owner = gateway.kept.keys.create("owner", is_admin=True)
        entered = cookie_of(log_in(gateway, owner.secret, origin=gateway.url))
        assert log_in(gateway, owner.secret, origin="https://evil.example").status == 403
        cross = {**entered, "sec-fetch-site": "cross-site"}
        assert gateway.ask("/page/logout", {}, headers=cross).status == 403
        assert gateway.ask("/page/state", headers=cross).status == 403
        assert state_of(gateway, entered)


def test_behind_tls_the_cookie_is_secure_and_a_changed_host_does_no_harm() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        owner = gateway.kept.keys.create("owner", is_admin=True)
        headers = {"origin": "https://gate.example", "sec-fetch-site": "same-origin", "host": "inner"}
        assert "; Secure" in log_in(gateway, owner.secret, **headers).headers["set-cookie"]


def test_guessing_is_slowed_down() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        owner = gateway.kept.keys.create("owner", is_admin=True)
        statuses = [log_in(gateway, f"guess {each}").status for each in range(login.ATTEMPTS + 1)]
        assert statuses == [401] * login.ATTEMPTS + [429]
        refused = log_in(gateway, owner.secret)
        assert refused.status == 429
        assert 0 < int(refused.headers["retry-after"]) <= login.PERIOD


def test_a_login_ends_with_its_time_and_with_its_key(tmp_path: Path) -> None:
    now = [0.0]

    async def check() -> None:
        with store.open(tmp_path / "ullage.db") as kept:
            logins = Logins(Gate(kept.keys), kept.keys, clock=lambda: now[0])
            owner = kept.keys.create("owner", is_admin=True)
            first = await logins.enter(owner.secret, "127.0.0.1")
            assert await logins.find(first)
            assert await logins.find("") is None
            now[0] = login.LASTS
            assert await logins.find(first) is None
            second = await logins.enter(owner.secret, "127.0.0.1")
            assert await logins.find(second)
            kept.keys.revoke("owner")
            now[0] += login.CHECKED
            assert await logins.find(second) is None
            with pytest.raises(Refused):
                await logins.enter(owner.secret, "127.0.0.1")

    asyncio.run(check())


def test_only_so_many_logins_and_addresses_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "MOST_LOGINS", 2)
    monkeypatch.setattr(login, "MOST_ADDRESSES", 2)

    async def check() -> None:
        with store.open(tmp_path / "ullage.db") as kept:
            owner = kept.keys.create("owner", is_admin=True)
            logins = Logins(Gate(kept.keys), kept.keys)
            tokens = [await logins.enter(owner.secret, "127.0.0.1") for _ in range(3)]
            assert [bool(await logins.find(each)) for each in tokens] == [False, True, True]
            for address in "abc":
                with pytest.raises(Refused):
                    await logins.enter("wrong", address)
            assert len(logins._attempts._wrong) == 2

    asyncio.run(check())


# The data


def test_the_state_has_figures_and_no_texts() -> None:
    secret = "Bearer some-private-secret"  # noqa: S105 - a stand-in
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        for steps in range(1, 13):
            gateway.ask("/v1/chat/completions", loop_chat(steps), headers={"authorization": secret})
        gateway.ask("/v1/chat/completions", chat("word " * 9_000))
        raw = gateway.ask("/page/state")
        assert gateway.ask("/page/texts?request=1").status == 404
    for private in (b"wind and rain", b"harbour", b"private-secret"):
        assert private not in raw.body
    state = raw.json()
    (conversation,) = state["conversations"]
    newest = conversation["newest"]
    assert (conversation["requests"], len(state["requests"])) == (12, 12)
    assert sum(newest["blocks"].values()) == newest["tokens"] <= newest["limit"] < newest["before"]
    assert newest["given"] == 26
    assert newest["dropped"] + newest["truncated"] > 0
    assert conversation["trims"] == sum(bool(each["changes"]) for each in state["requests"]) > 0
    (change, *_) = next(each["changes"] for each in state["requests"] if each["changes"])
    assert (change["role"], change["tool"]) == ("tool", "read")
    assert change["before"] > change["after"]
    assert state["totals"]["given_tokens"] > state["totals"]["sent_tokens"]
    (refusal,) = state["refusals"]
    assert (refusal["kind"], refusal["status"]) == ("overflow", 400)


def test_every_kind_of_change_and_of_refusal_has_words() -> None:
    own = {each.name for each in POLICY.trim_strategy if isinstance(each, Pass)}
    assert REASONS.keys() == {*get_args(ChangeKind), *own}
    with serving("http://127.0.0.1:9") as gateway:
        script = gateway.ask("/page/page.js").body.decode()
    table = re.search(r"const KINDS = \{(.*?)\}", script, re.DOTALL)
    assert table is not None
    assert set(re.findall(r'^\s+"?([\w -]+?)"?:', table[1], re.MULTILINE)) == KINDS.keys()


def test_reuse_is_known_although_the_history_is_read_again() -> None:
    with playing(sent_json(USAGE)) as player, serving(player.url) as gateway:
        for number in (1, 3, 5):  # the upstream counts more than our ceiling
            gateway.ask("/v1/chat/completions", chat(*["The harbour is full of boats."] * number))
        requests = state_of(gateway)["requests"]
    assert [each["reuse"] is None for each in requests] == [True, False, False]
    assert all(each["prompt"] > each["tokens"] for each in requests[:1])


def test_reuse_is_the_share_of_the_request_before() -> None:
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        for steps in range(1, 13):
            gateway.ask("/v1/chat/completions", loop_chat(steps))
        other = loop_chat(13)
        other["tools"][0]["function"]["description"] = "Reads one log of the harbour."
        gateway.ask("/v1/chat/completions", other, headers={"x-session-id": "s"})
        requests = state_of(gateway)["requests"][:12]
    assert requests[0]["reuse"] is None
    for before, now in pairwise(requests):
        if now["changes"]:
            assert now["reuse"] < 0.5
        else:
            assert now["reuse"] == pytest.approx(before["tokens"] / now["tokens"], abs=0.05)


def test_a_digest_leaves_the_system_prompt_before_it_reusable() -> None:
    system = {"role": "system", "content": "You keep the log of the harbour. " * 60}
    talk: list[dict[str, str]] = [system]
    with playing(sent_json(UNCOUNTED)) as player, serving(player.url, window=WINDOW) as gateway:
        for boat in range(8):
            talk.append({"role": "user", "content": f"Boat {boat} came in. " * 120})
            gateway.ask("/v1/chat/completions", {"model": MODEL, "messages": talk})
            talk.append({"role": "assistant", "content": f"Noted boat {boat}. " * 60})
        trimmed = [each for each in state_of(gateway)["requests"] if each["blocks"]["summary"]]
    assert len(trimmed) > 1
    for each in trimmed:
        assert each["reuse"] >= 0.9 * each["blocks"]["system"] / each["tokens"] > 0.1


def test_a_compaction_has_no_limit_of_its_own() -> None:
    with playing(sent_json({"output": []})) as player, serving(player.url, window=WINDOW) as gateway:
        gateway.ask("/v1/responses/compact", {"model": MODEL, "input": [{"role": "user", "content": "Hi"}]})
        (seen,) = state_of(gateway)["requests"]
    assert seen["limit"] is None


def test_a_store_that_fails_ends_the_stream_and_is_told_by_the_state() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        with streaming(gateway, state_of(gateway)["number"]) as stream:
            stream.until("money")
            gateway.kept.close()
            while stream.event()[0] != "end":
                pass
        answer = gateway.ask("/page/state")
    assert (answer.status, b"cannot use its ledger" in answer.body) == (503, True)


def test_failures_are_shown_as_they_ended() -> None:
    cut = Script(body=answered("Ahoy there"), cut_at=60)
    busy = {"error": {"message": "You said: private words", "code": "overloaded"}}
    with playing(sent_json(busy, 529), cut) as player, serving(player.url) as gateway:
        gateway.ask("/v1/chat/completions", chat("One"))
        gateway.ask("/v1/chat/completions", chat("Two", stream=True))
        raw = gateway.ask("/page/state")
    assert b"private words" not in raw.body
    first, second = raw.json()["requests"]
    assert (first["status"], first["code"], first["prompt"]) == (529, "overloaded", None)
    assert (second["status"], second["is_broken"], second["is_streamed"]) == (200, True, True)


def test_a_client_that_went_away_is_shown() -> None:
    with playing(Script(body=answered("Ahoy"), stall_at=60)) as player, serving(player.url) as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
        connection.request("POST", "/v1/chat/completions", orjson.dumps(chat("Hi", stream=True)))
        connection.getresponse()
        connection.sock.close()
        connection.close()
        assert player.wait_left()
        assert until(lambda: [each["status"] for each in state_of(gateway)["requests"]] == [499])


def test_texts_are_kept_only_if_asked_and_never_with_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_texts, "MOST_CHARACTERS", 400)
    monkeypatch.setattr(kept_texts, "MOST_REQUESTS", 2)
    own, known = "my-own-odd-credential", "sk-proj-" + "aB3d" * 6
    with (
        playing(sent_json(UNCOUNTED)) as player,
        serving(player.url, window=WINDOW, keep_bodies=True) as gateway,
    ):
        for steps in range(1, 40):
            body = loop_chat(steps)
            for message in body["messages"][3::2]:
                message["content"] = f"{own} {known} {message['content']}"
            gateway.ask("/v1/chat/completions", body, headers={"x-api-key": own})
        changed = [each["number"] for each in state_of(gateway)["requests"] if each["has_texts"]]
        texts = [gateway.ask(f"/page/texts?request={number}") for number in changed]
    assert len(changed) > 2
    assert [bool(each.json()) for each in texts[-3:]] == [False, True, True]
    one = texts[-1].json()[0]
    assert one["before"].startswith("[key] [key] log ")
    assert "characters …]" in one["before"]
    assert own.encode() not in texts[-1].body + texts[-2].body
    assert known.encode() not in texts[-1].body + texts[-2].body


def test_a_gateway_key_in_a_text_is_recognised(tmp_path: Path) -> None:
    with store.open(tmp_path / "ullage.db") as kept:
        secret = kept.keys.create("laptop").secret
    assert hide_keys(f"curl -H 'x-api-key: {secret}' …") == "curl -H 'x-api-key: [key]' …"


def test_memory_is_bounded() -> None:
    with playing(sent_json(USAGE)) as player, serving(player.url) as gateway:
        number = state_of(gateway)["number"]
        for each in range(MOST_CONVERSATIONS + 5):
            gateway.ask("/v1/chat/completions", chat(f"Boat {each}"))
        state = state_of(gateway)
        assert len(state["conversations"]) == MOST_CONVERSATIONS
    activity = Activity()
    request = Received("GET", "/" + "x" * 9_000, "", {}, "127.0.0.1")
    for _ in range(MOST_SEEN + 1):
        activity.refuse(request, None, Refused("path", "m" * 9_000))
    everything = activity.everything()
    assert (len(everything.refusals), everything.totals.refused) == (MOST_SEEN, MOST_SEEN + 1)
    assert len(everything.refusals[0].path) + len(everything.refusals[0].message) < 1_000
    assert number


# The stream


def test_news_come_by_themselves_and_go_on_after_a_pause() -> None:
    with playing(sent_json(USAGE)) as player, serving(player.url) as gateway:
        with streaming(gateway, state_of(gateway)["number"]) as stream:
            assert stream.until("money")["days"]
            gateway.ask("/v1/chat/completions", chat("One"))
            news = stream.until("news")
            assert [each["requests"] for each in news["conversations"]] == [1]
            last = stream.number
        gateway.ask("/v1/chat/completions", chat("Two"))
        gateway.ask("/v1/nothing")
        with streaming(gateway, 0, {"last-event-id": last}) as stream:
            news = stream.until("news")
        assert (len(news["requests"]), len(news["refusals"])) == (1, 1)


def test_a_request_under_way_is_in_the_state_and_in_the_stream() -> None:
    release = threading.Event()

    def answer(_: Request) -> Script:
        assert release.wait(PATIENCE)
        return Script(cut_at=0)  # however it ends, it is under way no longer

    with (
        playing(answer) as player,
        serving(player.url) as gateway,
        ThreadPoolExecutor(1) as thread,
        streaming(gateway, state_of(gateway)["number"]) as stream,
    ):
        assert stream.until("running") == {"number": 0, "shown": []}
        asked = thread.submit(
            gateway.ask, "/v1/chat/completions", chat("One"), headers={"user-agent": "boat/1"}
        )
        try:
            running = stream.until("running")
            state = state_of(gateway)
        finally:
            release.set()
        assert running["number"] == state["running"]["number"] == 1
        (shown,) = running["shown"]
        assert (shown["model"], shown["client"], shown["limit"]) == (MODEL, "boat/1", 87_500)
        assert abs(shown["at"] - time.time()) < PATIENCE
        assert b"upstream_failed" in asked.result().body
        assert stream.until("running") == {"number": 0, "shown": []}


@pytest.mark.parametrize("after", [0, 99_999_999_999_999])
def test_a_page_that_missed_too_much_starts_again(after: int) -> None:
    with serving("http://127.0.0.1:9") as gateway, streaming(gateway, after) as stream:
        assert stream.event()[0] == "reset"
        assert stream.event()[0] == "end"


def test_news_that_are_forgotten_are_not_taken_for_none() -> None:
    activity = Activity()
    begin = activity.newest
    request = Received("GET", "/", "", {}, "127.0.0.1")
    for _ in range(MOST_SEEN):
        activity.refuse(request, None, Refused("path", "gone"))
    news = activity.news(begin)
    assert news is not None
    assert len(news.refusals) == MOST_SEEN
    activity.refuse(request, None, Refused("path", "gone"))
    assert activity.news(begin) is None


def test_a_stream_ends_with_its_login() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        owner = gateway.kept.keys.create("owner", is_admin=True)
        cookie = cookie_of(log_in(gateway, owner.secret))
        with streaming(gateway, state_of(gateway, cookie)["number"], cookie) as stream:
            stream.until("money")
            gateway.ask("/page/logout", {}, headers=cookie)
            assert stream.event()[0] == "end"


def test_the_first_key_ends_the_streams_of_neighbours() -> None:
    with (
        serving("http://127.0.0.1:9") as gateway,
        streaming(gateway, state_of(gateway)["number"]) as stream,
    ):
        stream.until("money")
        gateway.kept.keys.create("owner")
        assert stream.event()[0] == "end"


def test_a_gateway_with_an_open_page_stops_in_order() -> None:
    with serving("http://127.0.0.1:9") as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
        connection.request("GET", f"/page/events?after={state_of(gateway)['number']}")
        answer = connection.getresponse()
        assert answer.readline()
    rest = answer.read()  # raises IncompleteRead if the stream was cut off
    connection.close()
    assert rest.startswith(b"data: ")


def test_only_so_many_pages_are_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MOST_STREAMS", 1)
    with serving("http://127.0.0.1:9") as gateway:
        with streaming(gateway, state_of(gateway)["number"]) as stream:
            stream.until("money")
            assert gateway.ask("/page/events").status == 429
            assert gateway.ask("/page/events", method="HEAD").status == 429
        assert until(lambda: gateway.ask("/page/events", method="HEAD").status == 200)


def test_a_browser_that_takes_nothing_is_dropped_and_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "SLOWEST", 0.1)
    with socket.socket() as browser:
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with serving("http://127.0.0.1:9", buffer=4_096) as gateway:
            browser.connect(("127.0.0.1", gateway.port))
            after = state_of(gateway)["number"]
            browser.sendall(f"GET /page/events?after={after} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert until(lambda: gateway.app._activity.watchers == 1)
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)

            def is_dropped() -> bool:
                for _ in range(50):
                    connection.request("GET", "/v1/" + "nothing" * 30)
                    connection.getresponse().read()
                return gateway.app._activity.watchers == 0

            assert until(is_dropped)
            connection.close()
            stopping = time.monotonic()
        assert time.monotonic() - stopping < GRACE


def test_recording_costs_the_same_however_long_the_history_is() -> None:
    """Compares the least CPU time of many calls, which a busy machine does not change."""
    request = Received("POST", "/v1/chat/completions", "", {"user-agent": "boat/1"}, "127.0.0.1")
    ending = Ending(200, BookedCall(Usage(prompt=5, completion=5), (), Decimal("0.001")))

    def least(steps: int) -> float:
        window = RequestWindow("openai.chat", model=MODEL, limit=1_000_000)
        sent = [outgoing(window.fit(loop_chat(number))) for number in (steps - 1, steps)]
        activity, times = Activity(), []
        for _ in range(300):
            for each in sent:
                begun = time.thread_time()
                activity.record(request, each, ending)
                times.append(time.thread_time() - begun)
        return min(times)

    assert least(200) < 4 * least(5)


def outgoing(fitted: Any) -> Outgoing:
    target = Target(model=MODEL, api="openai.chat")
    upstream: Any = None
    return Outgoing(
        upstream=upstream,
        api="openai.chat",
        model=MODEL,
        target=target,
        data=b"",
        count=fitted.count,
        estimate=fitted.fitted.estimate,
        limit=fitted.limit,
        most_output=None,
        identity=Identity("", target, fitted.limit, "name"),
        fitted=fitted,
        unread="",
        reused=None,
        is_lowered=False,
        is_streamed=False,
        asked={},
    )


# Money


def book(
    kept: store.Store, day: str, model: str, key: str, cost: str | None, *, session: str = "gateway:x"
) -> None:
    reservation = Reservation(
        f"{day}{model}{key}{session}", Account(session, model, "main", "", day, key), None
    )
    kept.book.reserve(reservation, ())
    amount = None if cost is None else Decimal(cost)
    entry = LedgerEntry(calls=1, prompt=10, completion=1, cost=amount, unpriced=int(amount is None))
    kept.book.settle(reservation, entry)


def read_money(folder: Path, kept: store.Store, config: str = "") -> money.MoneyView:
    file = folder / "config.toml"
    file.write_text(config)
    settings = load(file, environ={}, cwd=folder)
    return asyncio.run(money.Money(settings, kept).view(1, ["gateway:x"]))


def test_costs_are_those_of_the_ledger_by_day_model_and_key(tmp_path: Path) -> None:
    today = datetime.now(UTC).date()
    days = [(today - timedelta(days=back)).isoformat() for back in (0, 1, 29, 30)]
    with store.open(tmp_path / "ullage.db") as kept:
        key = kept.keys.create("laptop", dollars=Limits(Decimal(3))).key
        for day in days:
            book(kept, day, MODEL, key.id, "0.5")
        book(kept, days[0], "local", "", None)
        book(kept, days[0], MODEL, "", "9", session="of the shell")
        view = read_money(tmp_path, kept, "[cost]\ncap_at_dollars = 7\ncap_at_dollars_a_day = 8\n")
    priced_line, local = view.by_model
    assert (view.days[0], view.days[-1], len(view.days)) == (days[2], days[0], 30)
    assert [sum(filter(None, line.dollars)) for line in view.by_key] == [Decimal("1.5"), 0]
    assert (priced_line.name, priced_line.dollars[-1]) == (MODEL, Decimal("0.5"))
    assert (local.dollars[-1], local.tokens[-1], local.unpriced) == (None, 11, 1)
    caps = {(cap.scope, cap.whose): (cap.spent, cap.limit) for cap in view.caps}
    assert caps["day", ""] == (Decimal("9.5"), 8)
    assert caps["key-day", "laptop"] == (Decimal("0.5"), 3)
    assert caps["session", "gateway:x"] == (2, 7)


def test_many_models_are_summed_beyond_the_dearest(tmp_path: Path) -> None:
    day = datetime.now(UTC).date().isoformat()
    with store.open(tmp_path / "ullage.db") as kept:
        for each in range(money.MOST_NAMES + 5):
            book(kept, day, f"m{each}", "", f"{each}")
        view = read_money(tmp_path, kept)
    assert [line.name for line in view.by_model] == ["m11", "m10", "m9", "m8", "m7", "m6", "m5", ""]
    assert view.by_model[-1].is_rest
    assert view.by_model[-1].dollars[-1] == 0 + 1 + 2 + 3 + 4


def test_caps_of_a_thousand_keys_are_not_all_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(money, "MOST_KEYS", 2)
    day = datetime.now(UTC).date().isoformat()
    with store.open(tmp_path / "ullage.db") as kept:
        keys = [kept.keys.create(f"k{each}", dollars=Limits(Decimal(1))).key for each in range(5)]
        kept.keys.revoke("k4")
        book(kept, day, MODEL, keys[0].id, "0.5")
        view = read_money(tmp_path, kept)
    assert ({cap.whose for cap in view.caps}, view.hidden_keys) == ({"k0", "k3"}, 2)


def test_the_ledger_is_not_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    settings = load(file, environ={}, cwd=tmp_path)

    async def check(kept: store.Store) -> None:
        read = money.Money(settings, kept)
        first = await read.view(1, [])
        book(kept, datetime.now(UTC).date().isoformat(), MODEL, "", "1")
        assert await read.view(2, []) is first
        read._due = {True: 0.0, False: float("inf")}
        assert await read.view(1, []) is first
        assert (await read.view(2, [])).by_model

    with store.open(tmp_path / "ullage.db") as kept:
        asyncio.run(check(kept))


def test_reserved_sums_are_shown_while_a_call_runs() -> None:
    script = Script(body=answered("Ahoy"), stall_at=60)
    with (
        playing(script) as player,
        serving(priced(player.url), config="[cost]\ncap_at_dollars_a_day = 3\n") as gateway,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
        connection.request(
            "POST", "/v1/chat/completions", orjson.dumps(chat("Hi", stream=True, max_tokens=90))
        )
        connection.getresponse()
        (cap,) = state_of(gateway)["money"]["caps"]
        connection.sock.close()
        connection.close()
        assert player.wait_left()
    assert cap["reserved"] > 0
    assert cap["spent"] == 0
