"""The meta commands of the shell: a table of names, each with its help, an example and its function."""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ullage import tokens
from ullage.context.search import explain_nothing, read_handle, read_query
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.fitting.pieces import HANDLE_LENGTH
from ullage.patience import patiently
from ullage.session.allowances import TOOL, forget_allowance, list_allowances
from ullage.session.preferences import ROLLING_CONTEXT
from ullage.session.saved_talks import list_talks
from ullage.shell import goal, question, views
from ullage.shell.answer import unfold
from ullage.shell.project_tree import leave_out_tree, send_tree
from ullage.shell.resumption import PICK, choose, draw_talks, tell_resumed
from ullage.shell.screen import NO, YES
from ullage.shell.spinner import spin, waiting_for
from ullage.text import one_line, show_hidden
from ullage.window_chart import draw_hit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ullage.shell.workplace import Workplace


PROBE = "hello world"
"""A text that the model's server counts to show that it can; used if the user gives no text."""

SESSIONS, LISTED = 20, 200
"""The most conversations that `:sessions` shows, and among how many it looks for those with a turn."""
RECALLED = 5
"""The most texts that a search with `:recall` shows."""


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


async def _history(workplace: Workplace, _: str) -> None:
    with suppress(ContextOverflowError):  # a conversation that cannot be sent can still be shown
        await workplace.chat.context.prepare()
    workplace.screen.say(await patiently(partial(views.history, workplace.chat, workplace.screen.width)))


async def _reset(workplace: Workplace, _: str) -> None:
    turns = len(workplace.chat.context)
    if not turns or _confirms(workplace, f"empty this conversation of {_plural(turns, 'turn')}?", "empty it"):
        await patiently(workplace.chat.context.reset)
        workplace.screen.dim(
            "the conversation is empty now (:undo brings it back); memory, project tree and costs are kept"
        )


def _confirms(workplace: Workplace, question: str, label: str) -> bool:
    """Returns True if the user confirms; Enter keeps everything as it is.

    Without a terminal it returns True, because the line stands in a script and is no slip of the finger.
    """
    screen = workplace.screen
    if not screen.is_interactive:
        return True
    if screen.ask(question, {YES: label, NO: "keep it"}, refuse=NO, default=NO) == YES:
        return True
    screen.dim("nothing was changed")
    return False


async def _recall(workplace: Workplace, rest: str) -> None:
    if not rest:
        raise ConfigurationError("Use :recall HANDLE or :recall WORDS")
    whole = workplace.secrets.recall(rest)
    if whole is not None:
        workplace.screen.say(whole)
        return
    found = await patiently(partial(workplace.chat.context.search, rest, RECALLED))
    handle = read_handle(rest)
    if handle and found and found[0].handle.startswith(handle):
        workplace.screen.say(found[0].text)  # say() makes a string harmless
        return
    sought = read_query(rest).stems
    for each in found:
        for line in draw_hit(each, sought, workplace.screen.width, handle=HANDLE_LENGTH):
            workplace.screen.say(line)
    if not found:
        workplace.screen.dim(explain_nothing(rest))


async def _memory(workplace: Workplace, rest: str) -> None:
    action, _, text = rest.partition(" ")
    context = workplace.chat.context
    if action == "add" and text:
        kind, colon, content = text.partition(": ")
        has_kind = colon and " " not in kind
        note = (content, kind) if has_kind else (text, "")
        item = await patiently(partial(context.remember, *note))
        workplace.screen.dim(f"remembered as {item.number}")
    elif action == "forget" and text.isdecimal():
        gone = await patiently(partial(context.forget, int(text)))
        workplace.screen.dim(
            "forgotten" if gone else f"no note has the number {text}; :memory lists the notes"
        )
    elif action == "clear":
        notes = context.memory
        if notes and not _confirms(workplace, f"forget {_plural(len(notes), 'note')} for good?", "forget"):
            return
        for item in notes:
            await patiently(partial(context.forget, item.number))
        workplace.screen.dim("all notes are forgotten")
    elif action in {"", "list"}:
        for item in context.memory:
            workplace.screen.say(
                Text(f"{item.number:>3}  {one_line(item.kind) or '?'}: {one_line(item.content)}")
            )
    else:
        raise ConfigurationError(
            "Use :memory add [KIND: ]TEXT, :memory list, :memory forget NUMBER or :memory clear"
        )


