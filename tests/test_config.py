"""The configuration: one table of keys, all that is wrong at once, a project that cannot loosen anything."""

from __future__ import annotations

import hashlib
import inspect
import os
import stat
import tomllib
from dataclasses import asdict, fields, is_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.settings_file import REMOTE, SECRET, WHOLE, read
from ullage.broker.dialects import DIALECTS
from ullage.categories import MAIN
from ullage.config import InvalidSettings, Settings, defaults, load, store_url
from ullage.config import overlay as overlays
from ullage.config.builder import CLASSES, build, entries
from ullage.config.keys import CONFIRM, FIXED_CATEGORIES, ROWS, SECTIONS, below, variables
from ullage.config.kinds import KINDS
from ullage.config.lines import lines_of
from ullage.config.named_keys import APIS
from ullage.config.problems import join_key, quote_text
from ullage.config.writer import initial, public, toml_of, write_initial
from ullage.context import Compress, Context
from ullage.errors import ConfigurationError
from ullage.project import TreeOptions
from ullage.session.conversation import context_options
from ullage.session.model_pool import compress_of
from ullage.session.trust import trust, trust_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ullage.config.key_row import KeyRow

REQUIRED = """
context.max_turns context.token_budget context.reserved_output context.max_summary_chars context.rolling
context.compress.keep_turns context.compress.max_turn_chars tokenize.use_endpoint
routing.system_prompts.<category> routing.models.<category> routing.rules.<category> memory.inject_max_chars
project.auto_tree project.depth project.max_chars
cost.warn_at_dollars cost.warn_at_tokens
cost.cap_at_dollars cost.cap_at_dollars_a_day cost.cap_at_dollars_a_project store.url
models.<name>.endpoint models.<name>.model models.<name>.api models.<name>.key models.<name>.window
models.<name>.local_compress models.<name>.use_tool_role
models.<name>.prices.input models.<name>.prices.output models.<name>.prices.cached_read
models.<name>.prices.cache_write models.<name>.prices.reasoning
models.<name>.timeouts.connect models.<name>.timeouts.first models.<name>.timeouts.between
models.<name>.timeouts.begin
model shell.status shell.confirm shell.history shell.startup shell.follow_up shell.mask_secrets
goal.max_steps goal.max_tokens goal.max_dollars goal.max_minutes
mcp.<name>.command mcp.<name>.args mcp.<name>.env mcp.<name>.url mcp.<name>.headers mcp.<name>.timeout
"""


def problems(tmp_path: Path, text: str | bytes, **more: Any) -> list[str]:
    """What is said of a file, without its name."""
    with pytest.raises(InvalidSettings) as caught:
        read(tmp_path, text, **more)
    return [str(each).replace(f"{tmp_path / 'config.toml'}:", "") for each in caught.value.problems]


def told(tmp_path: Path, text: str | bytes) -> InvalidSettings | None:
    """What a file is refused with; None where it is not."""
    try:
        read(tmp_path, text)
    except InvalidSettings as error:
        return error
    return None


# The table ---------------------------------------------------------------------------------------------


def test_the_keys_are_these() -> None:
    assert sorted(row.name for row in ROWS) == sorted(REQUIRED.split())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_it_takes_does_and_costs(row: KeyRow) -> None:
    assert row.kind in KINDS
    assert row.overlay in overlays.RULES
    assert row.what.endswith(".")
    assert row.cost.endswith(".")
    if row.default is None and not row.name.startswith("routing."):
        assert row.word, "a file has no other way to say it"


def test_the_sections_of_a_file_hold_every_key() -> None:
    held = {*SECTIONS, ""}
    assert {
        row.name.partition(".<")[0] if row.is_named else row.name.rpartition(".")[0] for row in ROWS
    } == held


def test_the_values_have_a_field_for_each_key() -> None:
    for pattern, made in CLASSES.items():
        assert is_dataclass(made)
        assert {field.name for field in fields(made)} - {"name"} == set(below(pattern))


def test_no_two_keys_share_a_variable() -> None:
    names = [name for name, _ in variables()]
    assert len(set(names)) == len(names)
    assert "ULLAGE_CONFIG" not in names


def test_the_defaults_are_those_of_what_they_configure() -> None:
    settings = defaults()
    signature = inspect.signature(Context).parameters
    options = asdict(context_options(settings, settings.model()))
    own = {"max_turns": None}  # a shell follows its model; a Context keeps its small defaults
    assert {name: signature[name].default for name in options} | own == options
    assert settings.context.token_budget is None
    assert (signature["token_budget"].default, signature["max_turns"].default) == (4_096, 40)
    assert compress_of(settings, settings.model()) is None
    assert Compress() == Compress(
        settings.context.compress.keep_turns, settings.context.compress.max_turn_chars
    )
    tree = settings.project
    assert TreeOptions(depth=tree.depth, max_chars=tree.max_chars) == TreeOptions()
    assert settings.context.reserved_output is signature["reserved_output"].default
    assert settings.model().window is signature["window"].default


def test_the_apis_are_those_that_are_spoken() -> None:
    assert set(APIS) == set(DIALECTS)


