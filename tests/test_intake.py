"""What people give: SDKs' objects, other Mappings, generators, and the shapes of other APIs."""

from __future__ import annotations

import copy
import types
from collections import UserDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import ullage
from ullage import wire
from ullage.call_pairs import check_conversation
from ullage.context import MemoryJournal
from ullage.errors import ConfigurationError, InvalidConversation, InvalidRequest
from ullage.intake import DEEPEST
from ullage.testing import ScriptedProvider
from ullage.usage import Usage, read_usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Dumped:
    """As an SDK's object: its fields as attributes, and all of them as a dict."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def model_dump(self) -> dict[str, Any]:
        return {
            name: value.model_dump() if isinstance(value, Dumped) else value
            for name, value in self.__dict__.items()
        }


@dataclass
class Said:
    """As a program's own message: the fields are there, but it is no mapping."""

    role: str
    content: str


class Line(NamedTuple):
    """As a program's own message, which is a tuple too."""

    role: str
    content: str


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def step(number: int, wrap: Any = dict) -> list[Any]:
    """A call and its long result, in objects of the kind that `wrap` makes."""
    function = wrap(name="read", arguments=f'{{"n": {number}}}')
    call = wrap(id=f"c{number}", type="function", function=function)
    return [
        wrap(role="assistant", content=None, refusal=None, audio=None, tool_calls=[call]),
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}\n" * 60},
    ]


def frozen(**fields: Any) -> Any:
    return types.MappingProxyType(fields)


def user_dict(**fields: Any) -> Any:
    return UserDict(fields)


@pytest.mark.parametrize("wrap", [Dumped, frozen, user_dict])
def test_objects_count_as_the_dicts_that_they_hold(wrap: Any) -> None:
    plain, wrapped = [user("go"), *step(1), *step(2)], [wrap(**user("go")), *step(1, wrap), *step(2, wrap)]
    assert ullage.count(wrapped, "gpt-4o") == ullage.count(plain, "gpt-4o")
    assert ullage.count(iter(wrapped), "gpt-4o") == ullage.count(plain, "gpt-4o")


@pytest.mark.parametrize("wrap", [Dumped, frozen, user_dict, dict])
def test_fit_returns_what_it_does_not_change_as_the_objects_that_it_got(wrap: Any) -> None:
    given = [wrap(**user("Read them all.")), *(each for n in range(12) for each in step(n, wrap))]
    whole = ullage.fit(given, "gpt-4o", limit=50_000)
    assert whole.messages is given
    fitted = ullage.fit((each for each in given), "gpt-4o", limit=900)
    assert fitted.changed
    kept = [each for each in fitted.messages if any(each is one for one in given)]
    ours = [each for each in fitted.messages if not any(each is one for one in given)]
    assert kept[0] is given[0] or "the user's task" in str(ours[0])
    assert any(each is given[-2] for each in kept)
    assert all(isinstance(each, dict) for each in ours)
    assert len(kept) >= 4
    check_conversation(fitted.messages)
    changed = {change.index for change in fitted.changes}
    assert all(given.index(each) not in changed for each in kept)


def test_a_generator_that_needs_no_change_comes_back_as_a_list_of_its_objects() -> None:
    given = [Dumped(**user("Hello")), user("again")]
    fitted = ullage.fit(iter(given), "gpt-4o", limit=100)
    assert list(map(id, fitted.messages)) == list(map(id, given))
    assert not fitted.changed


def test_fit_changes_no_object_that_it_is_given() -> None:
    given = [user("Read."), *(each for n in range(12) for each in step(n))]
    before = copy.deepcopy(given)
    ullage.fit(given, "gpt-4o", limit=700)
    assert given == before


def test_windows_and_contexts_take_objects_and_keep_copies() -> None:
    message = Dumped(**user("Hello"))
    call, result = step(1, Dumped)
    window, context = ullage.Window(model="gpt-4o", limit=2_000), ullage.Context(model="gpt-4o")
    for each in (message, call, result):
        window.append(each)
        context.append(each)
    counted = window.count()
    message.content = "changed " * 500
    call.tool_calls[0].function.arguments = "changed " * 500
    result["content"] = "changed " * 500
    assert window.fitted().count == counted
    assert "changed" not in str(window.fitted().messages)
    assert "changed" not in str(context.to_messages())
    assert window.fitted().messages[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"n": 1}'}}
        ],
    }


