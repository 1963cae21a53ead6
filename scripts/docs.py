"""Writes the parts of the documentation that repeat the code: help texts and tables.

    python scripts/docs.py            writes them between their markers
    python scripts/docs.py --check    prints what is out of date, and fails if anything is

A generated part stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->`. Both forms also report links
to files and headings that do not exist.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import io
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(r"(<!-- begin: (?P<name>[\w-]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL)
MARKER = re.compile(r"<!-- (?:begin|end): ")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\((?P<file>[^()#\s]*)(?:#(?P<heading>[^()\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


COMMANDS = re.compile(r"^  (?:COMMAND|ACTION)\n(?P<rows>(?:^ {4}.*\n)+)", re.MULTILINE)
"""The list of commands, or of a command's actions, in a help text."""


def help_of(*command: str) -> str:
    """The text that `ullage COMMAND --help` prints on a page of a fixed width."""
    from ullage.cli.parser import parse  # noqa: PLC0415 - each part loads what it shows

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        parse([*command, "--help"])
    return printed.getvalue().rstrip()


def commands_under(*command: str) -> list[tuple[str, ...]]:
    """A command and all commands below it, as their own help texts list them."""
    listed = COMMANDS.search(help_of(*command) + "\n")
    names = re.findall(r"^ {4}(\w\S*)", listed["rows"], re.MULTILINE) if listed else []
    return [command, *(each for name in names for each in commands_under(*command, name))]


def help_page() -> str:
    """The help text of every command, each under a heading of its own."""
    shown = []
    for command in commands_under():
        name = " ".join(["ullage", *command])
        shown.append(f"{'#' * (2 + (len(command) > 1))} {name}\n\n```text\n{help_of(*command)}\n```")
    return "\n\n".join(shown)


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
    from ullage.config.writer import toml_of  # noqa: PLC0415 - see above

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


def layers_table() -> str:
    """The packages from the top layer to the bottom, each with the first sentence of its docstring."""
    import tomllib  # noqa: PLC0415 - see above

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    lines = ["| layer | what it is about |", "|---|---|"]
    names = (name for layer in layers for name in layer.split(" | "))
    return "\n".join([*lines, *(f"| `{name}` | {_first_sentence(name)} |" for name in names)])


def _first_sentence(module: str) -> str:
    """The first paragraph of a module's docstring, read without importing it."""
    folder = ROOT / "src" / "ullage"
    file = next(path for path in (folder / module / "__init__.py", folder / f"{module}.py") if path.exists())
    said = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split()).replace("|", "\\|")


def extras_table() -> str:
    """The extras: their packages, and what needs them."""
    from ullage.extras import EXTRAS  # noqa: PLC0415 - see above

    lines = ["| extra | needed for | modules |", "|---|---|---|"]
    for name, extra in EXTRAS.items():
        purpose = re.sub(r" needs?$", "", extra.purpose)
        modules = ", ".join(f"`{module}`" for module in extra.modules)
        lines.append(f"| `{name}` | {purpose} | {modules} |")
    return "\n".join(lines)


def results() -> dict[str, Any]:
    """The figures of the saved benchmarks, by table."""
    found = json.loads((ROOT / "bench" / "results.json").read_text("utf-8"))
    return {name: each["figures"] for name, each in found.items()}