async def _tree(workplace: Workplace, rest: str) -> None:
    context, preferences, folder = (
        workplace.chat.context,
        workplace.chat.kept.preferences,
        workplace.runner.cwd,
    )
    if rest == "off":
        await patiently(partial(leave_out_tree, context, preferences, folder))
        workplace.screen.dim("the project tree is no longer sent")
        return
    if rest not in {"", "refresh"} and not rest.isdecimal():
        raise ConfigurationError("Use :tree [DEPTH], :tree refresh or :tree off")
    depth = int(rest) if rest.isdecimal() else None
    settings = workplace.chat.settings.project
    workplace.screen.say(
        Text(await patiently(partial(send_tree, context, preferences, settings, folder, depth)))
    )


async def _tokenize(workplace: Workplace, rest: str) -> None:
    server, target = workplace.chat.client.counts.tokenizer, workplace.chat.context.bounds.target
    if server is not None:
        await server.learn([rest or PROBE])
    if rest and server is not None and server.knows(rest):
        workplace.screen.say(Text(f"{_plural(server.count(rest), 'token')}, counted by {server.name}"))
    elif rest:
        cost = tokens.counter_for(target).text(rest)
        mark = "" if cost.tokens == cost.ceiling else "~"
        workplace.screen.say(Text(f"{mark}{_plural(cost.tokens, 'token')}"))
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


async def _compact(workplace: Workplace, _: str) -> None:
    saved = await patiently(workplace.chat.context.compact)
    workplace.screen.dim(
        f"{_plural(saved, 'token')} saved; :history marks the trimmed turns, :recall shows their text"
        if saved
        else "nothing can be trimmed yet"
    )


async def _sessions(workplace: Workplace, _: str) -> None:
    found = await patiently(partial(list_talks, workplace.chat.kept, LISTED))
    current = workplace.chat.context.session
    talks = [each for each in found if each.turns != 0 or each.id == current][:SESSIONS]
    names = [f"{'*' if each.id == current else ' '} {one_line(each.id)[:12]:<12}" for each in talks]
    for row in draw_talks(talks, names, workplace.screen.width):
        workplace.screen.say(row)


async def _new(workplace: Workplace, _: str) -> None:
    workplace.begin_anew()
    workplace.screen.dim("a new conversation begins; :sessions lists the previous one")


async def _resume(workplace: Workplace, rest: str) -> None:
    chat, screen = workplace.chat, workplace.screen
    wanted = rest or (PICK if screen.is_interactive else "")
    found = choose(chat.kept, screen, chat.cwd, wanted, besides=chat.context.session)
    if found is None:
        screen.dim("this conversation goes on")
        return
    workplace.resume(found)
    tell_resumed(chat, screen)
    goal.tell_pending(workplace.chat, workplace.screen)


async def _clear(workplace: Workplace, _: str) -> None:
    workplace.begin_anew()
    workplace.screen.clear()
    workplace.screen.dim("a new conversation begins; :resume continues the previous one")


async def _undo(workplace: Workplace, _: str) -> None:
    context = workplace.chat.context
    before = len(context)
    gone = await patiently(context.undo)
    if len(context) > before:
        workplace.screen.dim(f"the reset is taken back: {_plural(len(context), 'turn')}")
    else:
        workplace.screen.dim(
            f"{_plural(len(gone), 'turn')} taken back" if gone else "there is nothing to take back"
        )


