"""The keys of the tables whose names the user chooses: models and MCP servers."""

from __future__ import annotations

from ullage.config.key_row import MOST_DOLLARS, MOST_TOKENS, KeyRow

APIS = ("openai.chat", "openai.responses", "anthropic.messages", "ollama.chat")
_PRICED = "Caps and costs are computed with it: if it is too low, you spend more than you see."

MODEL_ROWS: tuple[KeyRow, ...] = (
    KeyRow(
        "models.<name>.endpoint",
        "endpoint",
        None,
        "A provider's name (see `ullage model list`) or a server's address. \"auto\" derives it from the "
        "model's name.",
        "Your conversations are sent there.",
        word="auto",
        example='endpoint = "https://api.openai.com/v1"',
    ),
    KeyRow(
        "models.<name>.model",
        "name",
        None,
        'The provider\'s name for the model. "auto" is the name of the table.',
        "The provider charges its price.",
        word="auto",
        example='model = "gpt-4o"',
    ),
    KeyRow(
        "models.<name>.api",
        "choice",
        None,
        'The API of the server. "auto" is the API of the provider, or openai.chat.',
        "Nothing.",
        word="auto",
        choices=APIS,
        example='api = "openai.chat"',
    ),
    KeyRow(
        "models.<name>.key",
        "reference",
        None,
        "A reference to the key, never the key itself: env:NAME, or file:PATH, which only you may read.",
        "Anyone with the key can spend your money. The key is sent to this endpoint only.",
        word="auto",
        example='key = "env:OPENAI_API_KEY"',
    ),
    KeyRow(
        "models.<name>.window",
        "whole",
        None,
        'The context window in tokens. "auto" asks the server or the table of models.',
        "This value overrides all others. If it is larger than the server's, long requests fail.",
        least=2,
        most=MOST_TOKENS,
        word="auto",
        example="window = 128_000",
    ),
    KeyRow(
        "models.<name>.local_compress",
        "flag",
        False,
        "If true, the model gets a short form of the conversation. See context.compress.",
        "The model does not see the rest of the conversation.",
        example="local_compress = false",
    ),
    KeyRow(
        "models.<name>.use_tool_role",
        "flag",
        True,
        "If true, tool results have the role `tool`. If false, tool calls and results are sent as texts, for "
        "a model whose template has no such role.",
        "If false, a few more tokens for each call.",
        example="use_tool_role = true",
    ),
    *(
        KeyRow(
            f"models.<name>.prices.{part}",
            "dollars",
            None,
            f"Price in dollars of a million tokens of {words}.",
            _PRICED,
            most=MOST_DOLLARS,
            word="unknown",
            example=f"prices.{part} = {price}",
        )
        for part, words, price in (
            ("input", "input. If you set any price, the table of models is not used", "2.50"),
            ("output", "output", "10.00"),
            ("cached_read", "input that is read from the provider's cache; by default as input", "1.25"),
            ("cache_write", "input that is written to the provider's cache; by default as input", "2.50"),
            ("reasoning", "reasoning; by default as output", "10.00"),
        )
    ),
    *(
        KeyRow(
            f"models.<name>.timeouts.{part}",
            "whole",
            seconds,
            f"Time limit in seconds {words}",
            cost,
            least=1,
            most=86_400,
            word="auto" if seconds is None else None,
            example=f"timeouts.{part} = {seconds or 180}",
        )
        for part, seconds, words, cost in (
            ("connect", 10, "for a connection to the server.", "You wait this long if the server is down."),
            (
                "first",
                120,
                "until the answer begins, for each try.",
                "A long prompt on a slow machine may need more. A cancelled try may still be charged.",
            ),
            (
                "between",
                60,
                "from one part of an answer to the next. Pings of the server do not count.",
                "You wait this long for the rest of an answer that has stopped.",
            ),
            (
                "begin",
                None,
                'until the answer begins, for all tries and pauses together. "auto" is 1.5 times first.',
                "You wait this long for a server that does not answer.",
            ),
        )
    ),
)

MCP_ROWS: tuple[KeyRow, ...] = (
    KeyRow(
        "mcp.<name>.command",
        "name",
        None,
        "Program of an MCP server. It runs on this machine under your account.",
        "It can do everything that you can do. The schemas of its tools are in every request.",
        word="none",
        example='command = "uvx"',
    ),
    KeyRow(
        "mcp.<name>.args",
        "texts",
        (),
        "Arguments of the program.",
        "Other users of the machine can see them. Do not put keys here.",
        example='args = ["mcp-server-git"]',
    ),
    KeyRow(
        "mcp.<name>.env",
        "pairs",
        {},
        "Environment variables of the program, besides the few that it needs to run. A value env:NAME is "
        "replaced by your variable NAME.",
        "The server sees these values.",
        example='env = { GITHUB_TOKEN = "env:GITHUB_TOKEN" }',
    ),
    KeyRow(
        "mcp.<name>.url",
        "url",
        None,
        "Address of an MCP server that runs elsewhere, instead of a command.",
        "The arguments that the model passes to its tools are sent there.",
        word="none",
    ),
    KeyRow(
        "mcp.<name>.headers",
        "headers",
        {},
        "Headers of each request to the address, such as Authorization. A value env:NAME is replaced by your "
        "variable NAME.",
        "The server sees these values.",
    ),
    KeyRow(
        "mcp.<name>.timeout",
        "whole",
        30,
        "Time limit in seconds, for the connection and for each call of a tool.",
        "You wait this long for a server that does not answer.",
        least=1,
        most=86_400,
        example="timeout = 30",
    ),
)
