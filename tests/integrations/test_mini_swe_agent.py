"""mini-swe-agent in text mode runs a long loop in a small window, and its trajectory keeps every message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.loop import LIMIT, RESERVE, check_loop, run_page
from tests.integrations.text_server import page_of, text_server
from tests.strict_server import SYSTEM, TASK

pytest.importorskip("minisweagent")

from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import Submitted
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

from ullage.integrations.mini_swe_agent import FitAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strict_server import StrictServer

ACTION = "I read page {page}.\n```mswea_bash_command\nread_page {page}\n```"
END = "That was all.\n```mswea_bash_command\nsubmit\n```"


class Logbook:
    """An environment with two commands: `read_page N` and `submit`."""

    def execute(self, action: dict[str, str]) -> dict[str, Any]:
        if action["command"] == "submit":
            raise Submitted({"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}})
        return {"output": page_of(action["command"]), "returncode": 0, "exception_info": ""}

    def get_template_vars(self) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


def text_loop(server: StrictServer, glued: bool) -> Any:
    model = LitellmTextbasedModel(
        model_name="openai/gpt-4o",
        cost_tracking="ignore_errors",
        model_kwargs={"api_base": f"{server.url}/v1", "api_key": "none"},
    )
    options: dict[str, Any] = {"system_template": SYSTEM, "instance_template": TASK}
    if glued:
        options |= {"limit": LIMIT, "reserve": RESERVE}
    agent = (FitAgent if glued else DefaultAgent)(model, Logbook(), **options)
    ended = agent.run(TASK)
    assert ended["exit_status"] == "Submitted"
    return [message["content"] for message in agent.messages]


def test_the_loop_ends_only_with_the_glue(
    record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "1")
    check_loop(text_loop, record_property, pairs=False, serve=lambda: text_server(action=ACTION, end=END))


def test_the_example_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with text_server(action=ACTION, end=END, steps=0) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        names = run_page("mini_swe_agent")
    assert len(names["agent"].messages) > 2
