"""The table of every key of the configuration, in the order of a file.

The reader, the environment, the project's file, `ullage config init` and the documentation all use this
table; a key that is not in it is unknown.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from ullage.categories import GOAL, MAIN, SUMMARIZE
from ullage.config.key_row import MOST_DOLLARS, MOST_TOKENS, KeyRow
from ullage.config.named_keys import MCP_ROWS, MODEL_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONFIRM = ("destructive", "writes", "always")
"""Values of `shell.confirm`, from the least strict to the strictest."""
FIXED_CATEGORIES: Mapping[str, str] = {
    MAIN: "ordinary turns are of this category",
    GOAL: "the turns of a goal are of this category",
    SUMMARIZE: "summaries of old turns are of this category",
}
"""Categories that no rule can choose, each with the turns that belong to it."""

ROWS: tuple[KeyRow, ...] = (
    KeyRow(
        "model",
        "model",
        "embedded",
        "The model that answers: one of [models], or any name for `ullage model use`.",
        "The embedded model is free and small. A provider charges for its models.",
        overlay="cheaper",
    ),
    # The conversation
    KeyRow(
        "context.max_turns",
        "whole",
        None,
        "Maximum number of turns that are sent. The digest replaces older turns.",
        "More turns are more tokens in every request.",
        least=1,
        most=1_000_000,
        word="none",
        overlay="lower",
    ),
    KeyRow(
        "context.token_budget",
        "whole",
        None,
        'Maximum number of input tokens of a request, within the window. "auto" follows the model: its '
        'window less context.reserved_output, or 4,096 if its window is not known. "none" means the same.',
        "Every request costs up to this many input tokens.",
        least=1,
        most=MOST_TOKENS,
        word="auto",
        also=("none",),
        overlay="lower",
    ),
    KeyRow(
        "context.reserved_output",
        "whole",
        None,
        'Tokens of the window that are kept for the answer. "auto" is the longest answer of the model, but '
        "at most a quarter of the window.",
        "The conversation cannot use these tokens, and a cap counts them as spent before each call.",
        least=1,
        most=MOST_TOKENS,
        word="auto",
    ),
    KeyRow(
        "context.max_summary_chars",
        "whole",
        2_000,
        "Longest summary of older turns, in characters.",
        "About one token for four characters in every request, and a call for each summary.",
        least=1,
        most=1_000_000,
        overlay="lower",
    ),
    KeyRow(
        "context.rolling",
        "flag",
        True,
        "If true, old turns are trimmed. If false, a request that is too long is an error.",
        "If false, the conversation ends when the window is full.",
    ),
    KeyRow(
        "context.compress.keep_turns",
        "whole",
        2,
        "Number of newest turns that are sent to a model with local_compress.",
        "With more turns a small model answers more slowly; with fewer it knows less.",
        least=1,
        most=10_000,
        overlay="lower",
    ),
    KeyRow(
        "context.compress.max_turn_chars",
        "whole",
        800,
        "Maximum length of each of these turns, in characters. The end of a longer turn is kept.",
        "With more characters a small model answers more slowly; with fewer it knows less.",
        least=1,
        most=10_000_000,
        overlay="lower",
    ),
    KeyRow(
        "tokenize.use_endpoint",
        "flag",
        False,
        "If true, the model's server counts tokens, if it can. Its counts then decide when to trim.",
        "A small request to the server for each new text, and one for each request near the limit.",
        overlay="off",
    ),
    # Routing
    KeyRow(
        "routing.system_prompts.<category>",
        "text",
        None,
        "System prompt for the turns of a category, instead of the usual one. The category may also be "
        "`main` for ordinary turns, `goal` for the turns of a goal, or `summarize`, if that category has a "
        "model.",
        "Its tokens in each of these requests. If the category changes, the prompt cache is empty.",
        most=100_000,
        example='code = "You write short programs and explain nothing."',
    ),
    KeyRow(
        "routing.models.<category>",
        "model",
        None,
        "Model that answers the turns of a category. The model of `goal` answers the turns of a goal. The "
        "model of `summarize` writes summaries of older turns; without it there are no summaries.",
        "The price of that model. `summarize` makes an extra call when turns are trimmed.",
        overlay="cheaper",
        example='code = "cloud"',
    ),
    KeyRow(
        "routing.rules.<category>",
        "phrases",
        None,
        "Words and phrases that choose this category. A question belongs to the category if it contains "
        "one of them, as whole words, in upper or lower case. Categories are tried in the order of the "
        "file. @CATEGORY in front of a question overrides all rules.",
        "Every question with such a word goes to the model of the category, whatever its subject.",
        most=1_000,
        example='code = ["refactor", "write a test"]',
    ),
    KeyRow(
        "memory.inject_max_chars",
        "whole",
        2_000,
        "Maximum number of characters of the memory that are sent with a request.",
        "About one token for four characters in every request.",
        most=1_000_000,
        overlay="lower",
    ),
    KeyRow(
        "project.auto_tree",
        "flag",
        False,
        "If true, a list of the project's files is sent to the model from the start of the shell.",
        "The shell reads the folders when it starts; every request has up to project.max_chars more.",
        overlay="off",
    ),
    KeyRow(
        "project.depth",
        "whole",
        3,
        "Number of levels of folders in the list of files.",
        "Deeper lists take more time. project.max_chars still limits their length.",
        most=100,
        overlay="lower",
    ),
    KeyRow(
        "project.max_chars",
        "whole",
        2_000,
        "Longest list of files, in characters.",
        "About one token for three characters in every request.",
        least=200,
        most=1_000_000,
        overlay="lower",
    ),
    # Money
    KeyRow(
        "cost.warn_at_dollars",
        "dollars",
        None,
        "Warns once when a session has cost this much.",
        "Nothing.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    KeyRow(
        "cost.warn_at_tokens",
        "whole",
        None,
        "Warns once when a session has used this many tokens.",
        "Nothing.",
        most=10**12,
        word="none",
        overlay="lower",
    ),
    KeyRow(
        "cost.cap_at_dollars",
        "dollars",
        None,
        "Cap for a session. A call that could exceed it is refused before it is sent.",
        "Near the cap, calls are refused for their worst case. A model without a known price is refused.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    KeyRow(
        "cost.cap_at_dollars_a_day",
        "dollars",
        None,
        "Cap for all sessions of one day. The day begins at midnight UTC.",
        "As for cost.cap_at_dollars.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    KeyRow(
        "cost.cap_at_dollars_a_project",
        "dollars",
        None,
        "Cap for all sessions of one project, without a time limit.",
        "As for cost.cap_at_dollars.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    *MODEL_ROWS,
    # The store
    KeyRow(
        "store.url",
        "line",
        None,
        "The store for sessions, costs and keys: a path, or postgresql://user@host/database. `--store` takes "
        "precedence.",
        "A server needs the extra ullage[postgres]. Put its password into PGPASSWORD or ~/.pgpass, not here.",
        most=2_000,
        word="default",
    ),
    # The shell
    KeyRow(
        "shell.status",
        "line",
        "{model} {gauge} {ctx_used}/{ctx_max} {ctx_percent} {cost} {cap} {mode}",
        "Text below the prompt. {session_cost}, {cwd} and {git} are also available.",
        "{git} reads the name of the branch before each prompt, without running a program.",
        most=500,
    ),
    KeyRow(
        "shell.confirm",
        "choice",
        "always",
        'Suggested commands that need your yes. "destructive": destructive and unknown commands, and those '
        'that send something out. "writes": also commands that write. "always": all commands.',
        "Other commands run at once. Destructive commands always need your yes.",
        choices=CONFIRM,
        overlay="stricter",
    ),
    KeyRow(
        "shell.history",
        "whole",
        10_000,
        "Number of input lines that are saved for later sessions. 0 saves none.",
        "The lines are in a file that only you can read.",
        most=1_000_000,
        overlay="lower",
    ),
    KeyRow(
        "shell.startup",
        "line",
        None,
        "A file of bash commands that the shell's bash runs after ~/.bashrc, for example aliases.",
        "If it does not end within ten seconds, bash starts without it and without ~/.bashrc.",
        most=2_000,
        word="none",
        example='"~/.config/ullage/startup.bash"',
    ),
    KeyRow(
        "shell.follow_up",
        "whole",
        8,
        "How often the model goes on by itself after you let its commands run: it gets their output and "
        "answers again. 0 waits for your next question.",
        "A request each time. Ctrl-C or an empty line stops it.",
        most=1_000,
        overlay="lower",
    ),
    KeyRow(
        "shell.mask_secrets",
        "flag",
        True,
        "If true, keys, tokens and passwords in outputs, files and piped input are masked for the model.",
        "If false, the model's provider gets them.",
    ),
    # Goal mode
    KeyRow(
        "goal.max_steps",
        "whole",
        20,
        "Maximum number of steps of a goal.",
        "Each step makes at least one request.",
        least=1,
        most=10_000,
        overlay="lower",
    ),
    KeyRow(
        "goal.max_tokens",
        "whole",
        200_000,
        "Maximum number of tokens, input and output, that a goal may use.",
        "The price of these tokens.",
        least=1,
        most=10**12,
        word="none",
        overlay="lower",
    ),
    KeyRow(
        "goal.max_dollars",
        "dollars",
        Decimal(1),
        "Maximum cost of a goal, in dollars.",
        "Up to this amount for each goal.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    KeyRow(
        "goal.max_minutes",
        "whole",
        30,
        "Longest time of a goal, in minutes.",
        "You wait up to this long for a goal.",
        least=1,
        most=100_000,
        word="none",
        overlay="lower",
    ),
    *MCP_ROWS,
)

SECTIONS: Mapping[str, str] = {
    "context": "The part of the conversation that is sent.",
    "context.compress": "The short form of the conversation for small models.",
    "tokenize": "The counting of tokens.",
    "routing.system_prompts": "A system prompt for each category of turns.",
    "routing.models": "A model for each category of turns.",
    "routing.rules": "Words that choose the category of a question.",
    "memory": "The memory, see `ullage memory`.",
    "project": "The list of the project's files.",
    "cost": "Warnings, and caps that are checked before money is spent.",
    "store": "The place of sessions, costs and keys.",
    "models": "Your models, by names that you choose.",
    "shell": "The shell.",
    "goal": "The limits of a goal.",
    "mcp": "MCP servers, by names that you choose.",
}
"""The tables of a file in their order, each with a sentence about it."""


def find(path: tuple[str, ...]) -> KeyRow | None:
    """Returns the row of a key, such as `models.<name>.window` for `models.fast.window`; None if unknown."""
    there = _at(path)
    return there if isinstance(there, KeyRow) else None


def below(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of the keys in a table, in order; an empty tuple if the table is unknown."""
    there = _at(path)
    return tuple(there) if isinstance(there, dict) else ()


def _at(path: tuple[str, ...]) -> KeyRow | dict[str, Any] | None:
    there: KeyRow | dict[str, Any] | None = _tree()
    for part in path:
        if not isinstance(there, dict):
            return None
        only = next(iter(there))
        there = there[only] if only.startswith("<") else there.get(part)
    return there


@cache
def _tree() -> dict[str, Any]:
    """Returns the rows as nested tables, as in a file."""
    tree: dict[str, Any] = {}
    for row in ROWS:
        *tables, key = row.path
        there = tree
        for part in tables:
            there = there.setdefault(part, {})
        there[key] = row
    return tree


def variables() -> Iterator[tuple[str, KeyRow]]:
    """Yields the environment variables, each with the key that it sets."""
    for row in ROWS:
        if row.variable is not None:
            yield row.variable, row
