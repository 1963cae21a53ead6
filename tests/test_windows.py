"""Window sizes: the configured one, else what the server tells, in each server's own words, else None."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.player import Player, Request, Script, playing, sent_json
from tests.telling import STALL, at, raw, real_llama, run
from ullage.broker.count_routes import REQUEST_ROUTES, TEXT_ROUTES
from ullage.broker.dialects import DIALECTS
from ullage.broker.endpoint import Endpoint, Key
from ullage.broker.http import Transport
from ullage.broker.registry import PROBES, PROVIDERS, host_of, routes_of
from ullage.broker.window_routes import WINDOW_ROUTES, Windows, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.enable_socket

MODEL = "some-model"

llama_server = pytest.fixture(scope="module")(real_llama)


def told(answers: Mapping[str, Any], api: str = "openai.chat", model: str = MODEL) -> int | None:
    """The window that a server with these answers tells."""
    found: list[int | None] = []

    async def main(server: Player, transport: Transport) -> None:
        found.append(await window_of(at(server.url + "/v1", model, api=api), transport))

    run(lambda asked: answers.get(asked.path, 404), main)
    return found[0]


def listed(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"/v1/models": {"object": "list", "data": list(entries)}}


def test_a_configured_window_is_taken_and_nobody_is_asked() -> None:
    async def main(server: Player, transport: Transport) -> None:
        assert await window_of(at(server.url, window=1234), transport) == 1234

    assert run(lambda _: {"default_generation_settings": {"n_ctx": 512}}, main) == []


@pytest.mark.parametrize(
    ("answers", "window"),
    [
        ({"/props": {"default_generation_settings": {"n_ctx": 512}, "total_slots": 4}}, 512),
        (listed({"id": MODEL, "max_model_len": 32768}), 32768),
        (listed({"id": MODEL, "meta": {"n_ctx_train": 8192}}), 8192),
        (listed({"id": MODEL, "meta": {"n_ctx_train": 8192, "n_ctx": 512}}), 512),
        (listed({"id": MODEL, "context_length": 20_000, "top_provider": {"context_length": 9000}}), 9000),
        (listed({"id": MODEL, "context_window": 131_072}), 131_072),
        (listed({"id": "another", "context_length": 1}, {"id": MODEL, "context_length": 2000}), 2000),
        (listed({"id": "long/path.gguf", "aliases": [MODEL], "context_length": 7}, {"id": "x"}), 7),
        ({"/api/v0/models": listed({"id": MODEL, "max_context_length": 4096})["/v1/models"]}, 4096),
        ({"/api/show": {"model_info": {"llama.context_length": 131_072}}}, 131_072),
    ],
)  # fmt: skip
def test_each_server_is_understood_in_its_own_words(answers: Mapping[str, Any], window: int) -> None:
    assert told(answers) == window


def test_ollama_s_num_ctx_counts_before_what_the_model_was_trained_for() -> None:
    parameters = 'stop                           "<|im_end|>"\nnum_ctx                        4096\n'
    answer = {"model_info": {"qwen2.context_length": 32768}, "parameters": parameters}
    assert told({"/api/show": answer}, "ollama.chat") == 4096
    assert told({"/api/show": {"parameters": parameters}}, "ollama.chat") == 4096
    assert told({"/api/show": {**answer, "parameters": 'stop "num_ctx"'}}, "ollama.chat") == 32768


def test_ollama_is_asked_by_the_model_s_name() -> None:
    async def main(server: Player, transport: Transport) -> None:
        assert await window_of(at(server.url, "qwen2:7b", api="ollama.chat"), transport) is None

    (asked,) = run(lambda _: {}, main)
    assert (asked.method, asked.path, asked.json()) == ("POST", "/api/show", {"model": "qwen2:7b"})


def test_anthropic_is_asked_for_the_one_model_with_its_own_headers() -> None:
    async def main(server: Player, transport: Transport) -> None:
        endpoint = at(server.url, "claude x/y", api="anthropic.messages", key=Key("k"))
        assert await window_of(endpoint, transport) == 200_000

    def answer(asked: Request) -> Any:
        return {"id": "claude", "max_input_tokens": 200_000} if asked.path != "/props" else 404

    asked = run(answer, main)[-1]
    assert asked.path == "/v1/models/claude%20x%2Fy"
    assert asked.headers["x-api-key"] == "k"
    assert asked.headers["anthropic-version"]
    assert "authorization" not in asked.headers


def test_the_only_model_of_a_server_is_meant_whatever_it_is_called() -> None:
    assert told(listed({"id": "/models/a.gguf", "meta": {"n_ctx": 512}}), model="gpt-4o") == 512


def test_a_model_that_is_not_among_several_has_no_window() -> None:
    assert told(listed({"id": "a", "context_length": 1}, {"id": "b", "context_length": 2})) is None


@pytest.mark.parametrize(
    "figure", [0, -1, True, "512", 512.0, None, [512], {"n": 512}, 10**12, 10**18], ids=repr
)
def test_what_is_no_size_is_not_taken_for_one(figure: Any) -> None:
    answers = {
        "/props": {"default_generation_settings": {"n_ctx": figure}},
        "/api/show": {
            "model_info": {"llama.context_length": figure},
            "parameters": f"num_ctx {figure}0000000000",
        },
        **listed({"id": MODEL, "max_model_len": figure, "meta": {"n_ctx": figure}}),
    }
    assert told(answers) is None


NOT_WINDOWS = {
    "404": 404,
    "500": 500,
    "401": 401,
    "HTML": raw(b"<html></html>"),
    "nothing": raw(b""),
    "half of a JSON": raw(b'{"data"'),
    "deep nesting": raw(b"[" * 100_000),
    "a list": [],
    "null": None,
    "a number for a list": {"data": 1},
}


@pytest.mark.parametrize("name", NOT_WINDOWS)
def test_an_answer_of_any_other_shape_is_no_window(name: str) -> None:
    async def main(server: Player, transport: Transport) -> None:
        assert await window_of(at(server.url), transport) is None

    run(lambda _: NOT_WINDOWS[name], main)


def test_a_body_of_five_megabytes_takes_no_longer_than_the_limit() -> None:
    began = time.monotonic()
    told({"/props": raw(b'{"x": "' + b"x" * 5_000_000 + b'"}')})
    assert time.monotonic() - began < 20


def test_a_server_that_hangs_is_waited_for_two_seconds_in_all() -> None:
    async def main(server: Player, transport: Transport) -> None:
        began = time.monotonic()
        assert await window_of(at(server.url), transport) is None
        assert time.monotonic() - began < 20

    assert len(run(lambda _: STALL, main)) == 1


def test_nobody_there_is_no_window_and_no_error() -> None:
    async def main(_: Player, transport: Transport) -> None:
        for url in ("", "embedded:", "http://127.0.0.1:9", "http://", "http://["):
            assert await window_of(at(url), transport) is None

    run(lambda _: 404, main)


def test_a_server_is_asked_once_a_session_for_each_model() -> None:
    async def main(server: Player, transport: Transport) -> None:
        windows = Windows()
        first, second = at(server.url, "a"), at(server.url + "/v1/", "b")
        found = await asyncio.gather(*(windows.window_of(first, transport) for _ in range(10)))
        assert found == [512] * 10
        assert await windows.window_of(second, transport) == 512
        assert await windows.window_of(at(server.url, "b"), transport) == 512

    assert len(run(lambda _: {"default_generation_settings": {"n_ctx": 512}}, main)) == 2


def test_a_window_asked_for_without_an_object_is_remembered_with_the_transport() -> None:
    async def main(server: Player, transport: Transport) -> None:
        for _ in range(3):
            assert await window_of(at(server.url), transport) == 512

    assert len(run(lambda _: {"default_generation_settings": {"n_ctx": 512}}, main)) == 1


def test_that_a_server_does_not_tell_is_remembered_too() -> None:
    async def main(server: Player, transport: Transport) -> None:
        windows = Windows()
        for _ in range(3):
            assert await windows.window_of(at(server.url), transport) is None

    assert len(run(lambda _: 404, main)) == len(PROBES["openai.chat"].window)


def test_a_server_that_was_not_there_yet_is_asked_again() -> None:
    answers = iter([Script(cut_at=0, framing="length", body=b"{}")])

    async def main(server: Player, transport: Transport) -> None:
        windows = Windows()
        assert await windows.window_of(at(server.url), transport) is None
        assert await windows.window_of(at(server.url), transport) == 512

    run(lambda _: next(answers, {"default_generation_settings": {"n_ctx": 512}}), main)


def test_the_key_goes_to_no_other_host() -> None:
    async def main(server: Player, transport: Transport) -> None:
        moved.append(raw(b"{}", 307, location=other.url + "/props"))
        assert await window_of(at(server.url, key=Key("s3cret")), transport) is None

    moved: list[Script] = []
    with playing(sent_json({"default_generation_settings": {"n_ctx": 512}})) as other:
        asked = run(lambda _: moved[0], main)
    assert {each.headers["authorization"] for each in asked} == {"Bearer s3cret"}
    assert other.requests == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["data", "id", "meta", "n_ctx", "model_info", "a.context_length", "parameters", "aliases",
             "default_generation_settings", "context_length", "top_provider"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip


@given(st.sampled_from(sorted(WINDOW_ROUTES)), JSON)
def test_no_answer_can_break_the_reading(name: str, answer: Any) -> None:
    for figure in WINDOW_ROUTES[name].read(answer, MODEL):
        assert figure is None or figure is not answer


ROUTES = (*PROBES.values(), *(row.routes for row in PROVIDERS.values() if row.routes is not None))


def test_every_route_of_a_row_is_in_the_table_of_its_kind() -> None:
    assert {name for routes in ROUTES for name in routes.window} == WINDOW_ROUTES.keys()
    assert {name for routes in ROUTES for name in routes.request} == REQUEST_ROUTES.keys()
    assert {name for routes in ROUTES for name in routes.text} == TEXT_ROUTES.keys()


HOSTED = [name for name, row in PROVIDERS.items() if not row.local]
OWN_SERVERS = {"llama.cpp", "llama.cpp template", "ollama", "lm studio", "vllm", "sglang", "tgi"}
"""Routes of servers that people run themselves."""


@pytest.mark.parametrize("name", HOSTED)
def test_no_hosted_provider_gets_a_probe_that_is_meant_for_a_local_server(name: str) -> None:
    row = PROVIDERS[name]
    assert row.variable is not None
    for host in (host_of(row.url), *row.hosts):
        for api in DIALECTS:
            endpoint = at(f"https://{host}/v1", api=api, key=Key("k"))
            assert routes_of(endpoint) == row.routes
            assert OWN_SERVERS.isdisjoint(itertools.chain(*routes_of(endpoint)))


@pytest.mark.parametrize("name", [name for name, row in PROVIDERS.items() if row.local])
def test_a_local_server_is_probed_as_it_may_be_any(name: str) -> None:
    row = PROVIDERS[name]
    assert row.routes is None
    assert routes_of(at(row.url, api=row.api)) == PROBES[row.api]


def test_there_are_probes_for_each_api_that_can_be_asked() -> None:
    assert PROBES.keys() == DIALECTS.keys()


def test_a_real_server_tells_what_a_slot_has(llama_server: Endpoint) -> None:
    async def main() -> None:
        async with Transport() as transport:
            for api in ("openai.chat", "openai.responses", "anthropic.messages"):
                endpoint = Endpoint(url=llama_server.url, model="m", api=api, key=llama_server.key)
                assert await window_of(endpoint, transport) == 512

    asyncio.run(main())


def test_parameters_of_many_empty_lines_are_read_in_little_time() -> None:
    before = time.process_time()
    assert told({"/api/show": {"parameters": "\n" * 80_000 + "num_ctx 4096\r\n"}}, "ollama.chat") == 4096
    assert time.process_time() - before < 1