async def _export(workplace: Workplace, rest: str) -> None:
    import json  # noqa: PLC0415 - only an export needs it

    if Path(rest).suffix not in {".md", ".json"}:
        raise ConfigurationError("Use :export FILE.md or :export FILE.json")
    context = workplace.chat.context
    written = (
        json.dumps(context.turns, indent=2)
        if Path(rest).suffix == ".json"
        else views.as_markdown(context.turns)
    )
    try:
        path = (workplace.runner.cwd / Path(rest).expanduser()).resolve()
        # Like the store, the file contains the whole conversation, so only its owner may read it.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a descriptor
            file.write(written)
    except FileExistsError as error:
        raise ConfigurationError(f"{rest} already exists: choose another name or remove the file") from error
    except OSError as error:
        raise ConfigurationError(f"{rest} cannot be written: {error.strerror}") from error
    except (ValueError, RuntimeError) as error:  # an invalid character, or the home of an unknown user
        raise ConfigurationError(f"{one_line(rest)} is not a valid file name: {error}") from error
    workplace.screen.dim(f"{_plural(len(context), 'turn')} written to {path.name}")


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
        else f"an answer may have {_plural(most, 'token')}"
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
    "history": MetaCommand("", "list all turns and mark those not sent whole", ":history", _history),
    "recall": MetaCommand(
        "HANDLE|WORDS", "search all turns, or show a removed text", ":recall port of the database", _recall
    ),
    "memory": MetaCommand(
        "add [KIND: ]TEXT|list|forget N|clear",
        "add, list or remove notes for every conversation",
        ":memory add preference: answer in metric units",
        _memory,
    ),
    "tree": MetaCommand(
        "[DEPTH]|refresh|off", "send the list of the project's files, or stop that", ":tree 2", _tree
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
    "compact": MetaCommand("", "trim the conversation now", ":compact", _compact),
    "sessions": MetaCommand("", "list the stored conversations", ":sessions", _sessions),
    "resume": MetaCommand(
        "[SESSION]", "continue another conversation, which you can pick from a list", ":resume 2f6c", _resume
    ),
    "new": MetaCommand("", "start a new conversation and keep this one", ":new", _new),
    "clear": MetaCommand("", "clear the screen and start a new conversation", ":clear", _clear),
    "retry": MetaCommand("", "ask the last question again", ":retry", _retry),
    "last": MetaCommand("", "show reasoning and tool results of the last answer", ":last", _last),
    "answer": MetaCommand(
        "[TOKENS|auto]", "show or set the most tokens of an answer, in this shell", ":answer 500", _answer
    ),
    "undo": MetaCommand("", "take back the last exchange, or a :reset", ":undo", _undo),
    "export": MetaCommand(
        "FILE.md|FILE.json", "write the conversation to a new file", ":export talk.md", _export
    ),
    "goal": MetaCommand(
        "[TEXT|continue|stop]",
        "let the model work on a goal within configured bounds",
        ":goal make the tests pass",
        _goal,
    ),
    "norris": MetaCommand("[TEXT|continue|stop]", "the same as :goal", ":norris tidy up the imports", _goal),
    "demo": MetaCommand("", "show the main features in a minute, with a scripted model", ":demo", _demo),
    "reset": MetaCommand("", "empty this conversation", ":reset", _reset),
    "quit": MetaCommand("", "leave the shell", ":quit", _quit),
}
"""Name → command. `/name` works like `:name`."""

ALIASES: Mapping[str, str] = {"q": "quit", "exit": "quit", "h": "help"}
"""Other name → name of the command."""
BARE: Mapping[str, str] = {"help": "help", "quit": "quit"}
"""Whole line without a colon → name of the command that it means."""


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def command_named(name: str) -> MetaCommand:
    """Returns the command of this name; raises ConfigurationError with the nearest name if it is unknown."""
    if ALIASES.get(name, name) in COMMANDS:
        return COMMANDS[ALIASES.get(name, name)]
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    advice = f"Did you mean :{near[0]}? :help lists all commands" if near else "Try :help"
    raise ConfigurationError(f"Unknown command :{name}. {advice}")
