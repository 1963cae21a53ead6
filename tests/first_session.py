"""A first session, typed into the real program in a real terminal; the answers are played, so that it is the
same each time. README shows what `transcript` gives.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import ullage
from tests.player import Request, Script, answered, playing, sent_json
from tests.terminal import opened
from tests.world import environment
from ullage.session.continuations import FOLLOW_UP

GAUGE = "█·········"
BOATS = "heron,420\ncurlew,96\ngannet,310\n"
ANSWERS = {
    "tell me which boat paid most": (
        "The second column has the crowns, so sort by it:\n\nCMD: sort -t, -k2 -nr boats.csv | head -n 1\n"
    ),
    FOLLOW_UP: "The **heron** paid most: 420 crowns.",
    "and in euros, at 11.50 crowns?": "420 / 11.50 is **36.52 euros**.",
}
"""What is asked → what is played."""


def transcript() -> str:
    """What stands on the screen after the session."""
    with tempfile.TemporaryDirectory() as folder, playing(_play) as player:
        home = Path(folder, "harbour")
        home.mkdir()
        (home / "boats.csv").write_text(BOATS)
        variables = environment(
            Path(folder),
            NO_PROXY="*",
            OPENAI_BASE_URL=f"{player.url}/v1",
            OPENAI_API_KEY="sk-harbour-0123456789",
        )
        arguments = ("--store", str(Path(folder, "kept.db")), "--model", "openai/gpt-4o")
        with opened(*arguments, env=variables, cwd=home, columns=80) as terminal:
            terminal.wait(f"{GAUGE} ")  # the shell is open
            terminal.press("ls\r")
            terminal.wait("harbour $ ls")
            terminal.ready()
            terminal.press("tell me which boat paid most\r")
            terminal.wait("[r] run")
            terminal.press("r")
            for line in ("and in euros, at 11.50 crowns?", ":context", ":quit"):
                terminal.ready()
                terminal.press(f"{line}\r")
                terminal.wait(f"> {line}")
            terminal.leave("")
            return terminal.text.rstrip()


def _play(request: Request) -> Script:
    if not request.path.endswith("/chat/completions"):
        return sent_json({"error": {"message": "not found"}}, 404)
    body = request.json()
    answer = ANSWERS[body["messages"][-1]["content"].splitlines()[-1]]
    completion = ullage.get_tokenizer("gpt-4o").count(answer)
    prompt = ullage.count_request(body, api="openai.chat").tokens
    return Script(body=answered(answer, prompt=prompt, completion=completion))
