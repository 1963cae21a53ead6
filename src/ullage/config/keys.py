"""Every key of the configuration, as a row: its name, what it may hold, what it does and what it costs.

Reading, the environment, the project's overlay, `ullage config init` and the documentation all go by this
table; a key that is not here does not exist.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ullage.classes import GOAL, MAIN, SUMMARIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

APIS = ("openai.chat", "openai.responses", "anthropic.messages", "ollama.chat")
CONFIRM = ("destructive", "writes", "always")
"""What is asked before it runs, from the least to the most."""
FIXED_CLASSES: Mapping[str, str] = {
    MAIN: "ordinary turns are of this class",
    GOAL: "the turns of a goal are of this class",
    SUMMARIZE: "summaries of what leaves the window are of this class",
}
"""Classes of turns that no words choose, each with what belongs to it."""
MOST_TOKENS = 100_000_000
MOST_DOLLARS = 1_000_000


class Row(NamedTuple):
    """One key."""

    name: str
    """With dots; a part in angle brackets is a name of the user's own."""
    kind: str
    """One of `kinds.KINDS`."""
    default: Any
    what: str
    """What it does, as a sentence."""
    cost: str
    """What it costs, as a sentence."""
    least: int = 0
    most: int | None = None
    """The range of a number, or of a text's length."""
    word: str | None = None
    """The word that stands for None in a file, which has no other way to write it."""
    choices: tuple[str, ...] = ()
    overlay: str = "no"
    """What a project's file may do with it: one of `overlay.RULES`."""
    example: str = ""
    """How it is written in an example, as TOML, where its default says little."""

    @property
    def path(self) -> tuple[str, ...]:
        """The name in its parts."""
        return tuple(self.name.split("."))

    @property
    def is_named(self) -> bool:
        """Whether a part of it is a name of the user's own."""
        return "<" in self.name

    @property
    def variable(self) -> str | None:
        """The environment variable that sets it; None where none can."""
        return None if self.is_named else f"ULLAGE_{self.name.upper().replace('.', '_')}"


_PRICED = "Caps and bills go by it: one that is too low lets more be spent than you think."

