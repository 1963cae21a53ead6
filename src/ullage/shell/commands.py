"""The meta commands: a table of names, each with its help, an example and what it does."""

from __future__ import annotations

import difflib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from ullage import tokens
from ullage.drawing import clean, short
from ullage.errors import ConfigurationError, ContextOverflowError
from ullage.shell import showing, trees
from ullage.shell.desk import ROLLING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ullage.shell.loop import Shell


class Command(NamedTuple):
    """One meta command."""

    usage: str
    help: str
    example: str
    run: Callable[[Shell, str], Awaitable[None]]


async def _help(shell: Shell, rest: str) -> None:
    wanted = rest.lstrip(":/")
    if wanted:
        command_named(wanted)
    for name, command in COMMANDS.items():
        if wanted in {"", name}:
            shell.screen.say(Text(f":{name} {command.usage}".strip()))
            shell.screen.dim(f"    {command.help}; {command.example}")


async def _model(shell: Shell, rest: str) -> None:
    if rest:
        await shell.desk.use_model(rest)
    bounds = shell.desk.context.bounds
    shell.screen.say(
        Text(f"{clean(shell.desk.model.name)} ({clean(bounds.model)}), {bounds.limit:,} input tokens")
    )


async def _models(shell: Shell, _: str) -> None:
    shell.screen.say(showing.models(shell.desk))


async def _cost(shell: Shell, rest: str) -> None:
    if rest not in {"", "detail", "reset"}:
        raise ConfigurationError(":cost, :cost detail or :cost reset")
    if rest == "reset":
        shell.desk.context.reset_usage()
    shell.screen.say(showing.cost(shell.desk, detailed=rest == "detail"))


async def _context(shell: Shell, _: str) -> None:
    shell.screen.say(showing.window(shell.desk, shell.screen))


async def _history(shell: Shell, _: str) -> None:
    with suppress(ContextOverflowError):  # what cannot be sent can still be looked at
        await shell.desk.context.ready()
    shell.screen.say(showing.history(shell.desk, shell.screen.width))


async def _reset(shell: Shell, _: str) -> None:
    shell.desk.context.reset()
    shell.screen.dim("the conversation begins anew; memory, tree and bill stay")


async def _recall(shell: Shell, rest: str) -> None:
    if not rest:
        raise ConfigurationError("recall what? :recall HANDLE, or :recall WORDS")
    context = shell.desk.context
    piece = context.recall(rest) if " " not in rest else None
    if piece is not None:
        shell.screen.say(piece.text)  # a string, so that it is made harmless
        return
    found = context.search(rest)
    for each in found:
        shell.screen.say(
            Text(f"{each.handle[:8]}  {short(clean(each.text), max(20, shell.screen.width - 10))}")
        )
    if not found:
        shell.screen.dim("nothing is kept under that handle or with all of those words")


async def _memory(shell: Shell, rest: str) -> None:
    action, _, text = rest.partition(" ")
    context = shell.desk.context
    if action == "add" and text:
        kind, mark, content = text.partition(": ")
        known = mark and " " not in kind
        item = context.remember(content if known else text, kind if known else "")
        shell.screen.dim(f"remembered as {item.number}")
    elif action == "forget" and text.isdecimal():
        gone = context.forget(int(text))
        shell.screen.dim("forgotten" if gone else f"nothing is remembered as {text}")
    elif action == "clear":
        for item in context.memory:
            context.forget(item.number)
        shell.screen.dim("all is forgotten")
    elif action in {"", "list"}:
        for item in context.memory:
            shell.screen.say(Text(f"{item.number:>3}  {clean(item.kind) or '?'}: {clean(item.content)}"))
    else:
        raise ConfigurationError(":memory add [KIND: ]TEXT, list, forget NUMBER or clear")


async def _tree(shell: Shell, rest: str) -> None:
    if rest == "off":
        trees.leave_out(shell.desk, shell.runner.cwd)
        shell.screen.dim("the tree is no longer sent")
        return
    if rest not in {"", "refresh"} and not rest.isdecimal():
        raise ConfigurationError(":tree [DEPTH], refresh or off")
    depth = int(rest) if rest.isdecimal() else None
    shell.screen.say(Text(trees.send(shell.desk, shell.runner.cwd, depth)))


async def _tokenize(shell: Shell, rest: str) -> None:
    bounds = shell.desk.context.bounds
    cost = bounds.counter().text(rest)
    mark = "" if cost.tokens == cost.ceiling else "~"
    shell.screen.say(Text(f"{mark}{cost.tokens} tokens"))
    tokenizer = bounds.tokenizer or tokens.get_tokenizer(bounds.model)
    encode = getattr(tokenizer, "encode", None)
    if encode is not None and rest:
        shell.screen.dim(" ".join(map(str, encode(rest)[:200])))


async def _rolling(shell: Shell, rest: str) -> None:
    if rest not in {"", "on", "off"}:
        raise ConfigurationError(":rolling-context on or off")
    if rest:
        shell.desk.kept.preferences.set(ROLLING, rest == "on")
        shell.desk.context.roll(rest == "on")
    shell.screen.dim(
        "what does not fit is trimmed"
        if shell.desk.context.bounds.rolling
        else "nothing is trimmed; what does not fit is an error"
    )


async def _compact(shell: Shell, _: str) -> None:
    saved = shell.desk.context.compact()
    shell.screen.dim(f"{saved:,} tokens saved; what went can be recalled, see :history")


