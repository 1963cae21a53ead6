"""Makes the pictures of the documentation: screens of the real program, and charts of the saved benchmarks.

    python scripts/pictures.py            writes docs/pictures/*.svg
    python scripts/pictures.py --check    names each picture that is out of date, and fails if one is

The screens are what `ullage` prints in colour, exported by rich. The charts show the figures in
bench/results.json, which `python -m bench --save` writes. The same input always gives the same bytes.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
SESSION = ROOT / "examples" / "session.json"
PROGRAM = Path(sys.executable).with_name("ullage")

FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "Fira Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: Arial, "DejaVu Sans", sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The frame of rich's own export without its fonts, which a browser would load from another server."""


# Screens ----------------------------------------------------------------------------------------------


def explain() -> str:
    """The screen of `ullage explain`, up to the digest."""
    command = ("explain", "examples/session.json", "--limit", "2800")
    shown, heading, _ = printed(*command, cwd=ROOT, columns=100).partition("\n\n\x1b[1mThe digest")
    if not heading:
        sys.exit("ullage explain has another heading for the digest now: name it in scripts/pictures.py")
    return screen(shown, " ".join(("ullage", *command)), columns=100)


def context() -> str:
    """The screen of `:context` in the shell, in a conversation that has been trimmed."""
    import ullage  # noqa: PLC0415 - each picture loads what it needs
    from ullage import store  # noqa: PLC0415 - see above

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kept.db")
        with store.open(file) as kept:
            talk = ullage.Context(model="gpt-4o", journal=kept.journal, session="tidebook")
            talk.remember("answer in metric units", "preference")
            for message in json.loads(SESSION.read_text("utf-8"))["messages"][1:]:
                talk.append(message)
        options = ("--store", str(file), "--model", "openai/gpt-4o", "--resume", "tidebook")
        shown = printed(*options, "-c", ":context", cwd=Path(folder), columns=80)
    return screen(f"> :context\n{shown}", "ullage", columns=80)