def test_a_message_with_nested_parts_goes_out_as_it_was_counted() -> None:
    content = [{"type": "text", "text": "Hello"}]
    window, context = ullage.Window(model="gpt-4o", limit=1_000), ullage.Context(model="gpt-4o")
    for each in (window, context):
        each.append({"role": "user", "content": content})
    content[0]["text"] = "changed"
    content.append({"type": "text", "text": "more"})
    assert window.fitted().messages[0]["content"] == [{"type": "text", "text": "Hello"}]
    assert context.to_messages()[-1]["content"] == [{"type": "text", "text": "Hello"}]


def test_what_a_context_returns_can_be_changed_without_changing_it() -> None:
    context = ullage.Context(model="gpt-4o", system_prompt="Be brief.")
    context.append_user([{"type": "text", "text": "Hello"}])
    sent = context.to_messages()
    sent[0]["content"] += "changed"
    sent[1]["content"][0]["text"] = "changed"
    assert "changed" not in str(context.to_messages())


def tool() -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": "weather", "parameters": parameters}}


def test_tools_may_be_a_generator_or_objects_and_are_copied() -> None:
    plain = ullage.count([user("Hi")], "gpt-4o", [tool()])
    assert ullage.count([user("Hi")], "gpt-4o", (each for each in [tool()])) == plain
    assert ullage.count([user("Hi")], "gpt-4o", [Dumped(**tool())]) == plain
    given = tool()
    window = ullage.Window(model="gpt-4o", limit=1_000, tools=(each for each in [given]))
    context = ullage.Context(model="gpt-4o", system_prompt="", tools=(each for each in [given]))
    given["function"]["parameters"]["properties"]["country"] = {"type": "string"}
    window.tools[0]["function"]["name"] = "changed"  # type: ignore[index]
    assert list(window.tools or ()) == [tool()]
    for each in (window, context):
        each.append(user("Hi"))
        assert each.count().tokens == plain.tokens
    context.use_model("gpt-4o-mini")
    assert context.count().breakdown["tools"] == plain.breakdown["tools"]
    context.use_tools(each for each in [tool()])
    assert context.count().breakdown["tools"] == context.count().breakdown["tools"] > 0


# Other APIs ------------------------------------------------------------------------------------------

ANTHROPIC = [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
    {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "AAAA"}}]},
    {"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": "AAAA"}}]},
    {"role": "assistant", "content": [Dumped(type="tool_use", id="t", name="f", input={})]},
    Dumped(role="assistant", type="message", content=[{"type": "tool_use", "id": "t", "name": "f"}]),
]
RESPONSES = [
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "ok"},
    {"type": "reasoning", "summary": []},
    {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
    Dumped(type="function_call", call_id="c", name="f", arguments="{}"),
]
GEMINI = [
    {"role": "model", "parts": [{"text": "Hi"}]},
    {"role": "user", "parts": [{"inlineData": {"data": "AAAA"}}]},
    {"role": "user", "content": [{"functionResponse": {"name": "f"}}]},
]
CONVERSE = [{"role": "user", "content": [{"text": "Hi"}]}, {"role": "user", "content": [{"toolResult": {}}]}]
FOREIGN = [
    (api, message)
    for api, messages in (
        ("anthropic.messages", ANTHROPIC),
        ("openai.responses", RESPONSES),
        ("gemini", GEMINI),
        ("bedrock.converse", CONVERSE),
    )
    for message in messages
]


@pytest.mark.parametrize(("api", "message"), FOREIGN)
def test_messages_of_other_apis_are_refused_with_the_function_that_takes_them(api: str, message: Any) -> None:
    for function in (
        lambda: ullage.count([message], "gpt-4o"),
        lambda: ullage.fit([message], "gpt-4o", limit=1_000),
        lambda: ullage.Window(model="gpt-4o", limit=1_000).append(message),
        lambda: ullage.Context(model="gpt-4o").append(message),
        lambda: ullage.check_budget([message], ullage.Budget(1_000)),
    ):
        with pytest.raises(InvalidConversation) as caught:
            function()
        assert caught.value.index == 0
        assert f'ullage.count_request(body, api="{api}")' in str(caught.value)
        assert f'ullage.fit_request(body, api="{api}")' in str(caught.value)
        assert f'ullage.wire.read(body, "{api}")' in str(caught.value)