async def _sessions(shell: Shell, _: str) -> None:
    for session in shell.desk.kept.sessions():
        mark = "*" if session.id == shell.desk.context.session else " "
        at = datetime.fromtimestamp(session.updated, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        title = short(clean(session.title), max(20, shell.screen.width - 36))
        shell.screen.say(Text(f"{mark} {clean(session.id)[:12]:<12}  {at}  {title}"))


async def _new(shell: Shell, _: str) -> None:
    shell.begin_anew()
    shell.screen.dim("another conversation begins; :sessions lists the one before")


async def _resume(shell: Shell, rest: str) -> None:
    shell.resume(rest)
    shell.screen.dim(f"resumed, with {len(shell.desk.context)} turns")
    shell.tell_goal()


async def _undo(shell: Shell, _: str) -> None:
    gone = shell.desk.context.undo()
    shell.screen.dim(f"{len(gone)} turns taken back" if gone else "there is nothing to take back")


async def _export(shell: Shell, rest: str) -> None:
    import json  # noqa: PLC0415 - only who exports needs it

    if Path(rest).suffix not in {".md", ".json"}:
        raise ConfigurationError(":export FILE.md or FILE.json")
    context = shell.desk.context
    written = (
        json.dumps(context.turns, indent=2)
        if Path(rest).suffix == ".json"
        else showing.as_markdown(context.turns)
    )
    try:
        path = (shell.runner.cwd / Path(rest).expanduser()).resolve()
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(written)
    except FileExistsError as error:
        raise ConfigurationError(f"{rest} is there already: name another file, or remove it") from error
    except OSError as error:
        raise ConfigurationError(f"{rest} cannot be written: {error.strerror}") from error
    except (ValueError, RuntimeError) as error:  # a character that no name has, a home that there is not
        raise ConfigurationError(f"{clean(rest)} is no name of a file: {error}") from error
    shell.screen.dim(f"{len(context)} turns written to {path.name}")


async def _mcp(shell: Shell, rest: str) -> None:
    action, _, more = rest.partition(" ")
    name, _, target = more.partition(" ")
    if action == "connect" and name:
        await shell.connect(name, target)
    elif action == "disconnect" and name:
        gone = await shell.disconnect(name)
        shell.screen.dim(f"{name} is disconnected" if gone else f"no server is called {name}")
    elif action not in {"", "list"}:
        raise ConfigurationError(":mcp connect NAME [COMMAND|URL], disconnect NAME or list")
    lines = list(shell.servers_in_lines())
    for line in lines:
        shell.screen.say(Text(line))
    if not lines:
        shell.screen.dim("no server is connected; :help mcp says how one is")


async def _goal(shell: Shell, rest: str) -> None:
    from ullage.shell import goal  # noqa: PLC0415 - it stands on the loop, which stands on this table

    await goal.act(shell, rest)


async def _quit(shell: Shell, _: str) -> None:
    shell.over = True


COMMANDS: Mapping[str, Command] = {
    "help": Command("[NAME]", "what there is", ":help context", _help),
    "model": Command("[NAME]", "which model answers, or another one", ":model ollama/qwen2.5:7b", _model),
    "models": Command("", "the models that there are, and what they are asked", ":models", _models),
    "context": Command("", "what fills the window, and what goes next", ":context", _context),
    "cost": Command("[detail|reset]", "what the session has cost", ":cost detail", _cost),
    "history": Command("", "all that was said, and what the model sees of it", ":history", _history),
    "recall": Command("HANDLE|WORDS", "what was taken out", ":recall mfrggzdf", _recall),
    "memory": Command(
        "add [KIND: ]TEXT|list|forget N|clear",
        "what is remembered in every conversation",
        ":memory add preference: answer in metric units",
        _memory,
    ),
    "tree": Command("[DEPTH]|refresh|off", "the project's files in the prompt", ":tree 2", _tree),
    "mcp": Command(
        "connect NAME [COMMAND|URL]|disconnect NAME|list",
        "servers whose tools the model may call",
        ":mcp connect files npx -y @modelcontextprotocol/server-filesystem .",
        _mcp,
    ),
    "tokenize": Command("TEXT", "how many tokens a text has", ":tokenize hello world", _tokenize),
    "rolling-context": Command(
        "on|off", "whether what does not fit is trimmed", ":rolling-context off", _rolling
    ),
    "compact": Command("", "trims now", ":compact", _compact),
    "sessions": Command("", "the conversations that are kept", ":sessions", _sessions),
    "resume": Command(
        "[SESSION]", "goes on with another conversation, the latest by default", ":resume 2f6c", _resume
    ),
    "new": Command("", "begins another conversation, and leaves this one to :resume", ":new", _new),
    "undo": Command("", "takes back the last exchange", ":undo", _undo),
    "export": Command("FILE.md|FILE.json", "writes the conversation to a file", ":export talk.md", _export),
    "goal": Command(
        "[TEXT|continue|stop]",
        "works towards a goal step by step, within the bounds of the configuration",
        ":goal make the tests pass",
        _goal,
    ),
    "norris": Command("[TEXT|continue|stop]", "the same as :goal", ":norris tidy up the imports", _goal),
    "reset": Command("", "empties this conversation", ":reset", _reset),
    "quit": Command("", "leaves", ":quit", _quit),
}
"""name → what it is; `/name` works as `:name`."""


def command_named(name: str) -> Command:
    """The command of this name; raises ConfigurationError, with the nearest one, where there is none."""
    if name in COMMANDS:
        return COMMANDS[name]
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    guess = f" Did you mean :{near[0]}?" if near else ""
    raise ConfigurationError(f"there is no :{name}.{guess} :help lists what there is")
