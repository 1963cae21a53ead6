"""The table of the meta commands, and the functions that concern models, costs, tools and settings."""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ullage import tokens
from ullage.errors import ConfigurationError
from ullage.patience import patiently
from ullage.session.allowances import TOOL, forget_allowance, list_allowances
from ullage.session.preferences import ROLLING_CONTEXT
from ullage.shell import goal, question, views
from ullage.shell.answer import unfold
from ullage.shell.conversation_commands import (
    begin_new,
    change_notes,
    change_tree,
    clear_screen,
    compact_turns,
    export_turns,
    list_sessions,
    list_turns,
    recall_text,
    reset_conversation,
    resume_session,
    undo_exchange,
)
from ullage.shell.spinner import spin, waiting_for
from ullage.text import one_line, show_hidden

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ullage.shell.workplace import Workplace


PROBE = "hello world"
"""A text that the model's server counts to show that it can; used if the user gives no text."""


class MetaCommand(NamedTuple):
    """One meta command: its arguments, its help text, an example and the function that runs it."""

    usage: str
    help: str
    example: str
    run: Callable[[Workplace, str], Awaitable[None]]


async def _help(workplace: Workplace, rest: str) -> None:
    wanted = rest.lstrip(":/")
    wanted = ALIASES.get(wanted, wanted)
    if wanted:
        command_named(wanted)
    for name, command in COMMANDS.items():
        if wanted in {"", name}:
            workplace.screen.say(Text(f":{name} {command.usage}".strip()))
            workplace.screen.dim(f"    {command.help}. Example: {command.example}")


async def _model(workplace: Workplace, rest: str) -> None:
    if rest:
        await spin(workplace.screen, f"opening the model {rest}", workplace.chat.use_model(rest))
    bounds = workplace.chat.context.bounds
    name, model = one_line(workplace.chat.model.name), one_line(bounds.target.model or "?")
    workplace.screen.say(Text(f"{name} ({model}), {bounds.limit:,} input tokens"))


async def _models(workplace: Workplace, _: str) -> None:
    workplace.screen.say(views.models(workplace.chat))


async def _cost(workplace: Workplace, rest: str) -> None:
    if rest not in {"", "detail", "days", "reset"}:
        raise ConfigurationError("Use :cost, :cost days, :cost detail or :cost reset")
    if rest == "days":
        workplace.screen.say(await patiently(partial(views.days, workplace.chat, workplace.screen.width)))
        return
    if rest == "reset":
        workplace.chat.context.reset_usage()
    if rest == "detail":
        await workplace.chat.count_ahead()
    workplace.screen.say(views.cost(workplace.chat, detailed=rest == "detail"))


async def _context(workplace: Workplace, _: str) -> None:
    await workplace.chat.count_ahead()
    workplace.screen.say(views.window(workplace.chat, workplace.screen))


async def _tokenize(workplace: Workplace, rest: str) -> None:
    server, target = workplace.chat.client.counts.tokenizer, workplace.chat.context.bounds.target
    if server is not None:
        await server.learn([rest or PROBE])
    if rest and server is not None and server.knows(rest):
        workplace.screen.say(
            Text(f"{views.format_count(server.count(rest), 'token')}, counted by {server.name}")
        )
    elif rest:
        cost = tokens.counter_for(target).text(rest)
        mark = "" if cost.tokens == cost.ceiling else "~"
        workplace.screen.say(Text(f"{mark}{views.format_count(cost.tokens, 'token')}"))
        encode = getattr(tokens.get_tokenizer(target.model), "encode", None)
        if encode is not None:
            workplace.screen.dim(" ".join(map(str, encode(rest)[:200])))
    if workplace.chat.client.counts.use_endpoint or not rest:
        workplace.screen.dim(views.endpoint_counts(workplace.chat.client))


async def _rolling(workplace: Workplace, rest: str) -> None:
    if rest not in {"", "on", "off"}:
        raise ConfigurationError("Use :rolling-context on or :rolling-context off")
    if rest:
        await patiently(partial(ROLLING_CONTEXT.set, workplace.chat.kept.preferences, rest == "on"))
        workplace.chat.context.set_trimming(rest == "on")
    workplace.screen.dim(
        "older turns are trimmed if a request does not fit"
        if workplace.chat.context.bounds.rolling
        else "nothing is trimmed; a request that does not fit is an error"
    )