def test_what_wire_reads_of_another_api_can_be_fitted() -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Ask.", "signature": "c2ln"},
                    Dumped(type="tool_use", id="t", name="f", input={}),
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "rain"}]},
        ],
    }
    request = wire.read(body, "anthropic.messages")
    fitted = ullage.fit(request.messages, "claude-sonnet-4-5", limit=5_000)
    assert fitted.messages is request.messages
    assert ullage.count_request(body, "anthropic.messages").tokens > 10


async def _late() -> AsyncIterator[Any]:
    yield {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ({"model": "gpt-4o", "messages": []}, "not a dict; pass its messages, or give a whole body to"),
        ({"contents": []}, 'api="gemini"'),
        ({"input": "Hello"}, 'api="openai.responses"'),
        (ullage.fit([], limit=9), "not a Fitted; pass its messages"),
        (_late(), "not an async_generator; collect it first"),
        (types.SimpleNamespace(__await__=None), "not a SimpleNamespace; await it first"),
        (b"Hello", "must be a list, not a bytes"),
        ([("user", "Hello")], 'not a tuple; write {"role": "user", "content": "…"}'),
        ([{"role": "user", "content": {"text": "x"}}], "not a dict; put a part into a list"),
        ([{"role": "user", "content": b"x"}], "not a bytes; decode it first"),
        ([{"role": "human", "content": "x"}], "; write 'user'"),
        ([{"role": "Assistant", "content": "x"}], "; write 'assistant'"),
        ([{"index": 0, "message": {"role": "assistant", "content": "x"}}], "pass its message"),
        ({"role": "user", "content": "x"}, "must be a list, not a dict; put the message into a list"),
        (None, "must be a list, not None"),
        ("Hello", "must be a list, not a str; make a message of the text: "),
        (7, "must be a list, not an int"),
        (["Hello"], "a message must be a dict, not a str"),
        ([None], "a message must be a dict, not None"),
        ([Dumped], "a message must be a dict, not a type"),
        ([{"role": {}, "content": "x"}], "role is a dict; it must be one of"),
        ([{"role": "boss", "content": "x"}], "role is 'boss'; it must be one of"),
        ([{"content": "x"}], "the role is missing"),
        ([{"role": "user", "content": "x", "name": 5}], "name must be a string, not an int"),
        (
            [{"role": "user", "content": [{"type": [], "text": "x"}]}],
            "type of a content part must be a string",
        ),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "text must be a string, not an int"),
        ([{"role": "assistant", "content": "x", "refusal": []}], "refusal must be a string, not a list"),
        ([{"role": "assistant", "content": None}], "content is missing"),
        ([{"role": "function", "content": "x"}], "needs name, the call that it answers"),
        ([{"choices": []}], "choices[0].message"),
        ([{"type": "human", "content": "x"}], "convert_to_openai_messages"),
        ([{"role": "user", "content": "x", 5: "y"}], "the name of a member must be a string, not an int"),
        ([Said("user", "x")], "not a Said; convert it with dataclasses.asdict"),
        ([Line("user", "x")], "not a Line; convert it with its method _asdict"),
    ],
)
def test_what_is_no_message_is_told_as_such(messages: Any, text: str) -> None:
    for function in (ullage.count, lambda given: ullage.fit(given, limit=100)):
        with pytest.raises(InvalidConversation) as caught:
            function(messages)
        assert text in str(caught.value)


def test_what_is_nested_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(DEEPEST + 2):
        deep = [deep]
    endless: dict[str, Any] = {"role": "user"}
    endless["content"] = [endless]
    for message in ({"role": "user", "content": deep}, endless):
        with pytest.raises(InvalidConversation, match="nested more than"):
            ullage.count([message])
    with pytest.raises(InvalidRequest, match="nested more than"):
        wire.read({"messages": deep}, "openai.chat")
    with pytest.raises(ConfigurationError, match="nested more than"):
        read_usage({"prompt_tokens": deep})


@pytest.mark.parametrize("given", [10**5000, [10**5000], {"a": 10**5000}], ids=["bare", "list", "object"])
def test_a_number_too_long_for_json_is_refused_with_what_to_write(given: Any) -> None:
    advice = "more than 4,000 digits; write it as a string"
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": given}}
    part = {"role": "user", "content": [{"type": "odd", "value": given}]}
    for message in (part, {"role": "assistant", "content": None, "tool_calls": [call]}):
        with pytest.raises(InvalidConversation, match=advice):
            ullage.count([message])
    tool = {"type": "function", "function": {"name": "f", "parameters": {"maximum": given}}}
    with pytest.raises(InvalidConversation, match=advice):
        ullage.count([], tools=[tool])
    with pytest.raises(InvalidRequest, match=advice):
        ullage.count_request({"messages": [user("x")], "tools": [tool]}, "openai.chat")