def accuracy_table() -> str:
    """The error of counts by API, and the ceilings of larger requests."""
    every, large = (results()["accuracy"][name] for name in ("all", "from 200 tokens on"))
    lines = [
        "| | median error | 95 % within | exact | ceiling too low, from 200 tokens on | its median excess |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, told in ACCURACY.items():
        row, above = every[name], large[name]
        cells = (row["median"], row["p95"], row["exact"], above["under"], above["excess"])
        lines.append(f"| {told} | {' | '.join(f'{cell:.1f} %' for cell in cells)} |")
    return "\n".join(lines)


def memory_table() -> str:
    """How many answers, and the turns that gave them, a request still has."""
    lines = ["| | half: answer / turn | a quarter | a tenth |", "|---|---|---|---|"]
    figures = results()["memory"]
    for name in ("ullage.fit", "the digest alone", "the newest messages"):
        rows = figures[name]
        cells = [f"{rows[each]['answer']:.3f} / {rows[each]['turn']:.3f}" for each in ("0.5", "0.25", "0.1")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def prefix_table() -> str:
    """Requests over budget, invalid or without what they need, and the prefix that a cache can reuse."""
    lines = [
        "| | over | invalid | question or newest result lost | prefix reused, 32k / 8k | unused, 32k / 8k |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    figures = results()["peers"]
    for name, told in TRIMMERS.items():
        both = [figures[name][budget] for budget in ("32000", "8000")]
        sums = [str(sum(each[key] for each in both)) for key in ("over", "invalid", "lost")]
        shares = [" / ".join(f"{each[key]:.1%}" for each in both) for key in ("prefix", "unused")]
        lines.append(f"| {told} | {' | '.join([*sums, *shares])} |")
    return "\n".join(lines)


def clients_table() -> str:
    """The runs of real coding agents behind the gateway."""
    lines = [
        "| client | finished | overflows | invalid | stale results | reuse | kept of 20 |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for name, row in results().get("clients", {}).items():
        version = f" {row['version']}" if row["version"] else ""
        done = "yes" if row["finished"] and row["exit"] == 0 else f"no, exit {row['exit']}"
        keys = ("overflows", "invalid", "stale_results", "prefix_reuse", "code_words_in_last_request")
        shown = " | ".join(str(row[key]) for key in keys)
        lines.append(f"| {name}{f' ({version.strip()})' if version else ''} | {done} | {shown} |")
    return "\n".join(lines)


def integrations_table() -> str:
    """The loops of `make integrations`, host by host."""
    folder = ROOT / "tests" / "integrations"
    hosts = tomllib.loads((folder / "hosts.toml").read_text("utf-8"))
    saved = json.loads((folder / "results.json").read_text("utf-8"))
    lines = [
        "| host | version | slot | lines | finished | overflows | invalid | code words | without | lost |",
        "|---|---|---|--:|---|--:|--:|--:|---|---|",
    ]
    for name, row in hosts.items():
        loops = saved[name]["loops"] if name in saved else []
        version = row["packages"][0].partition("==")[2]
        figures = [
            "yes" if loops and all(each["finished"] for each in loops) else "no",
            str(sum(each["overflows"] for each in loops)),
            str(sum(len(each["invalid"]) for each in loops)),
            str(min((each["words"] for each in loops), default=0)),
            f"overflow at step {min((each['died_at'] for each in loops), default=0)}",
            "; ".join(each for loop in loops for each in loop["lost"]) or "nothing",
        ]
        glue = glue_lines(name)
        link = f"[{row['name']}](#{row['name'].lower().replace(' ', '-')})"
        lines.append(f"| {link} | {version} | {row['slot']} | {glue} | {' | '.join(figures)} |")
    return "\n".join(lines)


def peers_table() -> str:
    """How the tests of other projects end with ours."""
    saved = json.loads((ROOT / "tests" / "integrations" / "peers.json").read_text("utf-8"))
    lines = ["| tests of | tests | how they end with ours |", "|---|--:|---|"]
    for peer in saved.values():
        tested = f"{peer['package']}, {peer['stands_in']}"
        lines += [f"| {tested} | {number} | {why} |" for number, why in peer["outcomes"]]
    return "\n".join(lines)


def glue_lines(host: str) -> int:
    """The lines of a host's module and of the modules that only the glue of that host and its kin imports."""
    folder = ROOT / "src" / "ullage" / "integrations"
    found, new = {"fitter", "media_parts"}, [host]
    lines = 0
    while new:
        path = folder / f"{new.pop()}.py"
        found.add(path.stem)
        lines += code_lines(path)
        imported = re.findall(
            r"^from ullage\.integrations\.(\w+) import", path.read_text("utf-8"), re.MULTILINE
        )
        new += [name for name in dict.fromkeys(imported) if name not in {*found, *new}]
    return lines


def code_lines(path: Path) -> int:
    """The lines of a module without docstrings, comments and blank lines."""
    text = path.read_text("utf-8")
    told = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        number not in told and bool(line.strip()) and not line.lstrip().startswith("#")
        for number, line in enumerate(text.splitlines(), 1)
    )


ACCURACY = {
    "openai.chat text": "OpenAI chat, text",
    "openai.chat tools": "OpenAI chat, tools",
    "openai.responses text": "OpenAI responses, text",
    "openai.responses tools": "OpenAI responses, tools",
    "anthropic-direct text": "Anthropic, text",
    "anthropic-direct tools": "Anthropic, tools",
    "google-gemini text": "Gemini, text",
    "google-gemini tools": "Gemini, tools",
}
"""Rows of the benchmark → their names in the table."""
TRIMMERS = {
    "ullage_window": "`ullage.Window`",
    "ullage_fill": "with `low_water=1.0`",
    "ullage_nodigest": "without the digest",
    "REF_group_evict_lowwater": "reference: the oldest dropped, down to 60 %",
    "REF_group_evict": "the oldest dropped, no more than needed",
}
"""The same for trimmers."""


def first_session() -> str:
    """The screen after a first session, as the tests play it."""
    sys.path.insert(0, str(ROOT))
    from tests.first_session import transcript  # noqa: PLC0415 - see above

    return f"```text\n{transcript()}\n```"


PARTS: dict[str, Callable[[], str]] = {
    "help": help_page,
    "policy": policy_table,
    "families": families_table,
    "keys": keys_table,
    "commands": commands_table,
    "status": status_table,
    "first-session": first_session,
    "layers": layers_table,
    "extras": extras_table,
    "bench-accuracy": accuracy_table,
    "bench-memory": memory_table,
    "bench-prefix": prefix_table,
    "clients": clients_table,
    "integrations": integrations_table,
    "peers": peers_table,
}


def renewed(text: str, file: str) -> str:
    """A document with its generated parts as they should be."""

    def part(match: re.Match[str]) -> str:
        if match["name"] not in PARTS:
            known = ", ".join(PARTS)
            sys.exit(f"{file}: unknown generated part {match['name']!r}; the known ones are {known}")
        return f"{match[1]}{PARTS[match['name']]()}\n{match[3]}"

    if len(MARKER.findall(PART.sub("", text))):
        sys.exit(f"{file}: a begin or end marker stands alone")
    return PART.sub(part, text)


def documents() -> list[Path]:
    """All documents: those in the root, and those below docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def broken_links(path: Path, text: str) -> Iterator[str]:
    """A sentence for each link of a document that leads to no file, or to no heading of it."""
    prose = CODE.sub("", FENCE.sub("", text))
    for link in LINK.finditer(prose):
        if link["file"].startswith(("http://", "https://")):
            continue
        goal = path.parent / link["file"] if link["file"] else path
        if not goal.exists():
            yield f"{path.relative_to(ROOT)}: there is no file {link['file']}"
        elif link["heading"] and link["heading"] not in anchors(
            text if goal == path else goal.read_text("utf-8")
        ):
            yield f"{path.relative_to(ROOT)}: {goal.name} has no heading #{link['heading']}"


def anchors(text: str) -> set[str]:
    """The names by which links reach the headings of a document, as GitHub makes them."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCE.sub("", text)))
    return {each.strip().replace(" ", "-") for each in words}


def main(arguments: list[str]) -> int:
    """Writes or checks every document. Returns 1 if a link is broken, or if a check finds a stale part."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    stale, broken = 0, []
    for path in documents():
        file = str(path.relative_to(ROOT))
        text = path.read_text("utf-8")
        fresh = renewed(text, file)
        broken += broken_links(path, fresh)
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
    for each in broken:
        print(each)
    if stale and arguments:
        print(f"{stale} out of date: run `make docs`")
    return 1 if broken or (stale and arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
