"""The class of a line: the worst of its commands, redirects and assignments, wherever they stand."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ullage.shell.safety import targets
from ullage.shell.safety.code import sql
from ullage.shell.safety.commands import command
from ullage.shell.safety.parse import MOST, document, encoded, every, parse, readings, trouble
from ullage.shell.safety.rules import table
from ullage.shell.safety.scene import Facts, Scene, Words
from ullage.shell.safety.verdict import Verdict, worst
from ullage.shell.safety.words import Word, read, read_all, reading, source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tree_sitter import Node

DEEPEST = 8
"""Texts within texts (`sh -c "sh -c …"`) that are followed."""

MOST_WRAPPED = 20
"""Commands before a command (`sudo nice timeout 5 …`) that are followed."""

_REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")
_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$\()")
_BOMB = re.compile(r"([\w:.]+)\(\)[{(]+\1[|&]+\1")


@dataclass(frozen=True, slots=True)
class _Walk:
    cwd: Path | None
    facts: Facts
    depth: int
    extras: dict[int, Words] = field(default_factory=dict)
    """Words of a command that stand behind a redirect, by the node of the command."""


def classify(line: str, *, cwd: Path | None = None) -> Verdict:
    """What a command line may do: its class is the worst of all its parts.

    Nothing is run and nothing is looked up; with `cwd`, files that a redirect would overwrite are looked at.
    """
    return worst([_line(text, cwd, Facts(), 0) for text in readings(line)])


def _line(text: str, cwd: Path | None, facts: Facts, depth: int) -> Verdict:
    if len(text) > MOST or depth > DEEPEST:
        return Verdict("unknown", "this is longer or deeper than what is looked at", text[:80])
    if re.search(r"[\x00\x0b\x0c\r]", text):
        return worst(
            [
                Verdict("unknown", "there are control characters in it", text[:80]),
                _line(re.sub(r"[\x00\x0b\x0c\r]+", "\n", text), cwd, facts, depth + 1),
            ]
        )
    walk = _Walk(cwd, facts, depth)
    found = list(_bomb(text))
    raw = encoded(text)
    with reading(raw):
        root = parse(text)
        found += _broken(text) if root.has_error else ()
        for node in every(root):
            why = trouble(node, raw)
            if why:
                found.append(Verdict("unknown", why, source(node) or text))
            found += _hidden(node)
            if node.type in VISITS:
                found += VISITS[node.type](node, walk)
    return worst([*found, *_together(text, walk)])


def _together(text: str, walk: _Walk) -> Iterator[Verdict]:
    """What only the pieces of a line together tell: a text from elsewhere, or made here, that is run."""
    facts = walk.facts
    for each in facts.texts if facts.asks else ():
        kind, reason = sql(each)
        if kind == "destructive":
            yield Verdict(kind, f"{facts.asks} {reason}", each)
    if not facts.runs:
        return
    if facts.fetches:
        yield Verdict("destructive", f"runs what {facts.fetches} brings in", text)
    texts, facts.texts = facts.texts, []
    for each in texts:
        seen = _line(each, walk.cwd, facts, walk.depth + 1)
        if seen.kind == "destructive":
            yield seen


def _broken(text: str) -> Iterator[Verdict]:
    """What the words of a line that does not parse give away."""
    words = re.split(r"[\s;&|(){}<>$`]+", re.sub(r"[\\'\"]", "", text))
    told = next((word for word in words if posixpath.basename(word) in table().telling), None)
    if told:
        yield Verdict("destructive", f"this is not whole shell grammar, and has the word {told} in it", text)


def _bomb(text: str) -> Iterator[Verdict]:
    match = _BOMB.search(re.sub(r"\s|\\\n", "", text))
    if match:
        yield Verdict("destructive", f"{match[1]} starts itself without end", text)


def _hidden(node: Node) -> Iterator[Verdict]:
    """A substitution that the grammar took for letters."""
    if node.child_count or node.type in ("raw_string", "ansi_c_string", "comment", "$(", "`", "$(("):
        return
    if node.type == "heredoc_body" and node.parent is not None and not document(node.parent)[1]:
        return
    text = source(node)
    if node.is_named and _HIDDEN.search(text):
        yield Verdict("unknown", "a substitution stands where it cannot be read", text)


def _simple(words: Words, part: str, walk: _Walk, wrapped: int = 0) -> Verdict:
    if wrapped > MOST_WRAPPED:
        return Verdict("unknown", "this is deeper than what is looked at", part)
    scene = Scene(
        part=part,
        facts=walk.facts,
        words=lambda inner: _simple(inner, part, walk, wrapped + 1),
        line=lambda text: _line(text, walk.cwd, walk.facts, walk.depth + 1),
    )
    return command(words, scene)


def _command(node: Node, walk: _Walk) -> Iterator[Verdict]:
    passed = (*_REDIRECTS, "variable_assignment", "comment", "subshell", "ERROR")
    words = read_all([child for child in node.children if child.type not in passed])
    for child in node.children:
        words += _behind(child)
    words += walk.extras.get(node.id, [])
    if words:
        yield _simple(words, source(node), walk)


def _behind(redirect: Node) -> Words:
    """The words that stand behind a redirect and belong to its command: `find . > list -delete`."""
    if redirect.type == "file_redirect":
        return read_all(redirect.children_by_field_name("destination"))[1:]
    if redirect.type == "heredoc_redirect":
        return [read(child) for child in redirect.children_by_field_name("argument")]
    return []


def _redirected(node: Node, walk: _Walk) -> Iterator[Verdict]:
    extra = [word for child in node.children for word in _behind(child)]
    if not extra:
        return
    body = node.child_by_field_name("body")
    while body is not None and body.type in ("pipeline", "list", "negated_command"):
        body = body.named_children[-1]
    if body is None:
        yield _simple(extra, source(node), walk)
    elif body.type == "command":
        walk.extras[body.id] = extra
    else:
        yield Verdict("unknown", "words behind a redirect", source(node))


def _redirect(node: Node, walk: _Walk) -> Iterator[Verdict]:
    operator = next((child.type for child in node.children if not child.is_named), "")
    nodes = node.children_by_field_name("destination")
    if not nodes:
        return
    target, word = nodes[0], read_all(nodes)[0]
    if operator.startswith("<"):
        if re.match(r"/dev/(tcp|udp)/", word.text):
            yield Verdict("unknown", "reads from the network", source(node))
        return
    if target.type == "process_substitution" or (operator == ">&" and re.fullmatch(r"\d+-?|-", word.text)):
        return
    yield targets.written(word, source(node), adds=operator.endswith(">>"), cwd=walk.cwd)


def _document(node: Node, walk: _Walk) -> Iterator[Verdict]:
    walk.facts.texts.append(document(node)[0])
    yield from ()


def _string(node: Node, walk: _Walk) -> Iterator[Verdict]:
    walk.facts.texts += [read(child).text for child in node.named_children]
    yield from ()


def _function(node: Node, walk: _Walk) -> Iterator[Verdict]:
    name = node.child_by_field_name("name")
    body = node.child_by_field_name("body")
    if name is None or body is None:
        return
    below = list(every(body))
    label = source(name)
    walk.facts.functions.add(label)
    calls = [each for each in below if each.type == "command_name" and source(each) == label]
    if calls and any(each.type in ("pipeline", "&") for each in below):
        yield Verdict("destructive", f"{label} starts itself without end", source(node))
    elif calls:
        yield Verdict("unknown", f"{label} calls itself", source(node))


def _assignment(node: Node, walk: _Walk) -> Iterator[Verdict]:
    _ = walk
    name = node.child_by_field_name("name") or node.child_by_field_name("variable")
    label = source(name).partition("[")[0] if name is not None else ""
    if table().variables.fullmatch(label):
        yield Verdict("unknown", f"{label} changes what commands mean", source(node))
    if node.type == "variable_assignment":
        yield from _quoted_code(node, walk)


def _quoted_code(node: Node, walk: _Walk) -> Iterator[Verdict]:
    """A substitution in single quotes sleeps, until arithmetic or a prompt evaluates it."""
    _ = walk
    for each in every(node):
        if each.type in ("raw_string", "ansi_c_string") and re.search(r"\$\(|`", read(each).text):
            yield Verdict("unknown", "a substitution in quotes may be evaluated later", source(each))


def _declaration(node: Node, walk: _Walk) -> Iterator[Verdict]:
    kept = [child for child in node.children if child.type != "variable_assignment"]
    words = [Word(source(kept[0])), *(read(child) for child in kept[1:])]
    for word in words[1:]:
        label = word.text.partition("=")[0]
        if "=" in word.text and table().variables.fullmatch(label):
            yield Verdict("unknown", f"{label} changes what commands mean", source(node))
    yield from _quoted_code(node, walk)


def _expansion(node: Node, walk: _Walk) -> Iterator[Verdict]:
    _ = walk
    if re.search(r"@P\}$", source(node)):
        yield Verdict("unknown", "a variable is expanded like a prompt", source(node))


VISITS: Mapping[str, Callable[[Node, _Walk], Iterator[Verdict]]] = {
    "command": _command,
    "redirected_statement": _redirected,
    "file_redirect": _redirect,
    "heredoc_redirect": _document,
    "herestring_redirect": _string,
    "function_definition": _function,
    "variable_assignment": _assignment,
    "for_statement": _assignment,
    "declaration_command": _declaration,
    "unset_command": _declaration,
    "test_command": _quoted_code,
    "expansion": _expansion,
}
"""What is looked at in each kind of node, beside what stands below it."""
