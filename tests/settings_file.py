"""Settings of a user whose only file has a given text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage.config import Settings, load

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "sk-proj-0123456789abcdefghij"  # noqa: S105 - of nobody

WHOLE = """\
model = "fast"

[context]
token_budget = "auto"
compress.keep_turns = 4

[routing.system_prompts]
code = "You write code."

[routing.models]
code = "cloud"

[routing.rules]
code = ["refactor", "unit test"]

[cost]
cap_at_dollars = 0.10

[models.fast]
endpoint = "http://127.0.0.1:8080"
window = 8_192
local_compress = true

[models.cloud]
endpoint = "anthropic"
model = "claude-sonnet-4-5"
key = "env:MY_KEY"
prices = { input = 3, output = 15.00, cached_read = 0.3 }

[mcp.git]
command = "uvx"
args = ["mcp-server-git"]
env = { TOKEN = "env:GIT_TOKEN", MODE = "quiet" }
"""

REMOTE = """\
[mcp.tickets]
url = "{}"
headers = {{ Authorization = "env:TICKETS", X-Team = "harbour" }}
timeout = 5
"""


def read(tmp_path: Path, text: str | bytes, **more: Any) -> Settings:
    """The settings of a file with this text, of a user who has nothing else."""
    file = tmp_path / "config.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(0o600)
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    options = {"environ": {"HOME": str(home)}, "cwd": home, **more}
    return load(file, **options)