# Reading -----------------------------------------------------------------------------------------------


def test_a_file_becomes_values(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    assert settings.model().name == "fast"
    assert settings.models["fast"].window == 8_192
    assert settings.context.token_budget is None
    assert settings.context.compress.keep_turns == 4
    assert settings.context.max_turns is None
    assert settings.cost.cap_at_dollars == Decimal("0.10")
    assert settings.routing.models["code"] == "cloud"
    assert settings.mcp["git"].args == ("mcp-server-git",)
    assert settings.source("context", "compress", "keep_turns") == f"{tmp_path / 'config.toml'}:5"
    assert settings.source("models", "cloud", "prices", "output") == f"{tmp_path / 'config.toml'}:28"
    assert settings.source("context", "max_turns") == "default"


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    settings = load(environ={"XDG_CONFIG_HOME": str(tmp_path)}, cwd=tmp_path)
    assert settings == defaults()
    assert settings.files == ()


def test_the_file_is_in_the_xdg_place_or_where_a_variable_says(tmp_path: Path) -> None:
    (tmp_path / "ullage").mkdir()
    (tmp_path / "ullage" / "config.toml").write_text("goal.max_steps = 1")
    (tmp_path / "other.toml").write_text("goal.max_steps = 2")
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert load(environ=environ, cwd=tmp_path).goal.max_steps == 1
    assert load(environ={**environ, "ULLAGE_CONFIG": "~/other.toml"}, cwd=tmp_path).goal.max_steps == 2


@pytest.mark.parametrize("environ", [{"ULLAGE_CONFIG": "{}"}, {}])
def test_a_named_file_that_is_missing_is_told(tmp_path: Path, environ: dict[str, str]) -> None:
    missing = str(tmp_path / "none.toml")
    told = {name: value.format(missing) for name, value in environ.items()}
    with pytest.raises(ConfigurationError, match=r"ullage config init --config"):
        load(None if told else missing, environ=told, cwd=tmp_path)


WRONG = {
    "max_turns = 3": "1: max_turns: unknown key; did you mean context.max_turns?",
    "[contxt]": "1: contxt: unknown key; did you mean context?",
    "[context]\n\nmax_turn = 3": "3: context.max_turn: unknown key; did you mean context.max_turns?",
    "[models.a.prices]\nimput = 3": "did you mean models.a.prices.input?",
    "zzz = 1": "1: zzz: unknown key",
    "context = 3": "1: context: must be a table, which begins with [context], not 3",
    "models.a = 3": "1: models.a: must be a table, which begins with [models.a], not 3",
    "context.max_turns = 0": 'must be a whole number from 1 to 1,000,000, or "none", not 0',
    "context.max_turns = true": "not true",
    "context.max_turns = 1.0": "not 1.0",
    "context.max_turns = [1]": "not a list",
    "context.rolling = 1": "context.rolling: must be true or false, not 1",
    "cost.cap_at_dollars = -0.01": "not -0.01",
    "cost.cap_at_dollars = nan": "not NaN",
    "cost.cap_at_dollars = inf": "not Infinity",
    "cost.cap_at_dollars = 1e-13": "more than 12 decimal places",
    "cost.cap_at_dollars = 1.0000000000000000000000000000000001": "more than 12 decimal places",
    "cost.cap_at_dollars = 1e-99999999999999999999": "not NaN",
    'cost.cap_at_dollars = "5"': 'not "5"',
    'shell.confirm = "never"': '"destructive" or "writes" or "always", not "never"',
    'shell.status = "a\\u001b[2J"': "contains characters that are not printable",
    'model = "clowd"\n[models.cloud]\nendpoint = "openai"': "1: model: unknown model; did you",
    'model = "nothing"': "name one of your [models]",
    'routing.models.a = "nothing"': "routing.models.a: unknown model",
    'routing.models.main = "embedded"': "1: routing.models.main: set the key `model` instead",
    'routing.rules.a = ["x"]': "no model and no prompt: set routing.models.a or routing.system",
    'routing.models.a = "embedded"\nrouting.rules.a = ["x", " "]': "2: routing.rules.a: contains an empty",
    'routing.models.a = "embedded"\nrouting.rules.a = ["x\\n"]': "characters that are not printable",
    'routing.models.a = "embedded"\nrouting.rules.a = "x"': "must be a list of words or phrases",
    'routing.models.a = "nothing"\nrouting.rules.a = ["x"]': "1: routing.models.a: unknown model",
    'routing.modles.a = "embedded"\nrouting.rules.a = ["x"]': "1: routing.modles: unknown key",
    'routing.system_prompts.main = ""\nrouting.rules.main = ["x"]': "ordinary turns are of this category",
    'routing.models.goal = "embedded"\nrouting.rules.goal = ["x"]': "choose this category: the turns of",
    'routing.rules.summarize = ["x"]': "a rule cannot choose this category: summaries of",
    "[models.lost]": "1: models.lost: the provider is not known: set endpoint",
    'models.a.model = "llama"': "1: models.a.model: the provider is not known",
    'models.a.endpoint = "opnai"': "must be a provider (",
    'models.a.endpoint = "ftp://host"': "must be the address of a server",
    'models.a.endpoint = "http://[::1"': "must be the address of a server",
    '[models.embedded]\nkey = "env:A"': "2: models.embedded.key: a model that runs in this process needs",
    "context.reserved_output = 100\n[models.gpt-4o]\nwindow = 100": "3: models.gpt-4o.window: is 100 tokens",
    '[models." "]\nendpoint = "openai"': '1: models." ": invalid name',
    "[mcp.a]": "1: mcp.a: set either command or url",
    'mcp.a = { command = "x", url = "http://a" }': "not both",
    'mcp.a = { url = "http://a", args = ["x"] }': "args and env work only with command",
    'mcp.a = { command = "x", env = { "A-B" = "x" } }': "invalid variable name",
    'mcp.a = { command = "x", env = { A = 1 } }': "a value in it is not a text",
    'mcp.a = { command = "x", args = ["a\\u0000"] }': "cannot be an argument of a program",
    'mcp.a = { command = "x", headers = { A = "b" } }': "1: mcp.a: headers work only with url",
    'mcp.a = { url = "http://127.0.0.1", headers = { "A B" = "c" } }': "invalid header name: use letters",
    'mcp.a = { url = "http://127.0.0.1", headers = { A = "b\\nC: d" } }': "invalid header value: use one",
    'mcp.a = { url = "http://127.0.0.1", headers = { A = "b", a = "c" } }': "a header twice",
    'mcp.a = { url = "http://127.0.0.1", headers = { A = 1 } }': "a value in it is not a text",
    'mcp.a = { command = "x", timeout = 0 }': "a whole number from 1 to 86,400, not 0",
    '\n[mcp.a__b]\ncommand = "x"': "2: mcp.a__b: invalid name of an MCP server",
    '[mcp."a b"]\ncommand = "x"': '1: mcp."a b": invalid name of an MCP server',
    "a = 1\na = 2\n": "2: a: invalid TOML in column 6: Cannot overwrite a value",
    "[context]\nmax_turns = forty": "2: max_turns: invalid TOML in column 13: Invalid value: put texts",
    'a = """': "1: a: invalid TOML: Unterminated string",
    "a = " + "[" * 5_000: "nested too deeply",
    "a = " + "9" * 5_000: "a number is too long",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:50])
