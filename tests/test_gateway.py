"""The gateway relays what it does not change byte for byte, both ways, and refuses what is not allowed."""

from __future__ import annotations

import gzip
import socket
from dataclasses import replace
from typing import Any

import orjson
import pytest
import zstandard

from tests.gateway import CLAUDE, MODEL, chat, priced, serving
from tests.player import Script, answered, playing, sent_json
from tests.world import PATIENCE, until
from ullage.broker.endpoint import Timeouts
from ullage.gateway.upstreams import any_model_at

pytestmark = pytest.mark.enable_socket

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

# Odd on purpose: spaces, escapes, an order of its own, unknown fields.
BODIES: dict[str, tuple[str, bytes]] = {
    "chat": (
        "/v1/chat/completions",
        (
            b'{ "model": "gpt-5.1",\n "user":"\\u00e9", "messages": [{"content":"\\u0041?", "role":"user"}],'
            b' "x_unknown": [1.0, 1e3], "stream_options": {"include_usage": true}, "stream": true }'
        ),
    ),
    "chat with tools and an image": (
        "/v1/chat/completions",
        orjson.dumps(
            {
                "model": MODEL,
                "messages": [
                    {"role": "system", "content": "Read files."},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "Look"},
                            {"type": "image_url", "image_url": {"url": PIXEL}},
                        ],
                    },
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
                        ],
                    },
                    {"role": "tool", "tool_call_id": "c1", "content": "harbour"},
                ],
                "tools": [{"type": "function", "function": {"name": "read", "parameters": TOOL}}],
                "response_format": {"type": "json_object"},
            },
            option=orjson.OPT_INDENT_2,
        ),
    ),
    "responses": (
        "/v1/responses",
        (
            b'{"model":"gpt-5.1", "input":[{"type":"message","role":"user","content":"Hi"},'
            b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"abc"},'
            b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"read","arguments":"{}"},'
            b'{"type":"function_call_output","call_id":"call_1","output":"harbour"}],'
            b'"tools":[{"type":"namespace","name":"n","tools":[]},{"type":"web_search"}],'
            b'"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k" }'
        ),
    ),
    "messages": (
        "/v1/messages?beta=true",
        (
            b'{"max_tokens": 2000, "model":"claude-sonnet-4-5", "system":[{"type":"text","text":"Be brief.",'
            b'"cache_control":{"type":"ephemeral"}}], "messages":[{"role":"user","content":"Hi"},'
            b'{"role":"assistant",'
            b'"content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"tool_use","id":"t1",'
            b'"name":'
            b'"read","input":{"path":"a"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1",'
            b'"content":"harbour"}]}], "tools":[{"name":"read","input_schema":{"type":"object"}}],'
            b'"thinking":{"type":"enabled","budget_tokens":1024}, "metadata":{"user_id":"u"} }'
        ),
    ),
}


def sse(*events: tuple[str, dict[str, Any]]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data)) for name, data in events)