def test_a_number_that_json_can_hold_is_taken() -> None:
    part = {"role": "user", "content": [{"type": "odd", "value": -(10**3999)}]}
    assert ullage.count([part]).tokens > 1000


@pytest.mark.parametrize("place", ["type", "custom", "arguments"])
def test_a_call_with_a_member_that_never_ends_is_refused_before_it_is_copied(place: str) -> None:
    endless: list[Any] = []
    endless.append(endless)
    call, _ = step(1)
    (call["tool_calls"][0]["function"] if place == "arguments" else call["tool_calls"][0])[place] = endless
    for append in (ullage.Window(limit=100).append, ullage.Context().append):
        with pytest.raises(InvalidConversation, match="nested more than"):
            append(call)


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ("search", "must be a list, not a str"),
        (["search"], "a tool must be a dict, not a str; describe it"),
        ({"name": "f"}, "must be a list, not a dict; put it into a list: tools=[…]"),
        ([{"functionDeclarations": []}], 'api="gemini"'),
        ([{"toolSpec": {}}], 'api="bedrock.converse"'),
        ([{"type": "function"}], "a tool needs a function with a name"),
        ([{"type": "function", "function": "f"}], "function must be a dict, not a str"),
        ([{"type": 5}], "a tool must be a string"),
        ([{"name": "f", "inputSchema": {}}], "an MCP tool"),
        (
            [{"type": "function", "function": {"name": "f", "parameters": {"properties": {1: {}}}}}],
            "field 'tools[0]': the name of a member must be a string, not an int",
        ),
    ],
)
def test_what_is_no_tool_is_told_as_such(tools: Any, text: str) -> None:
    for function in (
        lambda: ullage.count([], "gpt-4o", tools),
        lambda: ullage.fit([], "gpt-4o", tools, 100),
        lambda: ullage.Window(limit=100, tools=tools),
        lambda: ullage.Context(tools=tools),
    ):
        with pytest.raises(InvalidConversation) as caught:
            function()
        assert text in str(caught.value)


@pytest.mark.parametrize("limit", ["1500", True, 0, -5, float("nan"), 1500.0, [1500]])
def test_a_limit_is_a_whole_number_above_0(limit: Any) -> None:
    for function in (
        lambda: ullage.fit([], limit=limit),
        lambda: ullage.Window(limit=limit),
        lambda: ullage.Budget(limit),
        lambda: ullage.Context(token_budget=limit),
    ):
        with pytest.raises(ConfigurationError):
            function()


def test_reserve_is_taken_off_the_limit() -> None:
    assert ullage.fit([], limit=1_000, reserve=200).limit == 800
    assert ullage.Window(limit=1_000, reserve=200).limit == 800
    assert ullage.fit([], limit=1_000, reserve=0).limit == 1_000
    with pytest.raises(ConfigurationError, match="reserve is 1000 of a limit of 1000 tokens"):
        ullage.fit([], limit=1_000, reserve=1_000)
    with pytest.raises(ConfigurationError, match="reserve"):
        ullage.fit([], limit=1_000, reserve=-1)