def test_what_is_wrong_is_told_with_its_line_and_key(tmp_path: Path, text: str) -> None:
    told = problems(tmp_path, text)
    assert len(told) == 1
    assert WRONG[text] in told[0]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = "[context]\nmax_turns = 0\nrollin = true\n[models.a]\nwindow = 1\n[mcp.b]\n"
    told = problems(tmp_path, text, environ={"ULLAGE_GOAL_MAX_STEPS": "no", "ULLAGE_COST_CAP": "1"})
    assert [each.partition(": ")[0] for each in told] == [
        "2",
        "3",
        "5",
        "ULLAGE_COST_CAP",
        "ULLAGE_GOAL_MAX_STEPS",
        "6",
    ]


def test_a_file_that_is_not_text_is_told_with_its_line(tmp_path: Path) -> None:
    assert problems(tmp_path, b"# one\n# \xff\n") == ["2: invalid UTF-8: save the file as UTF-8"]


def test_a_file_of_another_system_is_read(tmp_path: Path) -> None:
    settings = read(tmp_path, b"\xef\xbb\xbf# one\r\n[goal]\r\nmax_steps = 3\r\n")
    assert settings.goal.max_steps == 3
    assert settings.source("goal", "max_steps").endswith(":3")


def test_a_file_that_is_far_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="name a configuration file"):
        read(tmp_path, b"#" * 1_000_001)