async def _mcp(workplace: Workplace, rest: str) -> None:
    action, _, more = rest.partition(" ")
    name, _, target = more.partition(" ")
    if action == "connect" and name:
        try:
            async with waiting_for(workplace.screen, f"connecting to the MCP server {name}"):
                await workplace.tools.connect(name, target, workplace.runner.environ)
        finally:
            workplace.tools.tell_start(name)
        if not workplace.tools.is_connected(name):
            workplace.input.code = 1
            return
    elif action == "disconnect" and name:
        gone = await workplace.tools.disconnect(name)
        workplace.screen.dim(f"{name} is disconnected" if gone else f"no server named {name} is connected")
    elif action not in {"", "list"}:
        raise ConfigurationError("Use :mcp connect NAME [COMMAND|URL], :mcp disconnect NAME or :mcp list")
    lines = list(workplace.tools.lines())
    for line in lines:
        workplace.screen.say(Text(line))
    if not lines:
        workplace.screen.dim("no server is connected; :help mcp shows how to connect one")


async def _always(workplace: Workplace, rest: str) -> None:
    preferences = workplace.chat.kept.preferences
    action, _, number = rest.partition(" ")
    if action == "clear" or (action == "forget" and number.isdecimal()):
        gone = forget_allowance(preferences, int(number) if action == "forget" else None)
        for each in gone:
            if each.kind == TOOL:
                workplace.tools.forget(each.text)
            workplace.screen.dim(f"you will be asked again about {show_hidden(each.text)}")
        if not gone:
            workplace.screen.dim(_NO_ALLOWANCE if action == "clear" else _NO_NUMBER)
    elif action in {"", "list"}:
        allowances = list_allowances(preferences)
        for each in allowances:
            where = f"the server {each.origin}" if each.kind == TOOL else each.origin
            workplace.screen.say(Text(f"{each.number:>3}  {show_hidden(each.text)}  in {one_line(where)}"))
        if not allowances:
            workplace.screen.dim(_NO_ALLOWANCE)
    else:
        raise ConfigurationError("Use :always, :always forget NUMBER or :always clear")


_NO_ALLOWANCE = "you have allowed no command or tool to run without a question"
_NO_NUMBER = "no entry has that number; :always lists the entries"


async def _goal(workplace: Workplace, rest: str) -> None:
    await goal.act(workplace, rest)


async def _demo(workplace: Workplace, _: str) -> None:
    from ullage.shell.demo import run_demo  # noqa: PLC0415 - only the demonstration needs it

    await run_demo(workplace)


async def _retry(workplace: Workplace, _: str) -> None:
    await question.retry(workplace)


async def _last(workplace: Workplace, _: str) -> None:
    parts = list(unfold("".join(workplace.last.reasoning), workplace.last.results))
    for title, text in parts:
        workplace.screen.dim(title)
        workplace.screen.say(text)
    if not parts:
        workplace.screen.dim("the last answer has no reasoning and no tool results")


async def _answer(workplace: Workplace, rest: str) -> None:
    chat = workplace.chat
    if rest == "auto":
        chat.max_answer = None
    elif rest.isdecimal() and int(rest) > 0:
        chat.max_answer = int(rest)
    elif rest:
        raise ConfigurationError("Use :answer TOKENS, such as :answer 500, or :answer auto")
    most = chat.longest_answer
    workplace.screen.dim(
        "an answer may be as long as the model allows"
        if most is None
        else f"an answer may have {views.format_count(most, 'token')}"
    )


async def _quit(workplace: Workplace, _: str) -> None:
    workplace.input.over = True


