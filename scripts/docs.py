"""Writes the parts of the documentation that repeat the code: help texts and tables.

    python scripts/docs.py            writes them between their markers
    python scripts/docs.py --check    says what is stale, and fails if anything is

A generated part stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->`.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(r"(<!-- begin: (?P<name>[\w-]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL)
MARKER = re.compile(r"<!-- (?:begin|end): ")


def help_of(*command: str) -> str:
    """What `ullage COMMAND --help` prints, on a page of a fixed width."""
    from ullage.cli.parser import parse  # noqa: PLC0415 - each part loads what it shows

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        parse([*command, "--help"])
    return f"```text\n$ {' '.join(['ullage', *command, '--help'])}\n{printed.getvalue().rstrip()}\n```"


def policy_table() -> str:
    """The knobs of fitting: field, default, and the docstring below it."""
    from ullage.fitting import FitPolicy  # noqa: PLC0415 - see above

    body = ast.parse(inspect.getsource(sys.modules[FitPolicy.__module__])).body
    owner = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == "FitPolicy")
    rows = ["| field | default | what it says |", "|---|---|---|"]
    for field, meaning in _fields(owner):
        rows.append(f"| `{field}` | {_default(getattr(FitPolicy(), field))} | {meaning} |")
    return "\n".join(rows)


def _fields(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    following = [*owner.body[1:], None]
    for node, after in zip(owner.body, following, strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        meaning = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meaning = inspect.cleandoc(str(after.value.value)).replace("\n", " ")
        yield node.target.id, meaning.replace("|", "\\|")


def _default(value: object) -> str:
    if value in (None, frozenset(), {}):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{value}`"


def families_table() -> str:
    """The families of models: vocabulary, framing and margin."""
    from ullage.tokens.families import family, rows  # noqa: PLC0415 - see above

    lines = [
        "| family | models that begin with | vocabulary | scale | message | request | plain text | margin |",
        "|---|---|---|--:|--:|--:|---|--:|",
    ]
    for name in rows():
        row = family(name)
        models = ", ".join(f"`{model}`" for model in row.models) or "any other"
        sure = "exact" if row.exact else "estimate"
        figures = (
            name,
            models,
            row.vocabulary,
            f"{row.scale:g}",
            row.message,
            row.request,
            sure,
            f"{row.margin:.1%}",
        )
        lines.append(f"| {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def keys_table() -> str:
    """The keys of the configuration: what each takes, does and costs, and what a project may do with it."""
    from ullage.config.keys import ROWS  # noqa: PLC0415 - see above
    from ullage.config.kinds import allowed  # noqa: PLC0415 - see above
    from ullage.config.overlay import RULES  # noqa: PLC0415 - see above
    from ullage.config.writing import toml_of  # noqa: PLC0415 - see above

    lines = [
        "| key | default | takes | what it does | what it costs | in a project |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        default = "" if row.default is None and row.word is None else f"`{toml_of(row.default, row)}`"
        cells = (f"`{row.name}`", default, allowed(row), row.what, row.cost, RULES[row.overlay].words)
        lines.append(f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |")
    return "\n".join(lines)


def commands_table() -> str:
    """The commands of the shell itself, each with what it does and an example."""
    from ullage.shell.commands import COMMANDS  # noqa: PLC0415 - see above

    lines = ["| command | what it does | example |", "|---|---|---|"]
    for name, command in COMMANDS.items():
        usage = f":{name} {command.usage}".strip().replace("|", "\\|")
        lines.append(f"| `{usage}` | {command.help} | `{command.example}` |")
    return "\n".join(lines)


def status_table() -> str:
    """The variables of the status line."""
    from ullage.shell.status import VARIABLES  # noqa: PLC0415 - see above

    lines = ["| variable | what it is |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| `{{{name}}}` | {variable.about} |" for name, variable in VARIABLES.items())]
    )


def first_session() -> str:
    """The screen after a first session, as the tests play it."""
    sys.path.insert(0, str(ROOT))
    from tests.first_session import transcript  # noqa: PLC0415 - see above

    return f"```text\n{transcript()}\n```"


PARTS: dict[str, Callable[[], str]] = {
    "help": help_of,
    "help-count": lambda: help_of("count"),
    "help-fit": lambda: help_of("fit"),
    "help-explain": lambda: help_of("explain"),
    "help-ask": lambda: help_of("ask"),
    "help-model": lambda: help_of("model"),
    "help-config": lambda: help_of("config"),
    "help-demo": lambda: help_of("demo"),
    "help-cost": lambda: help_of("cost"),
    "help-memory": lambda: help_of("memory"),
    "help-memory-add": lambda: help_of("memory", "add"),
    "help-recall": lambda: help_of("recall"),
    "policy": policy_table,
    "families": families_table,
    "keys": keys_table,
    "commands": commands_table,
    "status": status_table,
    "first-session": first_session,
}


def renewed(text: str, file: str) -> str:
    """A document with its generated parts as they should be."""

    def part(match: re.Match[str]) -> str:
        if match["name"] not in PARTS:
            known = ", ".join(PARTS)
            sys.exit(f"{file}: there is no generated part {match['name']!r}; there are {known}")
        return f"{match[1]}{PARTS[match['name']]()}\n{match[3]}"

    if len(MARKER.findall(PART.sub("", text))):
        sys.exit(f"{file}: a begin or end marker stands alone")
    return PART.sub(part, text)


def main(arguments: list[str]) -> int:
    """Writes or checks every document; 1 where a check finds one stale."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    stale = 0
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]:
        if not path.exists():
            continue
        file = str(path.relative_to(ROOT))
        text = path.read_text("utf-8")
        fresh = renewed(text, file)
        if fresh == text:
            continue
        stale += 1
        if not arguments:
            path.write_text(fresh, "utf-8")
            print(f"{file}: written")
            continue
        changes = difflib.unified_diff(
            text.splitlines(), fresh.splitlines(), file, "as the code says", lineterm=""
        )
        print("\n".join(changes))
    if stale and arguments:
        print(f"{stale} stale: run `make docs`")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