START = {"input_tokens": 30, "output_tokens": 1, "cache_read_input_tokens": 5}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
MESSAGE_STREAM = sse(
    (
        "message_start",
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "usage": {"input_tokens": 30, "output_tokens": 1, "cache_read_input_tokens": 5},
            },
        },
    ),
    (
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ),
    (
        "content_block_delta",
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Ahoy"}},
    ),
    ("content_block_stop", {"type": "content_block_stop", "index": 0}),
    (
        "message_delta",
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
    ),
    ("message_stop", {"type": "message_stop"}),
)
RESPONSE = {"id": "r", "status": "completed", "output": [], "usage": {"input_tokens": 31, "output_tokens": 4}}
RESPONSE_STREAM = sse(
    ("response.created", {"type": "response.created", "response": {"id": "r", "usage": None}}),
    ("response.output_text.delta", {"type": "response.output_text.delta", "delta": "Ahoy"}),
    ("response.completed", {"type": "response.completed", "response": RESPONSE}),
)
STREAMS = {
    "chat": answered("Ahoy there, sailor", 33, 5),
    "chat with tools and an image": answered("Ahoy", 70, 2),
    "responses": RESPONSE_STREAM,
    "messages": MESSAGE_STREAM,
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("piece", [0, 7])
def test_a_request_and_its_stream_pass_byte_for_byte(name: str, piece: int) -> None:
    path, body = BODIES[name]
    stream = STREAMS[name]
    with (
        playing(Script(body=stream, piece=piece, headers={"x-request-id": "up-1"})) as player,
        serving(player.url) as gateway,
    ):
        answer = gateway.ask(path, body, headers={"authorization": "Bearer own", "anthropic-beta": "one,two"})
        (entry,) = gateway.booked()
    (request,) = player.requests
    assert request.path == path
    assert request.body == body
    assert request.headers["authorization"] == "Bearer own"
    assert request.headers["anthropic-beta"] == "one,two"
    assert (answer.status, answer.body) == (200, stream)
    assert answer.headers["x-request-id"] == "up-1"
    assert int(answer.headers["x-ullage-tokens"]) > 0
    assert answer.headers["x-ullage-dropped"] == "0"
    assert entry.prompt in {33, 70, 31, 35}  # 30 new and 5 cached
    assert entry.estimated_calls == 0


@pytest.mark.parametrize("name", BODIES)
def test_a_refusal_of_the_upstream_passes_byte_for_byte_and_costs_nothing(name: str) -> None:
    path, body = BODIES[name]
    refusal = {"error": {"message": "slow down", "type": "x"}}
    with (
        playing(sent_json(refusal, 429, headers={"retry-after": "7"})) as player,
        serving(player.url) as gateway,
    ):
        answer = gateway.ask(path, body)
        assert gateway.booked() == []
    assert (answer.status, answer.json(), answer.headers["retry-after"]) == (429, refusal, "7")


def test_a_whole_answer_passes_with_its_cost() -> None:
    value = {
        "choices": [{"message": {"content": "Ahoy"}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100},
    }
    config = '[models."gpt-5.1"]\nendpoint = "http://127.0.0.1:1"\nprices = { input = 2, output = 10 }\n'
    with (
        playing(sent_json(value)) as player,
        serving(priced(player.url, window=9_000), config=config) as gateway,
    ):
        answer = gateway.ask("/v1/chat/completions", chat("word " * 900))
        (entry,) = gateway.booked()
    assert answer.json() == value
    assert float(answer.headers["x-ullage-cost"]) == float(entry.cost) == pytest.approx(0.003)
    assert answer.headers["x-ullage-limit"] == str(9_000 - 9_000 // 8)


@pytest.mark.parametrize("script", [sent_json({}, 999), Script(body=answered("Ahoy"), status=999)])
def test_a_status_that_http_does_not_have_is_a_bad_gateway(script: Script) -> None:
    with playing(script) as player, serving(player.url) as gateway:
        answer = gateway.ask("/v1/chat/completions", chat("Hi"))
    assert answer.status == 502
    assert answer.body == script.body


def test_paths_also_work_without_the_version() -> None:
    with playing(Script(body=STREAMS["chat"])) as player, serving(player.url) as gateway:
        assert gateway.ask("/chat/completions", BODIES["chat"][1]).status == 200
    assert player.requests[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate"])
def test_a_compressed_body_is_read_and_sent_plain(encoding: str) -> None:
    import zlib

    body = BODIES["chat"][1]
    packed = {
        "gzip": gzip.compress(body),
        "zstd": zstandard.ZstdCompressor().compress(body),
        "deflate": zlib.compress(body),
    }[encoding]
    with playing(Script(body=STREAMS["chat"])) as player, serving(player.url) as gateway:
        answer = gateway.ask("/v1/chat/completions", packed, headers={"content-encoding": encoding})
    assert answer.status == 200
    assert player.requests[0].body == body
    assert "content-encoding" not in player.requests[0].headers


def test_headers_of_the_way_and_of_the_gateway_are_not_sent_on() -> None:
    sent = {
        "connection": "keep-alive, x-secret-hop",
        "x-secret-hop": "1",
        "te": "trailers",
        "cookie": "a=b",
        "x-forwarded-proto": "https",
        "x-ullage-limit": "5000",
        "accept-encoding": "gzip",
        "x-stainless-lang": "python",
        "x-claude-code-session-id": "s1",
        "traceparent": "00-1-2-01",
    }
    with playing(Script(body=STREAMS["chat"])) as player, serving(player.url) as gateway:
        answer = gateway.ask("/v1/chat/completions", BODIES["chat"][1], headers=sent)
    got = player.requests[0].headers
    assert not {"x-secret-hop", "te", "cookie", "x-forwarded-proto", "x-ullage-limit"} & got.keys()
    assert got["accept-encoding"] == "identity"
    assert (got["x-stainless-lang"], got["x-claude-code-session-id"]) == ("python", "s1")
    assert got["traceparent"] == "00-1-2-01"
    assert answer.headers["x-ullage-limit"] == "5000"


def test_no_field_of_a_request_chooses_the_address() -> None:
    with (
        playing(Script(body=STREAMS["chat"])) as elsewhere,
        playing(Script(body=STREAMS["chat"])) as player,
        serving(player.url) as gateway,
    ):
        body = chat("Hi", stream=True, base_url=elsewhere.url, api_base=elsewhere.url, model=elsewhere.url)
        gateway.ask("/v1/chat/completions", body, headers={"x-forwarded-host": elsewhere.url[7:]})
        raw = orjson.dumps(body)
        head = (
            f"POST {elsewhere.url}/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
            connection.sendall(head.encode() + raw)
            while connection.recv(65536):
                pass
    assert elsewhere.requests == []


def test_a_smuggled_second_request_is_not_read_as_one() -> None:
    raw = b"0\r\n\r\nPOST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" % len(raw)
    )
    with (
        playing(Script(body=STREAMS["chat"])) as player,
        serving(player.url) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection,
    ):
        connection.sendall(head + raw)
        said = b""
        while piece := connection.recv(65536):
            said += piece
    assert b" 400 " in said.split(b"\r\n")[0]
    assert player.requests == []


# Who may use it


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "harbour.example"}, 403),
        ({"host": "127.0.0.1.harbour.example"}, 403),
        ({"origin": "https://harbour.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"host": "localhost:8787"}, 200),
        ({"x-forwarded-for": "9.9.9.9"}, 403),
        ({"forwarded": "for=9.9.9.9"}, 403),
        ({"x-real-ip": "9.9.9.9"}, 403),
    ],
)
def test_without_a_key_neither_a_browser_nor_a_proxy_may_use_it(headers: dict[str, str], status: int) -> None:
    with playing(Script(body=STREAMS["chat"])) as player, serving(player.url) as gateway:
        assert gateway.ask("/v1/chat/completions", BODIES["chat"][1], headers=headers).status == status
    assert len(player.requests) == (status == 200)


# Bad input


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 400, "not JSON"),
        (b'{"messages":[]}', 400, "names no model"),
        (b'{"model":5,"messages":[]}', 400, "names no model"),
        (b'{"messages":[],"model":"%b"}' % (b"x" * 501), 404, "more than 500 characters"),
        (b"\xff\xfe", 400, "not JSON"),
    ],
)
def test_bad_input_is_refused_with_a_reason(body: bytes, status: int, said: str) -> None:
    with playing(Script()) as player, serving(player.url) as gateway:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            answer = gateway.ask(path, body)
            assert answer.status == status
            assert said in answer.json()["error"]["message"]
    assert player.requests == []


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with playing(Script()) as player, serving(player.url) as gateway:
        headers = {"content-length": str(10**9)}
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
            lines = [f"{name}: {value}" for name, value in headers.items()]
            head = "\r\n".join(["POST /v1/messages HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""])
            connection.sendall(head.encode())
            said = connection.recv(65536)
        assert b" 413 " in said.split(b"\r\n")[0]
        bomb = gzip.compress(bytes(80 * 1024 * 1024))
        answer = gateway.ask("/v1/chat/completions", bomb, headers={"content-encoding": "gzip"})
        assert answer.status == 413
        cut = gateway.ask("/v1/chat/completions", bomb[:50], headers={"content-encoding": "gzip"})
        assert cut.status == 400
        odd = gateway.ask("/v1/chat/completions", b"{}", headers={"content-encoding": "br"})
        assert "gzip" in odd.json()["error"]["message"]


def test_a_body_that_stops_coming_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
    with playing(Script(body=STREAMS["chat"])) as player, serving(player.url) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
            connection.sendall(begun)
            assert gateway.ask("/v1/chat/completions", BODIES["chat"][1]).status == 200
        monkeypatch.setattr("ullage.gateway.request.SECONDS", 0.3)
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
            connection.sendall(begun)
            assert b" 408 " in connection.recv(65536).split(b"\r\n")[0]


def test_half_of_a_character_is_read_and_forwarded_as_it_came() -> None:
    body = b'{"model":"gpt-5.1","stream":true,"messages":[{"role":"user","content":"cut \\ud83d"}]}'
    with playing(Script(body=STREAMS["chat"])) as player, serving(player.url) as gateway:
        assert gateway.ask("/v1/chat/completions", body).status == 200
    assert player.requests[0].body == body


def test_a_form_that_is_unknown_is_forwarded_if_it_surely_fits() -> None:
    body = chat("Hi", stream=True)
    body["messages"].append({"role": "telepath", "content": {"thought": "x"}})
    with playing(Script(body=STREAMS["chat"])) as player, serving(player.url, window=4_000) as gateway:
        answer = gateway.ask("/v1/chat/completions", body)
        assert answer.status == 200
        assert answer.headers["x-ullage-unread"]
        assert gateway.metric('ullage_unread_total{api="openai.chat"}') == 1
        body["messages"].append({"role": "telepath", "content": {"thought": "harbour " * 5_000}})
        refused = gateway.ask("/v1/chat/completions", body)
    assert refused.status == 400
    assert "cannot shorten it" in refused.json()["error"]["message"]
    assert len(player.requests) == 1


def test_unknown_paths_and_methods_are_refused() -> None:
    with playing(Script()) as player, serving(player.url) as gateway:
        assert gateway.ask("/v1/embeddings", {}).status == 404
        assert gateway.ask("/v1/../etc/passwd").status == 404
        assert gateway.ask("/v1/messages").status == 405
        assert gateway.ask("/v1/messages", headers={"anthropic-version": "1"}).json()["type"] == "error"


# Output limits


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/chat/completions", chat("word " * 500, max_tokens=64_000), "max_tokens"),
        ("/v1/chat/completions", chat("word " * 500, max_completion_tokens=64_000), "max_completion_tokens"),
        (
            "/v1/responses",
            {"model": MODEL, "input": "word " * 500, "max_output_tokens": 64_000},
            "max_output_tokens",
        ),
        (
            "/v1/messages",
            {
                "model": CLAUDE,
                "max_tokens": 32_000,
                "thinking": {"type": "enabled", "budget_tokens": 31_999},
                "messages": [{"role": "user", "content": "word " * 500}],
            },
            "max_tokens",
        ),
    ],
)
def test_output_limits_are_lowered_together_and_told(path: str, body: dict[str, Any], field: str) -> None:
    with playing(sent_json({"usage": {}})) as player, serving(player.url, window=8_000) as gateway:
        answer = gateway.ask(path, body)
    sent = player.requests[0].json()
    assert answer.headers["x-ullage-max-output"] == str(sent[field])
    assert 5_000 < sent[field] < 8_000 - 500
    if "thinking" in body:
        assert 1_024 <= sent["thinking"]["budget_tokens"] < sent[field]
        assert sent["thinking"]["type"] == "enabled"
    kept = {name: value for name, value in sent.items() if name not in {field, "thinking"}}
    assert kept == {name: value for name, value in body.items() if name not in {field, "thinking"}}


