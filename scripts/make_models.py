"""Makes src/ullage/models.tsv out of the model table that the litellm package ships (MIT licence).

    pip download --no-deps litellm && unzip litellm-*.whl 'litellm/model_prices*' -d unpacked
    python scripts/make_models.py unpacked/litellm/model_prices_and_context_window_backup.json \
        --version 1.108.4 --date 2026-11-15

Kept are the chat models whose window is known. A row that says the same as the row of its short
name is left out, because the look-up finds that one. A short name that has no row of its own gets
one: from the model's maker where the maker is listed, else with the window that most providers
give and no price, since a model that anybody may sell has no price of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from ullage.models import COLUMNS, short_name, strip_date

TARGET = Path(__file__).resolve().parent.parent / "src" / "ullage" / "models.tsv"

NOTICE = """\
# Windows, output limits and prices of chat models; read by ullage/models.py, made by scripts/make_models.py.
# Trimmed from model_prices_and_context_window.json of litellm {version}, taken on {date}.
#
# MIT License
#
# Copyright (c) 2023 Berri AI
#
# Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
# associated documentation files (the "Software"), to deal in the Software without restriction,
# including without limitation the rights to use, copy, modify, merge, publish, distribute,
# sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
# furnished to do so, subject to the following conditions:
#
# The above copyright notice and this permission notice shall be included in all copies or substantial
# portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
# NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
# NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
# OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
# CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
#
# Windows are in tokens; prices in US dollars a million tokens; nothing between two tabs means unknown.
# max_input stands where it is less than the window.
"""

MODES = ("chat", "responses")
PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
}

# (stated input, output) of OpenAI's models → (input, window). The table gives the input limit of some and the
# whole window of others; they share a window of which the input may fill all but the output.
SHARED = {
    (272_000, 128_000): (272_000, 400_000),
    (400_000, 128_000): (272_000, 400_000),
    (922_000, 128_000): (922_000, 1_050_000),
    (1_050_000, 128_000): (922_000, 1_050_000),
}
OPENAI = re.compile(r"gpt-[5-9]|daybreak|chat-latest")

# Providers whose price is the maker's own, the maker first; then those that sell it at the maker's price.
MAKERS = (
    "openai", "anthropic", "gemini", "vertex_ai-language-models", "deepseek", "mistral", "xai",
    "cohere_chat", "ai21", "moonshot", "zai", "minimax", "dashscope", "amazon_nova", "meta_llama",
    "perplexity", "bedrock_converse", "bedrock", "vertex_ai-anthropic_models", "azure", "azure_ai",
    "vercel_ai_gateway",
)  # fmt: skip
SOLD_BY_MAKER = re.compile(
    r"^(claude|gpt-[3-9]|chatgpt|o\d|gemini|command|grok|nova|titan|jamba|mistral-(large|medium)|sonar|codex)"
)

# Models that the source has dropped or states wrongly: window, max_input, max_output, prices a million.
# Prices stand where litellm 1.67.0, which still had these models, says the same.
CORRECTED = """
chatgpt-4o-latest 128000 - 16384 5 15 - -
claude-2 100000 - 4096 8 24 - -
claude-2.0 100000 - 4096 - - - -
claude-2.1 200000 - 4096 8 24 - -
claude-3-5-haiku 200000 - 8192 0.8 4 0.08 1
claude-3-5-sonnet 200000 - 8192 3 15 0.3 3.75
claude-3-7-sonnet 200000 - 64000 3 15 0.3 3.75
claude-3-haiku 200000 - 4096 0.25 1.25 0.03 0.3
claude-3-opus 200000 - 4096 15 75 1.5 18.75
claude-3-sonnet 200000 - 4096 3 15 - -
claude-instant-1.2 100000 - 4096 - - - -
gemini-1.5-flash 1048576 - 8192 0.075 0.3 - -
gemini-1.5-pro 2097152 - 8192 1.25 5 - -
gemini-2.0-flash 1048576 - 8192 0.1 0.4 - -
gemini-2.0-flash-lite 1048576 - 8192 0.075 0.3 - -
gpt-3.5-turbo-0301 4096 - 4096 1.5 2 - -
gpt-3.5-turbo-0613 4096 - 4096 1.5 2 - -
gpt-3.5-turbo-16k-0613 16385 - 4096 3 4 - -
gpt-4-0125-preview 128000 - 4096 10 30 - -
gpt-4-0314 8192 - 4096 30 60 - -
gpt-4-1106-vision-preview 128000 - 4096 10 30 - -
gpt-4-32k-0314 32768 - 4096 60 120 - -
gpt-4-turbo-preview 128000 - 4096 10 30 - -
gpt-4-vision-preview 128000 - 4096 10 30 - -
grok-2 131072 - - 2 10 - -
grok-3 131072 - - - - - -
grok-4 256000 - - - - - -
o1-mini 128000 - 65536 1.1 4.4 0.55 -
o1-preview 128000 - 32768 15 60 7.5 -
smollm2 8192 - 8192 - - - -
"""

Row = dict[str, Any]


def corrected() -> dict[str, Row]:
    """The rows of CORRECTED."""
    rows = {}
    for line in CORRECTED.split("\n")[1:-1]:
        name, *cells = line.split()
        rows[name] = dict(zip(COLUMNS, [cell.strip("-") for cell in [*cells, "-"]], strict=True))
    return rows


def convert(name: str, entry: dict[str, Any]) -> Row | None:
    """A row of our table out of an entry of theirs; None where the window is not known."""
    stated = entry.get("max_input_tokens") or entry.get("max_tokens")
    output = entry.get("max_output_tokens")
    if not isinstance(stated, int | Decimal) or stated <= 0:
        return None
    most, window = int(stated), int(stated)
    if OPENAI.search(name) and output:
        most, window = SHARED.get((most, int(output)), (most, window))
    row: Row = {
        "window": str(window),
        "max_input": str(most) if most < window else "",
        "max_output": str(min(int(output), window)) if output else "",
    }
    for column, theirs in PRICES.items():
        row[column] = plain(entry.get(theirs))
    return row


def plain(price: Decimal | int | None) -> str:
    """A price a token as a price a million tokens, without exponent; zero is a price, None is not."""
    if price is None:
        return ""
    return format(Decimal(price).scaleb(6).normalize(), "f")


def rank(provider: str) -> int:
    """The place of a provider among those whose word counts most."""
    return MAKERS.index(provider) if provider in MAKERS else len(MAKERS)


def short_row(short: str, entries: list[tuple[str, str, Row]]) -> Row:
    """The row of a short name that has none: the maker's newest, or the common window without a price."""
    newest_first = sorted(entries, key=lambda each: each[1], reverse=True)
    provider, _, best = min(newest_first, key=lambda each: (rank(each[0]), each[1].count("/")))
    if provider in MAKERS and SOLD_BY_MAKER.match(short):
        return dict(best)
    windows = Counter(int(row["window"]) for _, _, row in entries)
    window = min(windows, key=lambda each: (-windows[each], each))
    outputs = [
        int(row["max_output"]) for _, _, row in entries if row["max_output"] and int(row["window"]) == window
    ]
    unpriced = dict.fromkeys(COLUMNS, "")
    return {**unpriced, "window": str(window), "max_output": str(min(outputs)) if outputs else ""}