@given(content=st.binary(max_size=80) | st.text(alphabet="[]{}=.\"'#\n\\ab1 ", max_size=40).map(str.encode))
def test_any_bytes_are_settings_or_a_told_problem(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    problem = told(tmp_path_factory.getbasetemp(), content)
    assert problem is None or problem.problems


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.booleans() | st.integers() | st.floats() | texts
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


def toml(value: Any) -> str:
    """Any value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote_text(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return quote_text(value) if isinstance(value, str) else str(value).lower()


@given(found=st.dictionaries(st.sampled_from([row.name for row in ROWS]), trees, max_size=6))
def test_any_value_of_any_key_is_taken_or_told(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, Any]
) -> None:
    lines = [f"{name.replace('<', '').replace('>', '')} = {toml(value)}" for name, value in found.items()]
    problem = told(tmp_path_factory.getbasetemp(), "\n".join(lines))
    assert problem is None or all(each.source and each.text for each in problem.problems)


# Secrets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f'models.gpt-4o.key = "{SECRET}"',
        f'models.gpt-4o.key = "env:{SECRET}"',
        f'models.gpt-4o.api_key = "{SECRET}"',
        f'models.gpt-4o.window = "{SECRET}"',
        f'models.gpt-4o.endpoint = "https://me:{SECRET}@host/v1"',
        f'models.gpt-4o.endpoint = "https://host/v1?key={SECRET}"',
        f'models.gpt-4o.endpoint = "{SECRET}"',
        f'model = "{SECRET}"',
        f'mcp.a.url = "https://me:{SECRET}@host"',
        f'mcp.a = {{ command = "x", env = {{ A = ["{SECRET}"] }} }}',
        f"models.gpt-4o.key = {SECRET}",
        f'models.gpt-4o.key = "{SECRET}',
    ],
)
def test_a_secret_in_the_wrong_place_is_refused_and_never_shown(tmp_path: Path, line: str) -> None:
    told = "\n".join(problems(tmp_path, line))
    assert SECRET not in told
    assert SECRET[:12] not in told


def test_a_literal_key_is_told_what_to_write_instead(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, f'models.gpt-4o.key = "{SECRET}"')
    assert told.startswith("1: models.gpt-4o.key: do not write the key itself here")
    assert '"env:NAME"' in told


def test_what_is_shown_has_no_values_of_an_environment_and_no_arguments_that_look_like_keys(
    tmp_path: Path,
) -> None:
    text = f'[mcp.a]\ncommand = "x"\nargs = ["--mode", "{SECRET}"]\nenv = {{ A = "{SECRET}", B = "env:B" }}'
    settings = read(tmp_path, text)
    told = {row.name: public(value, row) for row, _, value in entries(settings)}
    assert told["mcp.<name>.args"] == '["--mode", "…"]'
    assert told["mcp.<name>.env"] == '{ A = "…", B = "env:B" }'
    remote = f'[mcp.a]\nurl = "https://a.example"\nheaders = {{ A = "{SECRET}", B = "env:B" }}'
    told = {row.name: public(value, row) for row, _, value in entries(read(tmp_path, remote))}
    assert told["mcp.<name>.headers"] == '{ A = "…", B = "env:B" }'
    assert SECRET not in repr(settings.mcp["a"].env.keys())


# The environment ---------------------------------------------------------------------------------------


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    environ = {
        "ULLAGE_COST_CAP_AT_DOLLARS": "$2.50",
        "ULLAGE_CONTEXT_ROLLING": "off",
        "ULLAGE_CONTEXT_MAX_TURNS": "none",
        "ULLAGE_GOAL_MAX_TOKENS": "1,000",
        "ULLAGE_MODEL": "openai/gpt-4o",
        "ULLAGE_GOAL_MAX_STEPS": "",
        "ULLAGE_STORE": "another program's business",
    }
    settings = read(tmp_path, "cost.cap_at_dollars = 9\ngoal.max_steps = 3", environ=environ)
    assert settings.cost.cap_at_dollars == Decimal("2.5")
    assert settings.context.rolling is False
    assert settings.context.max_turns is None
    assert settings.goal.max_tokens == 1_000
    assert settings.goal.max_steps == 3, "an empty variable is as good as none"
    assert settings.default_model == "openai/gpt-4o"
    assert settings.source("cost", "cap_at_dollars") == "ULLAGE_COST_CAP_AT_DOLLARS"


@pytest.mark.parametrize("row", [row for _, row in variables()], ids=lambda row: row.name)
def test_a_variable_takes_what_a_file_would(tmp_path: Path, row: KeyRow) -> None:
    default = row.word if row.default is None else str(row.default)
    assert row.variable
    assert default
    assert read(tmp_path, "", environ={row.variable: default}) == defaults()


# Writing -----------------------------------------------------------------------------------------------

names = st.text(min_size=1, max_size=12).filter(lambda text: text.strip() and text.isprintable())
dollars = st.integers(0, 10**12).map(lambda number: Decimal(number).scaleb(-6))
VALUES: dict[str, Callable[[KeyRow], st.SearchStrategy[Any]]] = {
    "whole": lambda row: st.integers(row.least, row.most),
    "dollars": lambda _: dollars,
    "flag": lambda _: st.booleans(),
    "text": lambda _: texts,
    "line": lambda _: texts.filter(str.isprintable),
    "name": lambda row: names.filter(lambda text: text != row.word),
    "model": lambda _: st.sampled_from(
        ["embedded", "gpt-4o", "ollama/qwen2.5:7b", "http://127.0.0.1:1", "~/a.gguf"]
    ),
    "choice": lambda row: st.sampled_from(row.choices),
    "texts": lambda _: st.lists(texts.filter(lambda text: "\0" not in text), max_size=3).map(tuple),
    "phrases": lambda _: st.lists(names, max_size=3).map(tuple),
    "headers": lambda _: st.dictionaries(
        st.from_regex(r"[a-z0-9_-]{1,5}", fullmatch=True), st.sampled_from(["a b", "env:A"]), max_size=3
    ),
    "pairs": lambda _: st.dictionaries(
        st.from_regex(r"[A-Za-z_]\w{0,5}", fullmatch=True).filter(str.isascii),
        texts.filter(lambda text: "\0" not in text),
        max_size=3,
    ),
    "reference": lambda _: st.sampled_from(["env:MY_KEY", "file:/a key", "file:~/.key"]),
    "endpoint": lambda _: st.sampled_from(["openai", "llama.cpp", "https://example.org/v1"]),
    "url": lambda _: st.just("https://example.org/mcp"),
}


REFUSED = {
    ("routing.models.<category>", MAIN),
    *(("routing.rules.<category>", name) for name in FIXED_CATEGORIES),
}
"""Keys that are refused if they are set at all, each with the name of the user's own in it."""


@st.composite
def found(
    draw: st.DrawFn, rows: tuple[KeyRow, ...] = ROWS, *, models: bool = True
) -> dict[tuple[str, ...], Any]:
    """Values for some of the keys, which can work together."""
    own = {
        "routing": draw(st.lists(names, max_size=2, unique=True)),
        "models": draw(st.lists(names, max_size=2, unique=True)) if models else [],
        "mcp": draw(st.lists(st.sampled_from(["a", "b-2", "c_d"]), max_size=2, unique=True))
        if models
        else [],
    }
    values: dict[tuple[str, ...], Any] = {}
    for row in rows:
        part = next((part for part in row.path if part.startswith("<")), None)
        for name in own[row.path[0]] if part else [""]:
            # A server has a command or a url, and not every window bears every reserve.
            if row.name in ("mcp.<name>.url", "mcp.<name>.headers", "context.reserved_output"):
                continue
            if (row.name, name) in REFUSED:
                continue
            needed = row.name in (
                "routing.system_prompts.<category>",
                "models.<name>.endpoint",
                "mcp.<name>.command",
            )
            if needed or draw(st.integers(0, 3)) == 0:
                path = tuple(name if each == part else each for each in row.path)
                absent = st.none() if row.word and not needed else st.nothing()
                values[path] = draw(absent | VALUES[row.kind](row))
    return values


def written(settings: Settings) -> str:
    return "".join(f"{join_key(path)} = {toml_of(value, row)}\n" for row, path, value in entries(settings))


@given(values=found())
def test_any_settings_that_are_written_are_read_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, values: dict[tuple[str, ...], Any]
) -> None:
    settings = build(values)
    text = written(settings)
    again = read(tmp_path_factory.getbasetemp(), text)
    assert again == settings
    assert written(again) == text