# The end of an answer


def cut_stream(**more: Any) -> Script:
    return Script(body=STREAMS["chat"], piece=40, cut_at=200, **more)


@pytest.mark.parametrize(
    ("path", "name", "mark"),
    [
        ("/v1/chat/completions", "chat", b'data: {"error"'),
        ("/v1/responses", "responses", b"event: error\n"),
        ("/v1/messages", "messages", b"event: error\n"),
    ],
)
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_cut_upstream_becomes_an_error_event(path: str, name: str, mark: bytes, framing: str) -> None:
    stream = STREAMS[name]
    script = Script(body=stream, framing=framing, cut_at=len(stream) * 2 // 3)
    with playing(script) as player, serving(player.url) as gateway:
        answer = gateway.ask(path, BODIES[name][1])
        (entry,) = gateway.booked()
        assert gateway.metric(f'ullage_broken_streams_total{{api="{_api(path)}"}}') == 1
    whole, event = answer.body[: answer.body.index(mark)], answer.body[answer.body.index(mark) :]
    assert stream.startswith(whole)
    assert whole.endswith(b"\n\n")
    assert event.endswith(b"\n\n")
    assert entry.estimated_calls == 1
    assert entry.prompt > 0


def _api(path: str) -> str:
    return {"/v1/chat/completions": "openai.chat", "/v1/responses": "openai.responses"}.get(
        path, "anthropic.messages"
    )


def test_an_upstream_that_is_not_there_is_a_502_that_may_be_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with serving(f"http://127.0.0.1:{port}") as gateway:
        answer = gateway.ask("/v1/chat/completions", chat("Hi"))
        assert gateway.booked() == []
    assert (answer.status, answer.headers["x-should-retry"]) == (502, "true")
    assert "is the server running" in answer.json()["error"]["message"]


def test_an_upstream_that_does_not_begin_is_a_504_and_one_that_stops_an_error_event() -> None:
    silent = Timeouts(connect=PATIENCE, first=0.3, between=PATIENCE)
    stalled = Timeouts(connect=PATIENCE, first=PATIENCE, between=0.3)
    for script, waits, body in (
        (Script(silent=True), silent, {}),
        (Script(body=STREAMS["chat"], stall_at=60), stalled, {"stream": True}),
    ):
        with playing(script) as player:
            table = any_model_at(player.url, 100_000, {})
            patient = {
                name: replace(each, endpoint=replace(each.endpoint, timeouts=waits))
                for name, each in table.items()
            }
            with serving(patient) as gateway:
                answer = gateway.ask("/v1/chat/completions", chat("Hi", **body))
                (entry,) = gateway.booked()
        assert entry.estimated_calls == 1  # it may be charged
        if body:
            assert answer.status == 200
            assert b'"code":"upstream_timeout"' in answer.body
        else:
            assert (answer.status, answer.headers["x-should-retry"]) == (504, "true")


@pytest.mark.parametrize("stall", [0, 150])
def test_a_client_that_goes_away_stops_the_upstream_and_is_billed(stall: int) -> None:
    script = Script(body=STREAMS["chat"], stall_at=stall)
    body = BODIES["chat"][1]
    with (
        playing(script) as player,
        serving(player.url) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection,
    ):
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert player.wait_asked()
        if stall:
            assert connection.recv(1000)
        connection.close()
        assert player.wait_left()
        assert until(lambda: len(gateway.booked()) == 1)
        (entry,) = gateway.booked()
        assert gateway.kept.book.used("session", "x") == (0, 0)
        assert gateway.metric('ullage_clients_gone_total{api="openai.chat"}') == 1
    assert (entry.calls, entry.estimated_calls) == (1, 1)
    assert entry.prompt > 0


def test_chunks_come_as_they_are_sent() -> None:
    answer = STREAMS["chat"]
    first, rest = answer.split(b"\n\n", 1)
    script = Script(body=answer, piece=len(first) + 2, held_at=len(first) + 2)
    with playing(script) as player, serving(player.url) as gateway:
        body = BODIES["chat"][1]
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE) as connection:
            head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            came = b""
            while first not in came:
                piece = connection.recv(65536)
                assert piece
                came += piece
            assert b"[DONE]" not in came
            script.released.set()
            while piece := connection.recv(65536):
                came += piece
    assert b"[DONE]" in rest
    assert b"[DONE]" in came


