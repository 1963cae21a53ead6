"""The manual page `ullage(1)`, written in roff from the tree of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage import __version__
from ullage.cli.command_tree import command_tree
from ullage.cli.parser import ALL_EXIT_CODES, DESCRIPTION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ullage.cli.command_tree import Argument, CommandNode


def manual_page() -> str:
    """Returns the page."""
    return "\n".join(_lines(command_tree())) + "\n"


def _lines(root: CommandNode) -> Iterator[str]:
    yield f'.TH ULLAGE 1 "" "ullage {__version__}" "User Commands"'
    yield ".SH NAME"
    yield "ullage \\- keep LLM conversations inside the context window, and record their cost"
    yield ".SH SYNOPSIS"
    yield ".B ullage"
    yield "[\\fICOMMAND\\fR] [\\fIoptions\\fR]"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(DESCRIPTION)
    yield ".SH OPTIONS"
    yield "Without a command:"
    yield from _arguments(root)
    yield ".SH COMMANDS"
    for node in root.children:
        yield from _command(node)
    yield ".SH EXIT STATUS"
    yield from _literal(ALL_EXIT_CODES.partition("\n")[2])
    yield ".SH FILES"
    yield ".TP\n~/.config/ullage/config.toml\nYour configuration; \\fBullage config init\\fR writes it."
    yield ".TP\n\\&.ullage.toml\nA project's configuration, which can only make settings stricter."
    yield ".TP\n~/.local/state/ullage/ullage.db\nThe store with conversations and costs."
    yield ".SH ENVIRONMENT"
    yield ".TP\nULLAGE_CONFIG\nNames the configuration file."
    yield ".TP\nULLAGE_SECTION_KEY\nSets a key, such as ULLAGE_COST_CAP_AT_DOLLARS for cost.cap_at_dollars."


def _command(node: CommandNode) -> Iterator[str]:
    spec = node.spec
    usage = "" if spec is None else spec.usage
    yield f".SS ullage {' '.join(node.path)} {_roff(usage)}".rstrip()
    if spec is not None:
        yield from _paragraphs(spec.description)
    yield from _arguments(node)
    for child in node.children:
        yield ".PP"
        yield f"\\fBullage {' '.join(child.path)}\\fR"
        yield ".br"
        yield f"{_roff(child.brief[0].upper() + child.brief[1:])}."
        yield from _arguments(child)
    if spec is not None:
        yield ".PP\nExamples:"
        yield from _literal(spec.examples.partition("\n")[2])


def _arguments(node: CommandNode) -> Iterator[str]:
    for each in node.arguments:
        if each.flags != ("-h", "--help"):
            yield ".TP"
            yield _heading(each)
            yield _roff(each.help or each.value)


def _heading(argument: Argument) -> str:
    value = f" \\fI{_roff(argument.value)}\\fR" if argument.value else ""
    if not argument.flags:
        return value.strip()
    return ", ".join(f"\\fB{_roff(flag)}\\fR" for flag in argument.flags) + value


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield ".PP"
        yield _roff(" ".join(paragraph.split()))


def _literal(text: str) -> Iterator[str]:
    yield ".nf"
    yield from (_roff(line) for line in text.splitlines())
    yield ".fi"


def _roff(text: str) -> str:
    """Escapes what roff would read as a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