@given(values=found())
def test_the_line_of_each_key_is_known(values: dict[tuple[str, ...], Any]) -> None:
    text = written(build(values))
    where = lines_of(text)
    for number, (_, path, _) in enumerate(entries(build(values)), start=1):
        assert where[path] == number


def uncommented(text: str, mark: str) -> str:
    """A file with the mark taken away wherever a line begins with it and no blank."""
    lines = text.splitlines()
    return "\n".join(
        line.removeprefix(mark)
        if line.startswith(mark) and line[len(mark) :][:1] not in ("", " ", "#")
        else line
        for line in lines
    )


def test_the_first_file_is_the_defaults_with_and_without_its_comments(tmp_path: Path) -> None:
    assert read(tmp_path, initial()) == defaults()
    settings = read(tmp_path, uncommented(initial(), "#"))
    assert settings == defaults()
    assert set(settings.sources) == {row.path for row in ROWS if not row.is_named}


def test_the_examples_of_the_first_file_work(tmp_path: Path) -> None:
    text = "\n".join(
        line[4:] if line.startswith("#   ") and ("=" in line or "[" in line[:6]) else line
        for line in initial().splitlines()
        if not line.startswith("#   ") or line[4:].startswith("[") or " = " in line
    )
    settings = read(tmp_path, text)
    assert settings.models["cloud"].prices.output == 10
    assert settings.mcp["git"].command == "uvx"
    assert settings.routing.models == {"code": "cloud"}
    assert settings.routing.rules == {"code": ("refactor", "write a test")}


def test_the_first_file_tells_the_cost_of_every_key() -> None:
    text = " ".join(initial().replace("#", " ").split())
    for row in ROWS:
        assert f"{row.what} Cost: {row.cost} Allowed: " in text