COMMANDS: Mapping[str, MetaCommand] = {
    "help": MetaCommand("[NAME]", "list the commands, or explain one", ":help context", _help),
    "model": MetaCommand(
        "[NAME]", "show the current model, or choose another", ":model ollama/qwen2.5:7b", _model
    ),
    "models": MetaCommand("", "list the models and the question categories of each", ":models", _models),
    "context": MetaCommand("", "show what fills the window, and the next trim", ":context", _context),
    "cost": MetaCommand(
        "[detail|days|reset]", "show the cost of the session or of each day", ":cost detail", _cost
    ),
    "history": MetaCommand("", "list all turns and mark those not sent whole", ":history", list_turns),
    "recall": MetaCommand(
        "HANDLE|WORDS",
        "search all turns, or show a removed text",
        ":recall port of the database",
        recall_text,
    ),
    "memory": MetaCommand(
        "add [KIND: ]TEXT|list|forget N|clear",
        "add, list or remove notes for every conversation",
        ":memory add preference: answer in metric units",
        change_notes,
    ),
    "tree": MetaCommand(
        "[DEPTH]|refresh|off",
        "send the list of the project's files, or stop that",
        ":tree 2",
        change_tree,
    ),
    "mcp": MetaCommand(
        "connect NAME [COMMAND|URL]|disconnect NAME|list",
        "connect servers whose tools the model may call",
        ":mcp connect files npx -y @modelcontextprotocol/server-filesystem .",
        _mcp,
    ),
    "always": MetaCommand(
        "[list]|forget N|clear",
        "list or remove what may run without a question",
        ":always forget 2",
        _always,
    ),
    "tokenize": MetaCommand(
        "[TEXT]",
        "count the tokens of a text, and show who counts them",
        ":tokenize hello world",
        _tokenize,
    ),
    "rolling-context": MetaCommand(
        "on|off", "turn the trimming of older turns on or off", ":rolling-context off", _rolling
    ),
    "compact": MetaCommand("", "trim the conversation now", ":compact", compact_turns),
    "sessions": MetaCommand("", "list the stored conversations", ":sessions", list_sessions),
    "resume": MetaCommand(
        "[SESSION]",
        "continue another conversation, which you can pick from a list",
        ":resume 2f6c",
        resume_session,
    ),
    "new": MetaCommand("", "start a new conversation and keep this one", ":new", begin_new),
    "clear": MetaCommand("", "clear the screen and start a new conversation", ":clear", clear_screen),
    "retry": MetaCommand("", "ask the last question again", ":retry", _retry),
    "last": MetaCommand("", "show reasoning and tool results of the last answer", ":last", _last),
    "answer": MetaCommand(
        "[TOKENS|auto]", "show or set the most tokens of an answer, in this shell", ":answer 500", _answer
    ),
    "undo": MetaCommand("", "take back the last exchange, or a :reset", ":undo", undo_exchange),
    "export": MetaCommand(
        "FILE.md|FILE.json",
        "write the conversation to a new file",
        ":export talk.md",
        export_turns,
    ),
    "goal": MetaCommand(
        "[TEXT|continue|stop]",
        "let the model work on a goal within configured bounds",
        ":goal make the tests pass",
        _goal,
    ),
    "norris": MetaCommand("[TEXT|continue|stop]", "the same as :goal", ":norris tidy up the imports", _goal),
    "demo": MetaCommand("", "show the main features in a minute, with a scripted model", ":demo", _demo),
    "reset": MetaCommand("", "empty this conversation", ":reset", reset_conversation),
    "quit": MetaCommand("", "leave the shell", ":quit", _quit),
}
"""Name → command. `/name` works like `:name`."""

ALIASES: Mapping[str, str] = {"q": "quit", "exit": "quit", "h": "help"}
"""Other name → name of the command."""
BARE: Mapping[str, str] = {"help": "help", "quit": "quit"}
"""Whole line without a colon → name of the command that it means."""


def command_named(name: str) -> MetaCommand:
    """Returns the command of this name; raises ConfigurationError with the nearest name if it is unknown."""
    if ALIASES.get(name, name) in COMMANDS:
        return COMMANDS[ALIASES.get(name, name)]
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    advice = f"Did you mean :{near[0]}? :help lists all commands" if near else "Try :help"
    raise ConfigurationError(f"Unknown command :{name}. {advice}")