OTHER_OBJECTS: list[tuple[str, Callable[[], object]]] = [
    ("journal", lambda: ullage.Context(journal="talk.db")),
    ("journal", lambda: ullage.Context(journal=MemoryJournal)),
    ("session", lambda: ullage.Context(session=0)),
    ("meter", lambda: ullage.Context(meter=5)),
    ("clock", lambda: ullage.Context(clock=1.5)),
    ("summarize", lambda: ullage.Context(summarize="gpt-4o")),
    ("reserved_output", lambda: ullage.Context(reserved_output="1000")),
    ("tokenizer", lambda: ullage.Context(tokenizer="o200k")),
    ("tokenizer", lambda: ullage.Window(limit=9, tokenizer="o200k")),
    ("tokenizer", lambda: ullage.Window(limit=9, tokenizer=["o200k"])),
    ("tokenizer", lambda: ullage.register_tokenizer("my-model", "o200k")),
    ("limit", lambda: ullage.Window(limit=9).refold(limit="9")),
    ("limit", lambda: ullage.Window(limit=9).refold(limit=0)),
    ("limit", lambda: ullage.Window(limit=9).refold(limit=-5)),
    ("policy", lambda: ullage.Window(limit=9).refold(policy={})),
    ("factor", lambda: ullage.Window(limit=9).refold(factor=0)),
    ("priority", lambda: ullage.Window(limit=9).append(user("Hello"), priority="")),
    ("limit", lambda: ullage.RequestWindow("openai.chat", limit="9")),
    ("reserve", lambda: ullage.RequestWindow("openai.chat", reserve=-1)),
    ("reserve", lambda: ullage.RequestWindow("openai.chat", limit=9, reserve=9)),
    ("factor", lambda: ullage.RequestWindow("openai.chat", factor=2)),
    ("factor", lambda: setattr(ullage.RequestWindow("openai.chat"), "factor", 2)),
    ("book", lambda: ullage.Ledger(book="ledger.db")),
    ("key", lambda: ullage.Ledger(key="sk-1")),
    ("clock", lambda: ullage.Ledger(clock=0)),
    ("cap_at_dollars", lambda: ullage.Ledger(cap_at_dollars=1e308)),
    ("cap_at_dollars", lambda: ullage.Ledger(cap_at_dollars=[[1]])),
    ("shelf", lambda: ullage.Calibration("learned.db")),
    ("estimate", lambda: ullage.Calibration().observe("gpt-4o", 100, 100)),
    ("reservation", lambda: ullage.Ledger().settle("gpt-4o", None)),
    ("reservation", lambda: ullage.Ledger().release(5)),
    ("scope", lambda: ullage.Ledger().used("month")),
    ("limit", lambda: ullage.Context().fitted(limit="9")),
    ("compress", lambda: ullage.Context().fitted(compress=2)),
    ("compress", lambda: ullage.Context().count(compress=2)),
    ("text", lambda: ullage.Context().count_text(user("Hello"))),
    ("provider", lambda: ullage.Client("gpt-4o")),
    ("ledger", lambda: ullage.Client(ScriptedProvider([]), ledger=0.5)),
]
"""Option → a call with a value of another kind, as a program makes it that holds the library wrongly."""


@pytest.mark.parametrize(("option", "call"), OTHER_OBJECTS)
def test_an_option_of_another_kind_is_refused_by_its_name(option: str, call: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match=option):
        call()


def test_usage_is_read_of_an_object_of_an_sdk() -> None:
    details = Dumped(cached_tokens=3)
    told = Dumped(prompt_tokens=10, completion_tokens=4, prompt_tokens_details=details, cost=None)
    assert read_usage(told) == Usage(prompt=10, completion=4, cached_read=3)
    meter = ullage.Meter()
    meter.add_usage("m", told)
    assert meter.total_tokens() == (10, 4)
    with pytest.raises(ConfigurationError, match="not an int"):
        read_usage(5)


def test_a_context_keeps_nothing_that_json_has_no_word_for() -> None:
    context = ullage.Context(model="gpt-4o")
    message = {"role": "user", "content": "Hello", "seen": object()}
    with pytest.raises(InvalidConversation, match="JSON cannot hold an object") as caught:
        context.append(message)
    assert caught.value.field == "seen"
    assert len(context) == 0


def test_reprs_tell_figures_and_not_the_conversation() -> None:
    messages = [user("a secret " * 200), {"role": "assistant", "content": "kept secret"}, user("a secret?")]
    fitted = ullage.fit(messages, "gpt-4o", limit=5_000)
    assert repr(fitted) == f"<Fitted: 3 messages, {fitted.count.ceiling} of 5000 tokens, unchanged>"
    context = ullage.Context(model="gpt-4o", session="monday")
    context.append(messages[0])
    window = ullage.Window(limit=100)
    assert repr(ullage.FitPolicy()) == "FitPolicy()"
    assert repr(ullage.FitPolicy(cut_user=True, low_water=1)) == "FitPolicy(cut_user=True, low_water=1)"
    assert repr(context) == "<Context monday of gpt-4o: 1 turn, limit 4096>"
    assert repr(window) == "<Window of an unknown model: 0 messages, limit 100>"
    request = wire.read({"model": "gpt-4o", "messages": messages}, "openai.chat")
    assert repr(request) == "<Request of openai.chat, gpt-4o: 3 messages, 0 tools>"
    trimmed = ullage.fit(messages * 5, "gpt-4o", limit=900)
    for each in (fitted, trimmed, fitted.count, context, window, request):
        assert "secret" not in repr(each)
        assert len(repr(each)) < 200
