"""From settings to endpoints, keys, prices, ledgers and conversations, and to the servers of tools."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.settings_file import REMOTE, SECRET, WHOLE, read
from ullage import store
from ullage.broker.endpoint import Timeouts
from ullage.config import defaults
from ullage.config.prices import prices_by_name
from ullage.context import Compress, MemoryJournal
from ullage.cost import Prices
from ullage.errors import ConfigurationError
from ullage.mcp.spec import environment_of, headers_of
from ullage.session.accounts import ledger_for, meter_for
from ullage.session.conversation import context_options, resume_context
from ullage.session.endpoint import endpoint_of, open_provider_of
from ullage.session.model_pool import ModelLimits, compress_of
from ullage.target import Target
from ullage.tokens.calibration import NEUTRAL

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_is_resolved_when_the_endpoint_is_made(tmp_path: Path) -> None:
    cloud = read(tmp_path, WHOLE).models["cloud"]
    endpoint = endpoint_of(cloud, {"MY_KEY": SECRET, "ANTHROPIC_API_KEY": "another"})
    assert endpoint.url == "https://api.anthropic.com/v1"
    assert endpoint.model == "claude-sonnet-4-5"
    assert endpoint.api == "anthropic.messages"
    assert endpoint.key is not None
    assert endpoint.key.reveal() == SECRET
    assert SECRET not in repr(endpoint)
    with pytest.raises(ConfigurationError, match="set MY_KEY in the environment"):
        endpoint_of(cloud, {"ANTHROPIC_API_KEY": "another"})


def test_an_address_gets_no_key_that_was_not_meant_for_it(tmp_path: Path) -> None:
    settings = read(tmp_path, 'models.gpt-4o.endpoint = "https://example.org/v1"')
    assert endpoint_of(settings.model("gpt-4o"), {"OPENAI_API_KEY": SECRET}).key is None


@pytest.mark.parametrize(("mode", "works"), [(0o600, True), (0o400, True), (0o640, False), (0o604, False)])
def test_a_key_in_a_file_is_read_where_nobody_else_can(tmp_path: Path, mode: int, works: bool) -> None:
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(mode)
    model = read(tmp_path, f'[models.a]\nendpoint = "openai"\nkey = "file:{path}"').models["a"]
    if works:
        key = endpoint_of(model, {}).key
        assert key is not None
        assert key.reveal() == SECRET
        return
    with pytest.raises(ConfigurationError, match="chmod 600"):
        endpoint_of(model, {})


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("~/none", "No such file"),
        ("key", "give an absolute path"),
        ("~/", "not a regular file"),
        ("~/two", "no key"),
    ],
)
def test_a_key_that_cannot_be_read_is_told_and_not_shown(tmp_path: Path, place: str, says: str) -> None:
    (tmp_path / "two").write_text(f"{SECRET} {SECRET}")
    (tmp_path / "two").chmod(0o600)
    model = read(tmp_path, f'[models.a]\nendpoint = "openai"\nkey = "file:{place}"').models["a"]
    with pytest.raises(ConfigurationError, match=says) as caught:
        endpoint_of(model, {"HOME": str(tmp_path)})
    assert SECRET not in str(caught.value)


def test_a_key_that_would_go_unencrypted_is_told(tmp_path: Path) -> None:
    lines = '[models.a]\nkey = "env:A"\nendpoint = "{}"'
    assert "unencrypted" in read(tmp_path, lines.format("http://example.org/v1")).notices[0]
    assert not read(tmp_path, lines.format("http://127.0.0.1:1/v1")).notices
    assert not read(tmp_path, lines.format("https://example.org/v1")).notices


def test_a_model_that_is_not_configured_is_taken_by_its_name() -> None:
    plain = defaults().model("openai/gpt-4o")
    assert (plain.name, plain.window, plain.use_tool_role) == ("openai/gpt-4o", None, True)
    endpoint = endpoint_of(plain, {"OPENAI_API_KEY": SECRET})
    assert (endpoint.url, endpoint.model) == ("https://api.openai.com/v1", "gpt-4o")


def test_a_model_that_has_a_price_is_not_free_wherever_it_is(tmp_path: Path) -> None:
    free = 'endpoint = "http://127.0.0.1:4000"'
    settings = read(tmp_path, f"[models.a]\n{free}\n[models.b]\n{free}\nprices.input = 1")
    assert endpoint_of(settings.models["a"], {}).local
    assert not endpoint_of(settings.models["b"], {}).local


def test_the_timeouts_of_a_model_reach_its_endpoint(tmp_path: Path) -> None:
    place = 'endpoint = "http://127.0.0.1:4000"'
    settings = read(
        tmp_path, f"[models.a]\n{place}\n[models.b]\n{place}\ntimeouts = {{ begin = 7, first = 3 }}"
    )
    assert endpoint_of(settings.models["a"], {}).timeouts == Timeouts()
    assert endpoint_of(settings.models["b"], {}).timeouts == Timeouts(begin=7, first=3)
    assert (Timeouts().all_tries, Timeouts(first=300).all_tries, Timeouts(begin=7).all_tries) == (180, 450, 7)


def test_the_embedded_model_has_no_endpoint() -> None:
    with pytest.raises(ConfigurationError, match="runs in this process"):
        endpoint_of(defaults().model(), {})


def test_a_provider_is_opened_with_the_configured_window(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    made = open_provider_of(settings.models["fast"], {})
    assert made.local
    assert made.provider.target.model == "fast"


def test_prices_are_given_by_a_million_and_kept_by_a_token(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE + '\n[models.known]\nmodel = "gpt-4o"\n')
    prices = prices_by_name(settings)
    assert prices["cloud"] == Prices(
        input=Decimal("0.000003"), output=Decimal("0.000015"), cached_read=Decimal("0.0000003")
    )
    assert prices["known"].input is not None, "what is not given is in the table of models"
    assert prices["fast"] == Prices()


def test_the_options_are_taken_by_what_they_are_for(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE + "\n[goal]\nmax_steps = 1\n")
    fast = settings.models["fast"]
    limits = ModelLimits(
        target=Target(model="fast"),
        token_budget=None,
        window=fast.window,
        reserved_output=None,
        tokenizer=None,
        factor=NEUTRAL,
    )
    options, meter = context_options(settings, fast), meter_for(settings)
    context = resume_context("s", MemoryJournal(), options, limits, meter=meter)
    assert context.limit == 8_192 - 8_192 // 4
    assert compress_of(settings, fast) == Compress(keep_turns=4)
    assert compress_of(settings, settings.models["cloud"]) is None
    with store.open("sqlite://:memory:") as kept:
        ledger = ledger_for(settings, kept, "s", "harbour")
        dearer = ledger_for(settings, kept, "t", "harbour", cap_at_dollars="2.5")
        assert [cap.limit for cap in ledger.caps()] == [Decimal("0.1")]
        assert [cap.limit for cap in dearer.caps()] == [Decimal("2.5")]
    assert meter.warn_at_dollars is None


def test_a_server_is_given_the_variables_that_it_is_to_have(tmp_path: Path) -> None:
    server = read(tmp_path, WHOLE).mcp["git"]
    assert environment_of(server, {"GIT_TOKEN": SECRET, "HOME": "/"}) == {"TOKEN": SECRET, "MODE": "quiet"}
    assert SECRET not in repr(server)
    with pytest.raises(ConfigurationError, match="set it in the environment"):
        environment_of(server, {})


def test_a_server_is_sent_the_headers_that_it_is_to_have(tmp_path: Path) -> None:
    settings = read(tmp_path, REMOTE.format("https://tickets.example/mcp"))
    server = settings.mcp["tickets"]
    assert server.timeout == 5
    assert settings.notices == ()
    assert headers_of(server, {"TICKETS": f"Bearer {SECRET}\n"}) == {
        "Authorization": f"Bearer {SECRET}",
        "X-Team": "harbour",
    }
    assert SECRET not in repr(server)
    with pytest.raises(
        ConfigurationError, match=r"mcp.tickets.headers.Authorization needs the variable TICKETS"
    ):
        headers_of(server, {})


@pytest.mark.parametrize("value", ["", f"{SECRET}\nX-Evil: 1", "geheim-\u00e4"])
def test_a_variable_that_no_header_can_hold_is_told_and_not_shown(tmp_path: Path, value: str) -> None:
    server = read(tmp_path, REMOTE.format("https://tickets.example/mcp")).mcp["tickets"]
    with pytest.raises(ConfigurationError, match="a header cannot hold this variable") as caught:
        headers_of(server, {"TICKETS": value})
    assert not value or value not in str(caught.value)