def build(source: dict[str, dict[str, Any]]) -> dict[str, Row]:
    """Our table: name → row."""
    rows: dict[str, Row] = corrected()
    by_short: defaultdict[str, list[tuple[str, str, Row]]] = defaultdict(list)
    for name, entry in source.items():
        row = convert(name, entry) if entry.get("mode") in MODES else None
        if row is None:
            continue
        rows.setdefault(name.lower(), row)
        short = short_name(name)
        for key in dict.fromkeys((short, strip_date(short))):
            by_short[key].append((entry["litellm_provider"], name, row))
    for short, entries in by_short.items():
        # the word for the newest is found without it, unless its maker sells it under that very name
        if short not in rows and (strip_date(short) not in by_short or not short.endswith("-latest")):
            rows[short] = short_row(short, entries)
    for name in list(rows):
        dashed = name.replace(".", "-")
        if re.match(r"claude-[^/]*\d\.\d", name) and dashed in rows:
            rows[name] = dict(rows[dashed])  # resellers write 4.5 for 4-5
    return {
        name: row
        for name, row in rows.items()
        if short_name(name) == name or rows.get(short_name(name)) != row
    }


def main() -> None:
    """Writes the table and prints its size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--date", required=True)
    options = parser.parse_args()
    source = json.loads(options.source.read_text(encoding="utf-8"), parse_float=Decimal)
    rows = build(source)
    ordered = sorted(rows, key=str.encode)
    lines = ["\t".join([name, *(rows[name][column] for column in COLUMNS)]) for name in ordered]
    head = NOTICE.format(version=options.version, date=options.date) + "\t".join(["# name", *COLUMNS])
    text = "\n".join([head, *lines, ""])
    TARGET.write_text(text, encoding="utf-8")
    packed = len(gzip.compress(text.encode()))
    print(f"{len(rows)} models, {len(text.encode()):,} bytes, {packed:,} compressed")


if __name__ == "__main__":
    main()
