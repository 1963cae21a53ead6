"""Finds arithmetic that may run a command.

bash evaluates the value of a variable in arithmetic as an expression, and a subscript in that expression may
be a command substitution. So arithmetic is harmless only if each of its variables holds a number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.safety.words import read, source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

_COMPARING = re.compile(r"-(?:eq|ne|lt|le|gt|ge)")
_LENGTH = re.compile(r"\$\{#\w+(?:\[[@*]\])?\}|\$[#?$!]")
_NAME = re.compile(r"(?<![\w#])[A-Za-z_]\w*|\$\{?[@*!\d]")
_NUMBER = re.compile(r"[-+]?\d+|\{-?\d+\.\.-?\d+(?:\.\.-?\d+)?\}")
_CONSTANTS = """
RANDOM SECONDS EPOCHSECONDS LINENO BASHPID PPID UID EUID COLUMNS LINES OPTIND SHLVL
"""
CONSTANTS = frozenset(_CONSTANTS.split())
"""Variables that always hold a number."""

_SUBSCRIPT = re.compile(r"\[(?:(.*?)\]\+?=|([^]]*)$)", re.DOTALL)
"""The start of an element of an array that names its place: `[x]=1`."""

_PRINTS_NUMBER = re.compile(
    r"wc(?:\s+-[clmwL]+)*|nproc|date\s+(?:-u\s+)?[\"']?\+%[sYmdHMSjuwNV]+[\"']?|id\s+-[ug]|tput\s+(?:cols|lines)"
    r"|grep\s+-\w*c\w*\s.*"
)
_SETTING = """
read mapfile readarray printf declare typeset local export readonly getopts unset let
"""
SETTERS = frozenset(_SETTING.split())
"""Builtins that may give a variable any value."""


def find_unsafe_arithmetic(root: Node) -> Iterator[tuple[Node, str]]:
    """Yields arithmetic that may run a command, each with a part that is not known to be a number."""
    nodes = list(_below(root))
    numbers = _numbers(nodes)
    keyed = _find_keyed_arrays(root)
    for node in nodes:
        if node.type in ("array", "subscript") and _find_name(node) in keyed:
            continue
        for context in _contexts(node):
            name = _unknown_name(context, numbers)
            if name:
                yield context, name


def _find_keyed_arrays(root: Node) -> set[str]:
    """Returns the arrays that the line surely makes with `declare -A`; their subscripts are plain text."""
    found = set()
    text = source(root).encode()
    for node in root.children:
        if node.type != "declaration_command":
            continue
        words = [source(child) for child in node.named_children]
        if not any(re.fullmatch(r"-\w*A\w*", word) for word in words):
            continue
        before = text[: node.start_byte - root.start_byte].decode("utf-8", "replace")
        names = {re.split(r"[=+[]", word)[0] for word in words if not word.startswith("-")}
        found |= {name for name in names if not re.search(rf"\b{re.escape(name)}\b", before)}
    return found


def _find_name(node: Node) -> str:
    """Returns the name of the variable that a subscript or an array belongs to."""
    whole = node if node.type == "subscript" else node.parent
    name = whole.child_by_field_name("name") if whole is not None else None
    return source(name) if name is not None else ""


def _is_evaluated(comparison: Node) -> bool:
    """Returns True for `-eq` and the like inside `[[`; inside `[`, bash accepts plain numbers only."""
    if not any(_COMPARING.fullmatch(source(child)) for child in comparison.children):
        return False
    test = comparison.parent
    while test is not None and test.type != "test_command":
        test = test.parent
    return test is None or source(test).startswith("[[")


def _below(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(current.children)


def _contexts(node: Node) -> Iterator[Node]:
    """Yields the parts of a node that bash evaluates as arithmetic."""
    kind = node.type
    if kind in ("arithmetic_expansion", "c_style_for_statement"):
        yield from (
            child for child in node.named_children if child.type not in ("do_group", "compound_statement")
        )
    elif kind == "compound_statement" and source(node).startswith("(("):
        yield from node.named_children
    elif kind == "array":
        yield from (child for child in node.named_children if _SUBSCRIPT.match(source(child)))
    elif kind == "subscript":
        index = node.child_by_field_name("index")
        if index is not None and source(index) not in ("@", "*"):
            yield index
    elif kind == "expansion":
        slices = [at for at, child in enumerate(node.children) if child.type == ":"]
        yield from (child for at in slices[:1] for child in node.children[at + 1 :] if child.is_named)
    elif kind == "binary_expression" and _is_evaluated(node):
        yield from (child for child in node.named_children if child.type != "test_operator")
    elif kind == "command" and source(node.children[0]) == "let":
        yield from node.named_children[1:]
    elif (kind == "test_command" and not source(node).startswith("[[")) or _is_test(node):
        # A value that splits may add `-v a[$(…)]` to the test.
        yield from (each for each in _below(node) if each.type in _EXPANSIONS and _splits(each))


def _is_test(node: Node) -> bool:
    return node.type == "command" and source(node.children[0]) == "test"


_EXPANSIONS = ("simple_expansion", "expansion", "command_substitution")


def _splits(node: Node) -> bool:
    """Returns True if no quotes stand around an expansion."""
    return read(node).splits and node.parent is not None and node.parent.type != "string"


def _unknown_name(context: Node, numbers: dict[str, int]) -> str:
    """Returns a part of this arithmetic that may not be a number; empty if all parts are."""
    raw = source(context)
    if context.parent is not None and context.parent.type == "array":
        found = _SUBSCRIPT.match(raw)
        raw = found[1] or found[2] or "" if found else raw
    for inner in _below(context):
        if inner.type == "command_substitution":
            text = source(inner)
            if not _PRINTS_NUMBER.fullmatch(re.split(r"\|", text[2:-1])[-1].strip()):
                return text
            raw = raw.replace(text, "0")
    for match in _NAME.finditer(_LENGTH.sub("0", raw)):
        name = match[0]
        if name not in CONSTANTS and numbers.get(name, context.start_byte + 1) > context.start_byte:
            return name
    return ""


def _numbers(nodes: list[Node]) -> dict[str, int]:
    """Returns the variables that the line sets to numbers only, each with the place of its first number."""
    found: dict[str, int] = {}
    others: set[str] = set()
    for node in nodes:
        if node.type == "variable_assignment":
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            label = source(name) if name is not None else ""
            if value is not None and (
                value.type == "arithmetic_expansion"
                or _NUMBER.fullmatch(read(value).text)
                or _PRINTS_NUMBER.fullmatch(re.split(r"\|", source(value)[2:-1])[-1].strip())
            ):
                found.setdefault(label, node.start_byte)
            elif node.parent is None or node.parent.type != "c_style_for_statement":
                others.add(label)
        elif node.type == "for_statement":
            name = node.child_by_field_name("variable")
            values = node.children_by_field_name("value")
            label = source(name) if name is not None else ""
            if values and all(_NUMBER.fullmatch(source(each)) for each in values):
                found.setdefault(label, node.start_byte)
            else:
                others.add(label)
        elif node.type == "command" and source(node.children[0]) in SETTERS:
            others |= {read(child).text.partition("=")[0] for child in node.named_children[1:]}
        elif node.type == "expansion" and any(child.type in (":=", "=") for child in node.children):
            others |= {source(child) for child in node.named_children[:1]}
    return {name: at for name, at in found.items() if name not in others}
