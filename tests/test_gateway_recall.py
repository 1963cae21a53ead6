"""A model finds what was removed from its window, and the client sees neither the call nor the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.gateway import MODEL, priced, serving
from tests.player import Script, playing, sent_json
from tests.scripted_answers import COMPLETION, PROMPT, STREAMS, chat_stream, events
from tests.test_body import anthropic_loop, chat_loop, responses_loop
from tests.test_gateway_translation import CLAUDE, at
from tests.world import until
from ullage.gateway.hidden_turns import HiddenTurns
from ullage.gateway.recall import MOST_ROUNDS

if TYPE_CHECKING:
    from tests.player import Request

pytestmark = pytest.mark.enable_socket

WINDOW = 5_000
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
LOOPS = {"chat": chat_loop, "responses": responses_loop, "messages": anthropic_loop}
MODELS = {"chat": MODEL, "responses": MODEL, "messages": CLAUDE}
HISTORY = {"chat": "messages", "responses": "input", "messages": "messages"}
WORDS = '{"words":"heron-01"}'
SIGNED = {"type": "thinking", "thinking": "I forgot.", "signature": "c2ln"}
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}


def recalling_stream(api: str, *, beside: bool = False) -> bytes:
    """An answer that calls the recall tool, after a thought and a word, and perhaps a tool of the client."""
    if api == "chat":
        calls = [
            {"index": 0, "id": "r1", "type": "function", "function": {"name": "recall", "arguments": ""}}
        ]
        rest = [{"index": 0, "function": {"arguments": WORDS}}]
        if beside:
            function = {"name": "read", "arguments": "{}"}
            rest.append({"index": 1, "id": "c9", "type": "function", "function": function})
        deltas = [{"role": "assistant", "content": "Wait. "}, {"tool_calls": calls}, {"tool_calls": rest}]
        chunks: list[Any] = [{"id": "a", "choices": [{"index": 0, "delta": each}]} for each in deltas]
        chunks.append({"id": "a", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        usage = {"prompt_tokens": 10, "completion_tokens": 2}
        chunks.append({"id": "a", "choices": [], "usage": usage})
        return events(*chunks, named=False) + b"data: [DONE]\n\n"
    if api == "messages":
        blocks: list[tuple[Any, Any]] = [
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Wait. "}]),
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                [
                    {"type": "thinking_delta", "thinking": SIGNED["thinking"]},
                    {"type": "signature_delta", "signature": SIGNED["signature"]},
                ],
            ),
            (
                {"type": "tool_use", "id": "r1", "name": "recall", "input": {}},
                [{"type": "input_json_delta", "partial_json": WORDS}],
            ),
        ]
        if beside:
            begun = {"type": "tool_use", "id": "c9", "name": "read", "input": {}}
            blocks.append((begun, [{"type": "input_json_delta", "partial_json": "{}"}]))
        made: list[Any] = [
            {
                "type": "message_start",
                "message": {"id": "m1", "usage": {"input_tokens": 10, "output_tokens": 1}},
            }
        ]
        for index, (block, deltas_of) in enumerate(blocks):
            made.append({"type": "content_block_start", "index": index, "content_block": block})
            made += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas_of]
            made.append({"type": "content_block_stop", "index": index})
        end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}
        return events(*made, end, {"type": "message_stop"})
    call = {"type": "function_call", "id": "fc", "call_id": "r1", "name": "recall", "arguments": WORDS}
    items: list[Any] = [SEALED, call]
    if beside:
        items.append({**call, "id": "fc2", "call_id": "c9", "name": "read", "arguments": "{}"})
    made = [{"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}}]
    for index, item in enumerate(items):
        made.append({"type": "response.output_item.added", "output_index": index, "item": item})
        made.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {"input_tokens": 10, "output_tokens": 2}
    response = {"id": "resp_1", "status": "completed", "output": items, "usage": usage}
    return events(*made, {"type": "response.completed", "response": response})


def whole(api: str, *, recalls: bool) -> dict[str, Any]:
    """A whole answer of an API."""
    if api == "chat":
        message: dict[str, Any] = {"role": "assistant", "content": "Ahoy there"}
        if recalls:
            function = {"name": "recall", "arguments": WORDS}
            message = {"role": "assistant", "content": None}
            message["tool_calls"] = [{"id": "r1", "type": "function", "function": function}]
        reason = "tool_calls" if recalls else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        return {
            "id": "a",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": usage,
        }
    if api == "messages":
        blocks: list[Any] = [{"type": "text", "text": "Ahoy there"}]
        if recalls:
            blocks = [
                SIGNED,
                {"type": "tool_use", "id": "r1", "name": "recall", "input": orjson.loads(WORDS)},
            ]
        reason = "tool_use" if recalls else "end_turn"
        usage = {"input_tokens": 10, "output_tokens": 2}
        return {"id": "m", "type": "message", "content": blocks, "stop_reason": reason, "usage": usage}
    items: list[Any] = [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ahoy there"}]}
    ]
    if recalls:
        call = {"type": "function_call", "id": "fc", "call_id": "r1", "name": "recall", "arguments": WORDS}
        items = [SEALED, call]
    usage = {"input_tokens": 10, "output_tokens": 2}
    return {"id": "resp_1", "object": "response", "output": items, "usage": usage}


STEPS = 9
"""Steps after which a loop was trimmed, and has room for a result."""


def loop(api: str, steps: int = 12, **more: Any) -> dict[str, Any]:
    return LOOPS[api](steps) | {"model": MODELS[api], **more}


def tool_names(api: str, body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] if api == "chat" else tool["name"] for tool in body.get("tools", ())]


@pytest.mark.parametrize("api", PATHS)
def test_the_recall_of_a_stream_is_hidden_and_answered(api: str) -> None:
    scripts = Script(body=recalling_stream(api), piece=23), Script(body=STREAMS[api](), piece=23)
    with playing(*scripts) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
        answer = gateway.ask(PATHS[api], loop(api, STEPS, stream=True))
        assert until(lambda: sum(entry.calls for entry in gateway.booked()) == 2)
        assert gateway.metric(f'ullage_recall_calls_total{{api="{NAMES[api]}"}}') == 1
    first, second = (each.json() for each in player.requests)
    text = answer.body.decode()
    assert answer.status == 200
    assert "recall" not in text
    assert "heron-01" not in text
    assert "Ahoy" in text
    assert text.count(ENDINGS[api]) == 1
    assert tool_names(api, first)[-1] == "recall"
    assert first["tools"] == second["tools"]
    assert second[HISTORY[api]][: len(first[HISTORY[api]])] == first[HISTORY[api]]
    assert "code_word=heron-01" in orjson.dumps(second[HISTORY[api]][-1]).decode()
    assert str(PROMPT + 10) in text or f'"input_tokens":{PROMPT - 8 + 10}' in text


NAMES = {"chat": "openai.chat", "responses": "openai.responses", "messages": "anthropic.messages"}
ENDINGS = {"chat": "[DONE]", "responses": "event: response.completed", "messages": "event: message_stop"}


def test_signed_thinking_and_sealed_reasoning_go_back_with_the_hidden_call() -> None:
    for api, thought in (("messages", SIGNED), ("responses", SEALED)):
        scripts = Script(body=recalling_stream(api)), Script(body=STREAMS[api]())
        with playing(*scripts) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
            text = gateway.ask(PATHS[api], loop(api, stream=True)).body.decode()
        hidden = player.requests[1].json()[HISTORY[api]]
        block = hidden[-2]["content"][0] if api == "messages" else hidden[-3]
        assert block == thought
        assert str(thought.get("signature") or thought["encrypted_content"]) not in text


def test_the_parts_of_both_rounds_have_numbers_in_a_row() -> None:
    scripts = Script(body=recalling_stream("messages")), Script(body=STREAMS["messages"](call=True))
    with playing(*scripts) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
        text = gateway.ask(PATHS["messages"], loop("messages", stream=True)).body.decode()
    shown = [orjson.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]
    starts = [each for each in shown if each["type"] == "content_block_start"]
    assert [each["index"] for each in starts] == [0, 1, 2, 3]
    assert [each["content_block"]["type"] for each in starts] == ["text", "thinking", "text", "tool_use"]
    assert [each["type"] for each in shown].count("message_start") == 1
    delta = next(each for each in shown if each["type"] == "message_delta")
    assert delta["delta"]["stop_reason"] == "tool_use"
    assert delta["usage"]["output_tokens"] == COMPLETION + 2


@pytest.mark.parametrize("api", PATHS)
def test_the_recall_of_a_whole_answer_is_hidden_and_all_rounds_are_summed(api: str) -> None:
    scripts = sent_json(whole(api, recalls=True)), sent_json(whole(api, recalls=False))
    with playing(*scripts) as player, serving(priced(player.url, WINDOW), recall=True) as gateway:
        answer = gateway.ask(PATHS[api], loop(api))
        booked = gateway.booked()
    assert "recall" not in answer.body.decode()
    assert "Ahoy there" in answer.body.decode()
    usage = answer.json()["usage"]
    assert usage.get("prompt_tokens", usage.get("input_tokens")) == 20
    assert float(answer.headers["x-ullage-cost"]) == pytest.approx(float(sum(each.cost for each in booked)))
    assert "code_word=heron-01" in orjson.dumps(player.requests[1].json()[HISTORY[api]][-1]).decode()


@pytest.mark.parametrize("api", PATHS)
def test_hidden_turns_stand_at_their_places_in_later_requests(api: str) -> None:
    scripts = sent_json(whole(api, recalls=True)), sent_json(whole(api, recalls=False))
    with playing(*scripts) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
        body = loop(api, 4)
        gateway.ask(PATHS[api], body)
        items = body[HISTORY[api]]
        body[HISTORY[api]] = [
            *items,
            {"role": "assistant", "content": "Ahoy there"},
            {"role": "user", "content": "Go on"},
        ]
        gateway.ask(PATHS[api], body)
        other = {**body, HISTORY[api]: [*items[:-1], {"role": "user", "content": "Something else"}]}
        gateway.ask(PATHS[api], other)
    _, before, after, another = (each.json()[HISTORY[api]] for each in player.requests)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
    assert "recall" not in orjson.dumps(another).decode()


@pytest.mark.parametrize("api", PATHS)
def test_a_recall_beside_other_calls_is_answered_in_the_next_request(api: str) -> None:
    scripts = Script(body=recalling_stream(api, beside=True)), Script(body=STREAMS[api]())
    with playing(*scripts) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
        text = gateway.ask(PATHS[api], loop(api, stream=True)).body.decode()
        assert len(player.requests) == 1
        gateway.ask(PATHS[api], loop(api, stream=True))
    assert '"c9"' in text
    assert "recall" not in text
    assert "code_word=heron-01" in orjson.dumps(player.requests[1].json()[HISTORY[api]][-1]).decode()


@pytest.mark.parametrize("api", PATHS)
def test_a_model_that_only_recalls_is_stopped(api: str) -> None:
    with (
        playing(Script(body=recalling_stream(api))) as player,
        serving(player.url, window=WINDOW, recall=True) as gateway,
    ):
        answer = gateway.ask(PATHS[api], loop(api, stream=True))
    assert len(player.requests) == MOST_ROUNDS
    assert answer.body.decode().count(ENDINGS[api]) == 1
    assert "recall" not in answer.body.decode()


@pytest.mark.parametrize("stream", [False, True])
def test_recall_works_on_a_translated_upstream(stream: bool) -> None:
    scripts = Script(body=recalling_stream("chat")), Script(body=chat_stream())
    with playing(*scripts) as player, serving(at(player.url, "chat", WINDOW), recall=True) as gateway:
        answer = gateway.ask(PATHS["messages"], loop("messages", stream=stream))
    text = answer.body.decode()
    assert len(player.requests) == 2
    assert "recall" not in text
    assert "Wait. " in text
    assert "there" in text
    assert f'"input_tokens":{PROMPT - 8 + 10}' in text
    assert "code_word=heron-01" in player.requests[1].json()["messages"][-1]["content"]


def test_a_later_round_that_fails_is_an_error_event() -> None:
    scripts = Script(body=recalling_stream("chat")), sent_json({"error": {"message": "No boats"}}, 500)
    with playing(*scripts) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
        text = gateway.ask(PATHS["chat"], loop("chat", stream=True)).body.decode()
    assert "No boats" in text
    assert '"error"' in text


def test_an_error_inside_a_filtered_stream_ends_it() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "No boats"}}
    body = recalling_stream("messages").partition(b"event: message_delta")[0] + events(error)
    with playing(Script(body=body)) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
        text = gateway.ask(PATHS["messages"], loop("messages", stream=True)).body.decode()
    assert len(player.requests) == 1
    assert text.rstrip().endswith(orjson.dumps(error).decode())


def test_recall_is_offered_only_to_keys_that_may_use_it() -> None:
    with playing(Script(body=chat_stream())) as player, serving(player.url, window=WINDOW) as gateway:
        may = gateway.kept.keys.create("may", may_recall=True)
        may_not = gateway.kept.keys.create("may not")
        for made in (may, may_not):
            secret = {"authorization": f"Bearer {made.secret}"}
            assert until(
                lambda s=secret: gateway.ask(PATHS["chat"], loop("chat", 1), headers=s).status == 200
            )
    assert [tool_names("chat", each.json()) for each in player.requests][-2:] == [["recall"], []]


def test_a_client_with_a_recall_tool_keeps_its_own() -> None:
    own = {"type": "function", "function": {"name": "recall", "parameters": {"type": "object"}}}

    def play(request: Request) -> Script:
        assert request.json()["tools"] == [own]
        return Script(body=recalling_stream("chat"))

    with playing(play) as player, serving(player.url, window=WINDOW, recall=True) as gateway:
        assert b"recall" in gateway.ask(PATHS["chat"], loop("chat", tools=[own], stream=True)).body
    assert len(player.requests) == 1


def test_hidden_turns_of_old_conversations_are_forgotten() -> None:
    turns = HiddenTurns(most=2)
    for name in ("a", "b", "c"):
        turns.remember(name, [1], ["hidden"])
    assert turns.replay("a", [1, 2]) == [1, 2]
    assert turns.replay("c", [1, 2]) == [1, "hidden", 2]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("max_age=x", "'max_age'"),
        ('{"low_water": 3}', "'low_water'"),
        ("pins=1", "'pins'"),
        ("{", "JSON"),
        ("max_age", "name=value"),
        ("[1]", "name=value"),
    ],
)
def test_a_wrong_policy_is_refused_by_the_name_of_its_knob(header: str, told: str) -> None:
    with playing(Script(body=chat_stream())) as player, serving(player.url) as gateway:
        answer = gateway.ask(PATHS["chat"], loop("chat", 1), headers={"x-ullage-policy": header})
        assert player.requests == []
    assert answer.status == 400
    assert told in answer.json()["error"]["message"]


@pytest.mark.parametrize("header", ["max_tokens_per_output=100, max_age=9", '{"digest_share": 0.0}'])
def test_a_policy_changes_how_a_request_is_fitted(header: str) -> None:
    with playing(Script(body=chat_stream())) as player, serving(player.url, window=WINDOW) as gateway:
        gateway.ask(PATHS["chat"], loop("chat"))
        answer = gateway.ask(PATHS["chat"], loop("chat"), headers={"x-ullage-policy": header})
    assert answer.status == 200
    assert player.requests[0].body != player.requests[1].body


@pytest.mark.parametrize("value", [True, 1, 1.5, "x", {"a": 1}])
@pytest.mark.parametrize("api", PATHS)
def test_a_history_of_a_wrong_type_is_left_to_the_upstream(api: str, value: Any) -> None:
    field = "input" if api == "responses" else "messages"
    refusing = sent_json({"error": {"message": "wrong"}}, 400)
    with playing(refusing) as player, serving(player.url, recall=True) as gateway:
        answer = gateway.ask(PATHS[api], {"model": MODEL, "max_tokens": 9, field: value})
    assert answer.status == 400
    assert isinstance(value, str) or player.requests[0].json()[field] == value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize(
    "odd",
    [
        {"choices": 5, "message": 5, "response": 5, "output": 5, "content": 5},
        {"choices": [5], "output": [5], "content": [5], "output_index": [], "usage": 7},
        {"type": "content_block_start", "index": {}, "choices": [{"delta": 5, "message": 5}]},
        {"type": "message_start", "message": [1], "choices": [{"delta": {"tool_calls": 5}}]},
    ],
)
def test_an_answer_of_another_form_is_an_error_and_never_a_fault(
    api: str, odd: dict[str, Any], capfd: pytest.CaptureFixture[str], *, stream: bool
) -> None:
    body = b"data: %b\n\n" % orjson.dumps(odd)
    script = Script(body=body) if stream else sent_json(odd)
    with playing(script) as player, serving(player.url, recall=True) as gateway:
        asked = {"model": MODEL, "max_tokens": 9, "stream": stream}
        field = "input" if api == "responses" else "messages"
        answer = gateway.ask(PATHS[api], {**asked, field: [{"role": "user", "content": "Hi"}]})
    assert answer.status in {200, 502}
    assert not stream or b"error" in answer.body
    assert "Traceback" not in capfd.readouterr().err