ROWS: tuple[Row, ...] = (
    Row(
        "model",
        "model",
        "embedded",
        "The model that answers: one of [models], or as `ullage model use` takes it.",
        "The embedded one is free and small; any other is paid for as its provider says.",
        overlay="own",
    ),
    # The conversation
    Row(
        "context.max_turns",
        "whole",
        40,
        "The most turns that are sent; older ones leave for the digest.",
        "More turns are more tokens in every request.",
        least=1,
        most=1_000_000,
        word="none",
        overlay="any",
    ),
    Row(
        "context.token_budget",
        "whole",
        4_096,
        'The most input tokens of a request, where the window allows as many; "none" for all of the window.',
        "Every request costs up to this many input tokens.",
        least=1,
        most=MOST_TOKENS,
        word="none",
        overlay="lower",
    ),
    Row(
        "context.reserved_output",
        "whole",
        None,
        'What of the window is kept for the answer; "auto" is the model\'s longest, at most a quarter.',
        "What is reserved is not there for the conversation, and a cap counts it as spent beforehand.",
        least=1,
        most=MOST_TOKENS,
        word="auto",
        overlay="any",
    ),
    Row(
        "context.max_summary_chars",
        "whole",
        2_000,
        "The longest summary of what was taken out.",
        "About a token for four characters in every request, and a call for each summary.",
        least=1,
        most=1_000_000,
        overlay="any",
    ),
    Row(
        "context.rolling",
        "flag",
        True,
        "Whether old turns are trimmed; off, a request that is too long is an error.",
        "Off, the conversation ends where the window does.",
        overlay="any",
    ),
    Row(
        "context.compress.keep_turns",
        "whole",
        2,
        "The newest turns that a model with local_compress gets.",
        "A small model that gets more answers more slowly; one that gets fewer knows less.",
        least=1,
        most=10_000,
        overlay="any",
    ),
    Row(
        "context.compress.max_turn_chars",
        "whole",
        800,
        "The most characters of each of these turns: its end is kept.",
        "The same.",
        least=1,
        most=10_000_000,
        overlay="any",
    ),
    Row(
        "tokenize.use_endpoint",
        "flag",
        False,
        "Whether the model's server is asked to count, where it can.",
        "A request more for each count, with the text in it.",
        overlay="off",
    ),
    # Routing
    Row(
        "routing.system_prompts.<class>",
        "text",
        None,
        "The system prompt of the turns of a class, in the place of the usual one. Also of `main`, ordinary "
        "turns; `goal`, those of a goal; and `summarize`, where that has a model.",
        "Its tokens in each of these requests; a change of class starts a provider's prompt cache anew.",
        most=100_000,
        overlay="any",
        example='code = "You write short programs and explain nothing."',
    ),
    Row(
        "routing.models.<class>",
        "model",
        None,
        "The model that answers the turns of a class. That of `goal` answers the turns of a goal; that of "
        "`summarize` writes summaries of what leaves the window, which nothing else does.",
        "The model that it names is paid for; `summarize` is a call more when turns leave the window.",
        overlay="own",
        example='code = "cloud"',
    ),
    Row(
        "routing.rules.<class>",
        "phrases",
        None,
        "The words and phrases that make a question one of this class: one of them stands in it, as whole "
        "words, in any case. Classes are tried in the order of the file; @CLASS in front of a question "
        "goes before all of them.",
        "A question with such a word goes to the model of the class, whatever else it is about.",
        most=1_000,
        overlay="any",
        example='code = ["refactor", "write a test"]',
    ),
    Row(
        "memory.inject_max_chars",
        "whole",
        2_000,
        "The most characters of what is remembered that a request carries.",
        "About a token for four characters in every request.",
        most=1_000_000,
        overlay="lower",
    ),
    Row(
        "project.auto_tree",
        "flag",
        False,
        "Whether the files of the project are listed for the model when the shell starts.",
        "A look at the folders at the start, and project.max_chars in every request.",
        overlay="any",
    ),
    Row(
        "project.depth",
        "whole",
        3,
        "How many levels of folders the list shows.",
        "Deeper lists take longer to make; project.max_chars bounds them all the same.",
        most=100,
        overlay="any",
    ),
    Row(
        "project.max_chars",
        "whole",
        2_000,
        "The longest list of files.",
        "About a token for three characters in every request.",
        least=200,
        most=1_000_000,
        overlay="lower",
    ),
    # Money
    Row(
        "cost.warn_at_dollars",
        "dollars",
        None,
        "Warns once when a session has cost as much.",
        "Nothing.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    Row(
        "cost.warn_at_tokens",
        "whole",
        None,
        "Warns once when a session has used as many tokens.",
        "Nothing.",
        most=10**12,
        word="none",
        overlay="lower",
    ),
    Row(
        "cost.cap_at_dollars",
        "dollars",
        None,
        "Refuses a call that could bring the session above this, before it is sent.",
        "Near the cap, calls are refused by their worst case; a model without a known price is refused.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    Row(
        "cost.cap_at_dollars_a_day",
        "dollars",
        None,
        "The same for all sessions of a day, which begins at midnight UTC.",
        "The same.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    Row(
        "cost.cap_at_dollars_a_project",
        "dollars",
        None,
        "The same for all sessions of a project, for ever.",
        "The same.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    # Models
    Row(
        "models.<name>.endpoint",
        "endpoint",
        None,
        "A provider's name (`ullage model list`) or a server's address; else the model's name tells it.",
        "What you send goes there.",
        word="auto",
        example='endpoint = "https://api.openai.com/v1"',
    ),
    Row(
        "models.<name>.model",
        "name",
        None,
        "What the provider calls the model; else the name of the table.",
        "What its provider charges.",
        word="auto",
        example='model = "gpt-4o"',
    ),
    Row(
        "models.<name>.api",
        "choice",
        None,
        "How the server is spoken to; else as its provider is, or openai.chat.",
        "Nothing.",
        word="auto",
        choices=APIS,
        example='api = "openai.chat"',
    ),
    Row(
        "models.<name>.key",
        "reference",
        None,
        "Where the key is, never the key itself: env:NAME, or file:PATH that only you can read.",
        "Whoever has the key spends your money: it is sent to this endpoint and nowhere else.",
        word="auto",
        example='key = "env:OPENAI_API_KEY"',
    ),
    Row(
        "models.<name>.window",
        "whole",
        None,
        "The context window in tokens; else the server or the table of models tells it.",
        "One that is larger than the server's makes long requests fail; it goes before all others.",
        least=2,
        most=MOST_TOKENS,
        word="auto",
        example="window = 128_000",
    ),
    Row(
        "models.<name>.local_compress",
        "flag",
        False,
        "Whether it gets a short form of the conversation, see context.compress.",
        "It does not see what is left out.",
        example="local_compress = false",
    ),
    Row(
        "models.<name>.use_tool_role",
        "flag",
        True,
        "Whether its template takes the role `tool`; else calls and results are sent as texts.",
        "Off, a few tokens more for each call.",
        example="use_tool_role = true",
    ),
    *(
        Row(
            f"models.<name>.prices.{part}",
            "dollars",
            None,
            f"Dollars a million tokens of {words}.",
            _PRICED,
            most=MOST_DOLLARS,
            word="unknown",
            example=f"prices.{part} = {price}",
        )
        for part, words, price in (
            ("input", "input; with any price here, none is taken from the table of models", "2.50"),
            ("output", "output", "10.00"),
            ("cached_read", "input that is read from the provider's cache, else as input", "1.25"),
            ("cache_write", "input that is written to the provider's cache, else as input", "2.50"),
            ("reasoning", "reasoning, else as output", "10.00"),
        )
    ),
    # The shell
    Row(
        "shell.status",
        "line",
        "{model} {ctx_used}/{ctx_max} {ctx_percent} {cost}",
        "What the prompt shows; also {session_cost}, {cwd} and {git}.",
        "{git} reads the name of the branch before each prompt; no program is run.",
        most=500,
    ),
    Row(
        "shell.confirm",
        "choice",
        "always",
        "Which suggested commands are asked about: destructive and unknown ones, all that write, or all.",
        "What is not asked about runs at once; destructive ones are asked about in any case.",
        choices=CONFIRM,
        overlay="stricter",
    ),
    Row(
        "shell.history",
        "whole",
        10_000,
        "How many lines you typed are kept for the next time; 0 for none.",
        "They lie in a file that only you can read.",
        most=1_000_000,
        overlay="lower",
    ),
    # Goal mode
    Row(
        "goal.max_steps",
        "whole",
        20,
        "The most steps of a goal.",
        "A step is a request at least.",
        least=1,
        most=10_000,
        overlay="lower",
    ),
    Row(
        "goal.max_tokens",
        "whole",
        200_000,
        "The most tokens, input and output, that a goal may use.",
        "Their price.",
        least=1,
        most=10**12,
        word="none",
        overlay="lower",
    ),
    Row(
        "goal.max_dollars",
        "dollars",
        Decimal(1),
        "The most that a goal may cost.",
        "So much.",
        most=MOST_DOLLARS,
        word="none",
        overlay="lower",
    ),
    Row(
        "goal.max_minutes",
        "whole",
        30,
        "The longest that a goal may take.",
        "Your time.",
        least=1,
        most=100_000,
        word="none",
        overlay="lower",
    ),
    # MCP
    Row(
        "mcp.<name>.command",
        "name",
        None,
        "The program of an MCP server that is run here, in your name.",
        "It may do whatever you may; the schemas of its tools are in every request.",
        word="none",
        example='command = "uvx"',
    ),
    Row(
        "mcp.<name>.args",
        "texts",
        (),
        "Its arguments.",
        "Other users of the machine can see them: keep keys out.",
        example='args = ["mcp-server-git"]',
    ),
    Row(
        "mcp.<name>.env",
        "pairs",
        {},
        "Its environment, beside what it needs to run; a value env:NAME is taken from yours.",
        "What is given here the server knows.",
        example='env = { GITHUB_TOKEN = "env:GITHUB_TOKEN" }',
    ),
    Row(
        "mcp.<name>.url",
        "url",
        None,
        "The address of an MCP server that runs elsewhere, in the place of a command.",
        "What the model gives to its tools goes there.",
        word="none",
    ),
    Row(
        "mcp.<name>.headers",
        "headers",
        {},
        "Headers of each request to its address, such as Authorization; a value env:NAME is taken, whole, "
        "from your environment.",
        "What is given here the server knows.",
    ),
    Row(
        "mcp.<name>.timeout",
        "whole",
        30,
        "Seconds that connecting to it may take, and each call of its tools.",
        "So long you wait for one that does not answer.",
        least=1,
        most=86_400,
        example="timeout = 30",
    ),
)

SECTIONS: Mapping[str, str] = {
    "context": "What is sent of the conversation.",
    "context.compress": "The short form for small models.",
    "tokenize": "How tokens are counted.",
    "routing.system_prompts": "Prompts by the class of a turn.",
    "routing.models": "Models by the class of a turn.",
    "routing.rules": "Which questions belong to which class.",
    "memory": "What is remembered.",
    "project": "The files of the project.",
    "cost": "Warnings, and caps that are checked before money is spent.",
    "models": "Models by the names that you give them.",
    "shell": "The shell.",
    "goal": "What a goal may use before it stops.",
    "mcp": "MCP servers by the names that you give them.",
}
"""The tables of a file in their order, each with a line about it."""


def find(path: tuple[str, ...]) -> Row | None:
    """The row of a key, whose own names stand for the parts in angle brackets."""
    there = _at(path)
    return there if isinstance(there, Row) else None


def below(path: tuple[str, ...]) -> tuple[str, ...]:
    """What may stand in a table, in order; nothing where there is no such table."""
    there = _at(path)
    return tuple(there) if isinstance(there, dict) else ()


def _at(path: tuple[str, ...]) -> Row | dict[str, Any] | None:
    there: Row | dict[str, Any] | None = _tree()
    for part in path:
        if not isinstance(there, dict):
            return None
        only = next(iter(there))
        there = there[only] if only.startswith("<") else there.get(part)
    return there


@cache
def _tree() -> dict[str, Any]:
    """The rows as a file nests them."""
    tree: dict[str, Any] = {}
    for row in ROWS:
        *tables, key = row.path
        there = tree
        for part in tables:
            there = there.setdefault(part, {})
        there[key] = row
    return tree


def variables() -> Iterator[tuple[str, Row]]:
    """The environment variables, each with the key that it sets."""
    for row in ROWS:
        if row.variable is not None:
            yield row.variable, row