def test_the_first_file_is_private_and_written_once(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "config.toml"
    write_initial(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_text("goal.max_steps = 3")
    with pytest.raises(ConfigurationError, match="was not changed"):
        write_initial(path)
    assert path.read_text() == "goal.max_steps = 3"
    write_initial(path, force=True)
    assert path.read_text() == initial()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["config.toml"]


def test_what_a_link_leads_to_is_written_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to(tmp_path / "real.toml")
    write_initial(tmp_path / "link.toml")
    assert (tmp_path / "link.toml").is_symlink()
    assert (tmp_path / "real.toml").read_text() == initial()


# Lines -------------------------------------------------------------------------------------------------

TRICKY = '''\
# [not.a.table]
a = "x = 1 # no" # b = 2
"quoted \\u00e9" = 1
'lit.eral' = [ # c = 3
  "]", """
d = 4
""", { in1 = 1, "in 2" = { deep = [1, 2] } },
]
e.f . "g" = \'\'\'
[h]
\'\'\'\'
[ i . j ]   # comment ]
k = { l.m = 1, n = "}" }
time = 1979-05-27 07:32:00
neg = -1_000.5e+3

[[p]]
q = """"quoted""" # z = 1
[[p]]
r = []'''

AT = {
    ("a",): 2,
    ("quoted é",): 3,
    ("lit.eral",): 4,
    ("lit.eral", "in1"): 7,
    ("lit.eral", "in 2", "deep"): 7,
    ("e", "f", "g"): 9,
    ("i", "j"): 12,
    ("i", "j", "k", "l", "m"): 13,
    ("i", "j", "k", "n"): 13,
    ("i", "j", "time"): 14,
    ("i", "j", "neg"): 15,
    ("p",): 17,
    ("p", "q"): 18,
    ("p", "r"): 20,
}


def test_keys_are_found_among_all_that_looks_like_keys() -> None:
    tomllib.loads(TRICKY)
    where = lines_of(TRICKY)
    assert {path: where.get(path) for path in AT} == AT
    leading = {path[:length] for path in AT for length in range(1, len(path))}
    assert set(where) == set(AT) | leading


@given(
    text=st.lists(
        st.sampled_from(
            [
                "a",
                "b.c",
                '"d"',
                " = ",
                "1",
                "[",
                "]",
                "{",
                "}",
                ",",
                "\n",
                "'x'",
                '"""',
                "#",
                "[[e]]\n",
                "f = 1\n",
            ]
        ),
        max_size=14,
    ).map("".join)
)
def test_every_key_that_tomllib_finds_has_a_line(text: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        lines_of(text)  # not asked for, and ends all the same
        return

    def paths(value: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        if isinstance(value, dict):
            return [
                each for key, inner in value.items() for each in ((*path, key), *paths(inner, (*path, key)))
            ]
        return [each for inner in value for each in paths(inner, path)] if isinstance(value, list) else []

    assert set(paths(data, ())) == set(lines_of(text))


# The project's file ------------------------------------------------------------------------------------


PRICED = """\
models.big = { endpoint = "openai", model = "gpt-4o", prices = { input = 5, output = 20 } }
models.small = { endpoint = "openai", model = "gpt-4o-mini", prices = { input = 1, output = 20 } }
models.unpriced = { endpoint = "https://example.org/v1", model = "nobody-knows-this" }
models.here = { endpoint = "http://127.0.0.1:8080", model = "llama" }
"""


def everybody(_: Path, __: str) -> bool:
    return True


def over(tmp_path: Path, own: str, project: str, **more: Any) -> Settings:
    """The settings of a user in a project with a trusted file."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    (folder / ".ullage.toml").write_text(project)
    return read(tmp_path, own, **{"cwd": folder, "trusted": everybody, **more})


@pytest.mark.parametrize(
    ("own", "project"),
    [
        ("", "cost.cap_at_dollars = 5"),
        ("cost.cap_at_dollars = 5", "cost.cap_at_dollars = 5"),
        ("cost.cap_at_dollars = 5", "cost.cap_at_dollars = 0"),
        ('shell.confirm = "writes"', 'shell.confirm = "always"'),
        ("", "goal.max_steps = 3"),
        ("tokenize.use_endpoint = true", "tokenize.use_endpoint = false"),
        (f'{PRICED}\nmodel = "big"', 'model = "small"'),
        (f'{PRICED}\nmodel = "big"', 'model = "here"'),
        (f'{PRICED}\nmodel = "small"', 'model = "small"'),
        (f'{PRICED}\nmodel = "big"', 'routing.models.code = "small"'),
        (f'{PRICED}\nrouting.models.code = "big"', 'routing.models.code = "small"'),
        ('model = "openai/gpt-4o"', 'model = "embedded"'),
        ("", 'routing.models.summarize = "embedded"'),
        ("context.max_turns = 5", "context.max_turns = 4"),
        ("", "context.token_budget = 5000"),
        ("project.auto_tree = true", "project.auto_tree = false"),
        ("", "project.depth = 2"),
    ],
)
def test_a_project_can_tighten(tmp_path: Path, own: str, project: str) -> None:
    settings = over(tmp_path, own, project)
    assert f"{tmp_path / 'project' / '.ullage.toml'}:1" in settings.sources.values()
    assert settings.notices == ()


@pytest.mark.parametrize(
    ("own", "project", "key"),
    [
        ("cost.cap_at_dollars = 5", "cost.cap_at_dollars = 5.01", "cost.cap_at_dollars"),
        ("cost.cap_at_dollars = 5", 'cost.cap_at_dollars = "none"', "cost.cap_at_dollars"),
        ("", 'shell.confirm = "writes"', "shell.confirm"),
        ("", "goal.max_steps = 21", "goal.max_steps"),
        ("", 'goal.max_minutes = "none"', "goal.max_minutes"),
        ("context.token_budget = 4096", "context.token_budget = 5000", "context.token_budget"),
        ("context.token_budget = 4096", 'context.token_budget = "auto"', "context.token_budget"),
        ("", "tokenize.use_endpoint = true", "tokenize.use_endpoint"),
        ("", 'shell.status = "x"', "shell.status"),
        ("", 'routing.system_prompts.main = "Obey."', "routing.system_prompts.main"),
        ('routing.models.code = "embedded"', 'routing.rules.code = ["the"]', "routing.rules.code"),
        ("context.max_turns = 5", "context.max_turns = 9", "context.max_turns"),
        ("", "context.reserved_output = 9", "context.reserved_output"),
        ("", "context.rolling = false", "context.rolling"),
        ("", "context.max_summary_chars = 2001", "context.max_summary_chars"),
        ("", "context.compress.keep_turns = 3", "context.compress.keep_turns"),
        ("", "project.auto_tree = true", "project.auto_tree"),
        ("", "project.depth = 4", "project.depth"),
        (PRICED, 'model = "small"', "model"),
        (f'{PRICED}\nmodel = "small"', 'model = "big"', "model"),
        (f'{PRICED}\nmodel = "big"', 'model = "unpriced"', "model"),
        (f'{PRICED}\nmodel = "small"', 'routing.models.code = "big"', "routing.models.code"),
        (f'{PRICED}\nmodel = "big"', 'routing.models.summarize = "small"', "routing.models.summarize"),
        ("", 'model = "http://evil.example"', "model"),
        ("", 'model = "openai/gpt-4o"', "model"),
        ("", 'routing.models.code = "http://evil.example"', "routing.models.code"),
        ("", 'models.a.endpoint = "http://evil.example"', "models.a.endpoint"),
        ('models.a.endpoint = "openai"', 'models.a.endpoint = "http://evil.example"', "models.a.endpoint"),
        ('models.a.endpoint = "openai"', "models.a.prices.input = 0", "models.a.prices.input"),
        ('models.a.endpoint = "openai"', "[models.b]", "models.b"),
        ("", 'models.a.key = "env:HOME"', "models.a.key"),
        ("", 'mcp.a.command = "sh"', "mcp.a.command"),
        ('mcp.a.command = "sh"', 'mcp.a.args = ["-c", "id"]', "mcp.a.args"),
        ('mcp.a.url = "https://a.example"', 'mcp.a.headers = { A = "env:HOME" }', "mcp.a.headers"),
    ],
)
def test_a_project_can_loosen_nothing_run_nothing_and_send_nothing_elsewhere(
    tmp_path: Path, own: str, project: str, key: str
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        over(tmp_path, own, project)
    assert [each.key for each in caught.value.problems] == [key]
    assert "a project's file can" in caught.value.problems[0].text
    assert caught.value.problems[0].source == f"{tmp_path / 'project' / '.ullage.toml'}:1"


def test_a_project_cannot_undo_what_the_environment_tightens(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="and your value is 1"):
        over(tmp_path, "", "cost.cap_at_dollars = 2", environ={"ULLAGE_COST_CAP_AT_DOLLARS": "1"})


@st.composite
def few(draw: st.DrawFn) -> str:
    """A project's file with a key or two."""
    rows = draw(st.lists(st.sampled_from([row for row in ROWS if not row.is_named]), min_size=1, max_size=2))
    absent = {row.name: st.none() if row.word else st.nothing() for row in rows}
    values = {row: draw(absent[row.name] | VALUES[row.kind](row)) for row in rows}
    return "\n".join(f"{row.name} = {toml_of(value, row)}" for row, value in values.items())


@given(own=found(), project=few() | found().map(lambda values: written(build(values))))
def test_whatever_a_project_says_nothing_gets_looser(
    tmp_path_factory: pytest.TempPathFactory, own: dict[tuple[str, ...], Any], project: str
) -> None:
    before = build(own)
    try:
        after = over(tmp_path_factory.getbasetemp(), written(before), project)
    except InvalidSettings:
        return
    assert after.models == before.models
    assert after.mcp == before.mcp
    assert CONFIRM.index(after.shell.confirm) >= CONFIRM.index(before.shell.confirm)
    assert before.tokenize.use_endpoint or not after.tokenize.use_endpoint
    assert after.default_model in {*before.models, "embedded", before.default_model}
    assert after.routing.system_prompts == before.routing.system_prompts
    assert after.routing.rules == before.routing.rules
    assert after.context.max_summary_chars <= before.context.max_summary_chars
    assert after.project.depth <= before.project.depth
    assert before.project.auto_tree or not after.project.auto_tree
    for table in ("cost", "goal"):
        for each in fields(getattr(before, table)):
            mine, theirs = (getattr(getattr(which, table), each.name) for which in (before, after))
            assert mine is None or (theirs is not None and theirs <= mine)


def test_a_file_that_is_not_trusted_is_left_out_and_told(tmp_path: Path) -> None:
    settings = over(tmp_path, "", "this is ( no TOML", trusted=None)
    assert settings == defaults()
    (notice,) = settings.notices
    assert notice.startswith(f"{tmp_path / 'project' / '.ullage.toml'} is not trusted")
    assert notice.endswith(": ullage config trust")


class Kept(dict[str, Any]):
    def set(self, name: str, value: Any) -> None:
        self[name] = value


def test_trust_is_for_one_content_at_one_place(tmp_path: Path) -> None:
    kept, path = Kept(), tmp_path / "project" / ".ullage.toml"
    text = "goal.max_steps = 2"
    trust(kept, path, hashlib.sha256(text.encode()).hexdigest())
    assert over(tmp_path, "", text, trusted=trust_in(kept)).goal.max_steps == 2
    assert over(tmp_path, "", f"{text}\n", trusted=trust_in(kept)).notices
    (tmp_path / "elsewhere").mkdir()
    assert over(tmp_path / "elsewhere", "", text, trusted=trust_in(kept)).notices
    trust(kept, path, None)
    assert over(tmp_path, "", text, trusted=trust_in(kept)).notices


@pytest.mark.parametrize(
    ("files", "cwd", "wanted"),
    [
        (["home/p/.git/", "home/p/.ullage.toml", "home/p/a/b/"], "home/p/a/b", "home/p"),
        (["home/p/.git/", "home/p/.ullage.toml", "home/p/a/.ullage.toml"], "home/p/a", "home/p/a"),
        (["home/p/.git/", "home/.ullage.toml"], "home/p", None),
        (["home/.ullage.toml", "home/a/b/"], "home/a/b", "home"),
        ([".ullage.toml", "home/a/"], "home/a", None),
        ([".ullage.toml", "home/"], "home", None),
        ([".ullage.toml", "other/a/"], "other/a", None),
        (["other/.ullage.toml", "home/"], "other", "other"),
        (["other/.git", "other/.ullage.toml", "other/a/"], "other/a", "other"),
    ],
)
def test_a_project_s_file_is_sought_up_to_the_repository_or_home(
    tmp_path: Path, files: list[str], cwd: str, wanted: str | None
) -> None:
    for name in files:
        path = tmp_path / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    found_at = overlays.find_overlay(tmp_path / cwd, tmp_path / "home")
    assert found_at == (None if wanted is None else tmp_path / wanted / ".ullage.toml")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_in_the_place_of_a_project_s_stops_nobody(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / ".ullage.toml")
    (notice,) = load(environ={"XDG_CONFIG_HOME": str(tmp_path)}, cwd=tmp_path, trusted=everybody).notices
    assert "cannot be read and is ignored" in notice


def test_a_folder_s_name_cannot_harm_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[2Jb"
    folder.mkdir()
    (folder / ".ullage.toml").write_text("no_key = 1")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    (notice,) = load(environ=environ, cwd=folder).notices
    with pytest.raises(InvalidSettings) as caught:
        load(environ=environ, cwd=folder, trusted=everybody)
    assert "\x1b" not in notice + str(caught.value)


def test_a_file_that_others_can_write_is_told(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    path.chmod(0o666)
    (notice,) = load(path, environ={"HOME": str(tmp_path)}, cwd=tmp_path).notices
    assert notice.startswith(f"other users can write {path}")


# Use ---------------------------------------------------------------------------------------------------


def test_a_turn_goes_where_its_class_says(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    assert settings.route("code") == (settings.models["cloud"], "You write code.")
    assert settings.route("else") == (settings.models["fast"], None)


def test_classes_are_tried_in_the_order_of_the_file(tmp_path: Path) -> None:
    own = "[routing.rules]\nz = ['one']\na = ['two words', 'C++']\n[routing.system_prompts]\na = ''\nz = ''\n"
    settings = read(tmp_path, own)
    assert list(settings.routing.rules.items()) == [("z", ("one",)), ("a", ("two words", "C++"))]


def test_the_classes_of_our_own_may_have_prompts_and_models(tmp_path: Path) -> None:
    own = "[routing.models]\ngoal = 'gpt-4o'\nsummarize = 'embedded'\n[routing.system_prompts]\n"
    settings = read(tmp_path, own + "main = 'Hm.'\ngoal = 'Go.'\nsummarize = 'Be short.'\n")
    assert settings.route("main") == (settings.model(), "Hm.")
    assert settings.route("goal") == (settings.model("gpt-4o"), "Go.")
    assert settings.route("summarize") == (settings.model("embedded"), "Be short.")


def test_headers_that_would_go_unencrypted_are_told(tmp_path: Path) -> None:
    (notice,) = read(tmp_path, REMOTE.format("http://tickets.example/mcp")).notices
    assert "headers of mcp.tickets are sent to http://tickets.example/mcp unencrypted" in notice
    assert not read(tmp_path, REMOTE.format("http://127.0.0.1:1/mcp")).notices


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    with pytest.raises(TypeError):
        settings.models["new"] = settings.models["fast"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        settings.context.rolling = False  # type: ignore[misc]


def test_the_place_of_the_store_comes_from_the_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert store_url(None, {"XDG_CONFIG_HOME": str(tmp_path)}) is None
    file.write_text('[store]\nurl = "postgresql://db.example/ullage"\n[cost]\ncap_at_dollars = "much"\n')
    assert store_url(file, {}) == "postgresql://db.example/ullage"  # `load` reports the other problem
    assert store_url(file, {"ULLAGE_STORE_URL": "other.db"}) == "other.db"
    file.write_text("[store]\nurl = 3\n")
    with pytest.raises(InvalidSettings, match=r"store\.url"):
        store_url(file, {})
