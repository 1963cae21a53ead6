"""Tool definitions and structured output: the text that a provider makes of a schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ullage
from ullage.errors import ConfigurationError
from ullage.tokens import counter_for
from ullage.tokens.definitions import count_properties, schema_text, tools_texts
from ullage.tokens.typescript import namespace


def tool(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required), **more}
    return {
        "type": "function",
        "function": {"name": "weather", "description": "Looks.", "parameters": parameters},
    }


def body(properties: dict[str, Any], *required: str, version: int = 1, **more: Any) -> str:
    """What stands between the braces of the parameters."""
    text = namespace([tool(properties, *required, **more)], version)
    return text.partition("(_: ")[2].rpartition(") => any;")[0]


def test_a_function_is_a_type_in_a_namespace() -> None:
    place = {"type": "string", "description": "Where"}
    unit = {"type": "string", "enum": ["C", "F"], "default": "C"}
    assert namespace([tool({"place": place, "unit": unit}, "place")]) == (
        "namespace functions {\n\n"
        "// Looks.\n"
        "type weather = (_: {\n"
        "// Where\n"
        "place: string,\n"
        'unit?: "C" | "F", // default: "C"\n'
        "}) => any;\n\n"
        "} // namespace functions"
    )


def test_a_function_without_parameters_takes_nothing() -> None:
    assert "type weather = () => any;" in namespace([tool({})])
    assert "type now = () => any;" in namespace([{"type": "function", "function": {"name": "now"}}])


def test_a_tool_of_another_kind_counts_as_its_json() -> None:
    grammar = {
        "type": "custom",
        "custom": {"name": "run", "format": {"type": "grammar", "definition": "x" * 50}},
    }
    assert "x" * 50 in namespace([grammar])


def test_members_without_comments_stand_on_one_line() -> None:
    assert body({"a": {"type": "integer"}, "b": {"type": "boolean"}}, "a") == "{ a: number, b?: boolean }"


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}, 'Array<"x" | "y">'),
        ({"type": "array", "items": {"type": "string", "description": "One"}}, "Array<\n// One\nstring\n>"),
        ({"type": "array"}, "any[]"),
        ({"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]}, "{ b: null }"),
        ({"type": "object", "additionalProperties": {}}, "object"),
        ({"type": "integer", "nullable": True}, "number | null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        (
            {"anyOf": [{"type": "string", "description": "Id"}, {"type": "null"}]},
            "\n | string // Id\n | null\n",
        ),
        ({"const": 3}, "3"),
        ({"$ref": "#/$defs/Point"}, "{ x: number }"),
        ({}, "any"),
    ],
)
def test_types_are_written_as_in_typescript(schema: dict[str, Any], shown: str) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    assert f"a: {shown}" in body({"a": schema}, "a", **{"$defs": {"Point": point}})


def test_titles_and_descriptions_are_comments_with_stripped_lines() -> None:
    place = {"type": "string", "title": "Place", "description": "  A city,\n\n    or a port "}
    assert body({"place": place}) == "{\n// Place\n//\n// A city,\n//\n// or a port\nplace?: string,\n}"


def test_an_object_of_which_nothing_is_said_is_left_out() -> None:
    assert (
        body({"a": {"type": "object", "description": "Anything"}, "b": {"type": "string"}})
        == "{ b?: string }"
    )


def test_a_name_that_is_no_identifier_is_quoted() -> None:
    assert body({"content-type": {"type": "string"}}) == '{ "content-type"?: string }'


def test_only_the_chat_api_repeats_a_schema_for_each_of_its_types() -> None:
    zone = {"type": ["string", "null"], "description": "Zone"}
    assert body({"zone": zone}).count("Zone") == 3
    assert body({"zone": zone}, version=2).count("Zone") == 1


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    loop = {"$ref": "#/$defs/Loop"}
    assert "any" in body(
        {"head": {"$ref": "#/$defs/Node"}, "l": loop}, **{"$defs": {"Node": node, "Loop": loop}}
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "anyOf",
                    "enum",
                    "required",
                    "$ref",
                    "title",
                    "default",
                    "description",
                ]
            ),
            inner | st.sampled_from(["object", "array", "string", "#/properties/a", ["object", "null"]]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_schema_is_too_odd_to_be_counted(schema: Any) -> None:
    tools = [{"type": "function", "function": {"name": "odd", "parameters": schema}}, {"type": "web_search"}]
    for model in ("gpt-4o", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-flash", "no-such-model"):
        cost = counter_for(model).request(tools)
        assert 0 < cost.tokens <= cost.ceiling
    for rule in ("json", "values", "typescript", "typescript-2", "free"):
        assert all(isinstance(text, str) for text in tools_texts(tools, rule))
    assert count_properties(tools) >= 0


def test_values_are_counted_each_on_its_own() -> None:
    weather = tool({"unit": {"type": "string", "enum": ["C", "F"], "description": "Scale"}}, "unit")
    assert sorted(tools_texts([weather], "values")) == [
        "C",
        "F",
        "Looks.",
        "Scale",
        "unit",
        "unit",
        "weather",
    ]
    assert count_properties([weather]) == 1


def test_a_response_format_is_its_types_under_its_name() -> None:
    schema = {
        "type": "object",
        "properties": {"required": {"type": "string"}},
        "required": ["required"],
        "additionalProperties": False,
    }
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "Answer", "description": "Short", "schema": schema},
    }
    assert schema_text(wanted, "section") == (
        '## Answer\n\n// Short\n{"type":"object","properties":{"required":{"type":"string"}}}'
    )
    assert schema_text({"type": "json_object"}, "section") == ""
    counter = counter_for("gpt-4o")
    assert counter.request(None, wanted).tokens > counter.request().tokens


def test_an_unknown_rule_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="typescript"):
        tools_texts([], "xml")


def test_the_break_before_the_tools_costs_a_token_after_a_word() -> None:
    counter = counter_for("gpt-4o")
    tools = [tool({})]
    ends = {end: counter.request(tools, system=end) for end in (False, "", "Be brief.", "Be brief")}
    assert ends["Be brief"].tokens == ends["Be brief."].tokens + 1 == ends[""].tokens + 1
    assert ends[False].tokens == ends[""].tokens + 4  # a system message is made for them
    assert counter.request(tools).ceiling >= max(ends[end].ceiling for end in ("", "Be brief"))


def test_a_choice_that_names_a_tool_repeats_its_name() -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool({})]}
    named = {**body, "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    free = ullage.count_request(body, "openai.chat").tokens
    assert ullage.count_request(named, "openai.chat").tokens == free + 7 + 1
    assert ullage.count_request({**body, "tool_choice": "none"}, "openai.chat").tokens == free


def test_tools_that_are_loaded_later_are_in_the_ceiling_only() -> None:
    counter = counter_for("claude-sonnet-4-5")
    now, later = tool({"a": {"type": "string"}}), {**tool({"b": {"type": "string"}}), "defer_loading": True}
    assert counter.request([now, later]).tokens == counter.request([now]).tokens
    assert counter.request([now, later]).ceiling > counter.request([now]).ceiling