def test_a_request_that_its_upstream_finds_too_long_is_learned_and_told() -> None:
    refusal = {
        "error": {"message": "prompt is too long: 900 tokens > 800 maximum", "type": "invalid_request_error"}
    }
    with playing(sent_json(refusal, 400)) as player, serving(player.url, window=2_000) as gateway:
        answer = gateway.ask("/v1/chat/completions", chat("word " * 700))
        assert gateway.booked() == []
    assert answer.status == 400
    assert 1 < len(player.requests) <= 3


# Other routes


def test_the_small_routes_answer() -> None:
    models = {"data": [{"id": "boat", "owned_by": "harbour"}]}
    with playing(sent_json(models)) as player, serving(player.url, window=5_000) as gateway:
        assert gateway.ask("/", method="HEAD").status == 200
        assert gateway.ask("/healthz").body == b"ok\n"
        assert gateway.ask("/readyz").status == 200
        assert gateway.ask("/openapi.json").json()["openapi"].startswith("3.")
        (card,) = gateway.ask("/v1/models").json()["data"]
        assert (card["id"], card["owned_by"], card["context_window"]) == ("boat", "harbour", 5_000)
        assert gateway.ask("/v1/models/boat").json()["id"] == "boat"
        counted = gateway.ask("/tokenize", {"model": MODEL, "prompt": "hello world"}).json()
        assert counted == {"count": 2, "ceiling": 2, "max_model_len": 5_000}
        told = gateway.ask("/tokenize", {"messages": [{"role": "user", "content": "hello"}]}).json()
        assert told["count"] > 2
        assert gateway.ask("/tokenize", {"text": 1}).status == 400


def test_counts_are_the_upstreams_or_ours() -> None:
    path, body = (
        "/v1/messages/count_tokens",
        {"model": CLAUDE, "messages": [{"role": "user", "content": "Hi"}]},
    )
    with (
        playing(sent_json({"input_tokens": 4242}), sent_json({}, 404)) as player,
        serving(player.url) as gateway,
    ):
        assert gateway.ask(path, body).json() == {"input_tokens": 4242}
        ours = gateway.ask(path, body)
        assert gateway.booked() == []
    assert 1 < ours.json()["input_tokens"] < 50
    assert ours.headers["x-ullage-counted-by"] == "ullage"


def test_a_compaction_is_relayed_and_billed() -> None:
    answer = {"output": [], "usage": {"input_tokens": 9_000, "output_tokens": 12}}
    with playing(sent_json(answer)) as player, serving(player.url, window=4_000) as gateway:
        body = {"model": MODEL, "input": [{"role": "user", "content": "word " * 9_000}]}
        assert gateway.ask("/v1/responses/compact", body).json() == answer
        (entry,) = gateway.booked()
    assert player.requests[0].json() == body
    assert entry.prompt == 9_000