def printed(*arguments: str, cwd: Path, columns: int) -> str:
    """What the program prints on a terminal in colour, with nothing of this machine's settings."""
    with tempfile.TemporaryDirectory() as home:
        variables = {
            "PATH": os.defpath,
            "HOME": home,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "FORCE_COLOR": "1",
            "COLUMNS": str(columns),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",  # nothing is sent; if it were, nobody would be there
        }
        done = subprocess.run(  # noqa: S603 - our own program
            [PROGRAM, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, check=False
        )
    if done.returncode:
        sys.exit(f"ullage {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def screen(text: str, title: str, columns: int) -> str:
    """A terminal window with this text in it."""
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    console = Console(record=True, width=columns, file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    return console.export_svg(title=title, code_format=FRAME, unique_id="ullage")


# Charts -----------------------------------------------------------------------------------------------

PAPER, INK, FAINT, OURS, OTHERS = "#292929", "#e4e4e4", "#8f8f8f", "#4fb3e8", "#8a7f70"
"""A dark card, as the screens are, so that a page may be light or dark."""
STYLE = {
    "axes.edgecolor": FAINT,
    "axes.facecolor": PAPER,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.facecolor": PAPER,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "ullage",
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
FRACTIONS = {"0.5": "half", "0.25": "a quarter", "0.1": "a tenth"}
APIS = {
    "openai.chat text": "OpenAI chat, text",
    "openai.chat tools": "OpenAI chat, tools",
    "openai.responses tools": "OpenAI responses, tools",
    "anthropic-direct text": "Anthropic, text",
    "anthropic-direct tools": "Anthropic, tools",
    "google-gemini text": "Gemini, text",
}
BUDGETS = {"32000": "32,000 tokens", "8000": "8,000 tokens"}


def charts() -> str:
    """Three charts in one picture: what is still known, the error of counts, and the reused prefix."""
    import matplotlib as mpl  # noqa: PLC0415 - see above

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - the choice above comes first

    found = json.loads((ROOT / "bench" / "results.json").read_text("utf-8"))
    with mpl.rc_context(STYLE):
        figure, (known, error, reused) = plt.subplots(1, 3, figsize=(12, 3.7), layout="constrained")
        draw_known(known, found["memory"]["figures"])
        draw_error(error, found["accuracy"]["figures"]["all"])
        draw_reused(reused, found["peers"]["figures"])
        figure.get_layout_engine().set(w_pad=0.2, h_pad=0.15)
        made = io.StringIO()
        figure.savefig(made, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return "".join(f"{line.rstrip()}\n" for line in made.getvalue().splitlines())


def draw_known(axes: Any, figures: dict[str, Any]) -> None:
    """How often the answer to a question is still in the request."""
    names = {"ullage.fit": OURS, "the newest messages": OTHERS}
    rows = {name: [100 * figures[name][each]["answer"] for each in FRACTIONS] for name in names}
    draw_pairs(axes, list(FRACTIONS.values()), rows, names)
    axes.set_title("Answers still in the request, %")
    axes.set_xlabel("room, as a share of the conversation")


def draw_reused(axes: Any, figures: dict[str, Any]) -> None:
    """How much of each request a provider's cache has already."""
    names = {"ullage_window": "ullage.Window", "REF_group_evict": "the oldest dropped each time"}
    rows = {told: [100 * figures[name][each]["prefix"] for each in BUDGETS] for name, told in names.items()}
    draw_pairs(axes, list(BUDGETS.values()), rows, dict(zip(rows, (OURS, OTHERS), strict=True)))
    axes.set_title("Prefix that a cache can reuse, %")
    axes.set_xlabel("budget of a request")


def draw_pairs(axes: Any, groups: list[str], rows: dict[str, list[float]], colours: dict[str, str]) -> None:
    """Bars side by side: one group a label, one colour a row, each bar with its figure."""
    for place, (name, values) in enumerate(rows.items()):
        bars = axes.bar(
            [x + 0.4 * place for x in range(len(groups))], values, 0.36, label=name, color=colours[name]
        )
        axes.bar_label(bars, fmt="%.0f", color=INK, padding=2)
    axes.set_xticks([x + 0.2 for x in range(len(groups))], groups)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(0, 135)
    axes.legend(loc="upper left", ncols=2, handlelength=1, columnspacing=1, borderaxespad=0)


def draw_error(axes: Any, figures: dict[str, Any]) -> None:
    """The error of a count that is made before the request is sent."""
    places = range(len(APIS))
    wide = axes.barh(places, [figures[name]["p95"] for name in APIS], 0.62, color=OTHERS, label="95 % within")
    middle = axes.barh(places, [figures[name]["median"] for name in APIS], 0.62, color=OURS, label="median")
    labels = [f"{figures[name]['median']:.1f} / {figures[name]['p95']:.1f}" for name in APIS]
    axes.bar_label(wide, labels, color=INK, padding=4)
    axes.set_yticks(places, APIS.values())
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, 1.5 * max(figures[name]["p95"] for name in APIS))
    axes.set_title("Count error before sending, %")
    axes.legend(handles=[middle, wide], loc="upper right", handlelength=1)


MAKERS: dict[str, Callable[[], str]] = {
    "explain.svg": explain,
    "context.svg": context,
    "bench.svg": charts,
}


def main(arguments: list[str]) -> int:
    """Writes or checks every picture. Returns 1 if a check finds one out of date."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    stale = []
    for name, make in MAKERS.items():
        path, fresh = PICTURES / name, make()
        if path.exists() and path.read_text("utf-8") == fresh:
            continue
        stale.append(name)
        if not arguments:
            PICTURES.mkdir(exist_ok=True)
            path.write_text(fresh, "utf-8")
            print(f"docs/pictures/{name}: written")
    if stale and arguments:
        print(f"docs/pictures: {', '.join(stale)} out of date: run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
