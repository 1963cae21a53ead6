"""Classifies a line by the worst of its commands, redirects and assignments."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ullage.safety import targets
from ullage.safety.arithmetic import CONSTANTS, find_unsafe_arithmetic
from ullage.safety.code import sql
from ullage.safety.commands import command, is_known
from ullage.safety.parse import MOST, document, encode_line, every, find_joined_line, parse, readings, trouble
from ullage.safety.rules import table
from ullage.safety.scene import Facts, Scene, Words
from ullage.safety.shadows import classify_shadowed
from ullage.safety.verdict import Verdict, worst
from ullage.safety.words import UNSEEN, Word, read, read_all, read_command, reading, source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tree_sitter import Node

DEEPEST = 8
"""Most levels of texts within texts (`sh -c "sh -c …"`) that are classified."""

MOST_WRAPPED = 20
"""Most commands before a command (`sudo nice timeout 5 …`) that are classified."""

_REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")
_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$\()")
_BOMB = re.compile(r"(?<![\w:.])([\w:.]{1,80})\(\)[{(]+\1[|&]+\1")


@dataclass(frozen=True, slots=True)
class _Walk:
    facts: Facts
    depth: int
    extras: dict[int, Words] = field(default_factory=dict)
    """The words of a command that stand after a redirect, by the node of the command."""
    functions: set[str] = field(default_factory=set)
    """The functions that this text has surely defined so far."""


def classify(
    line: str, *, cwd: Path | None = None, shadows: Mapping[str, str | None] | None = None
) -> Verdict:
    """Returns the class of a command line, which is the worst of all its parts.

    Nothing is run or looked up. With `cwd`, the file system is read to find files that would be overwritten.
    `shadows` are the aliases of the shell with their texts, and its functions with None.
    """
    here = None if cwd is None else [cwd]
    return worst([_line(text, Facts(folders=here, shadows=shadows or {}), 0) for text in readings(line)])


def _line(text: str, facts: Facts, depth: int) -> Verdict:
    if len(text) > MOST or depth > DEEPEST:
        return Verdict("unknown", "this is too long or too deeply nested to classify", text[:80])
    if re.search(r"[\x00\x0b\x0c\r]", text):
        return worst(
            [
                Verdict("unknown", "this has control characters in it", text[:80]),
                _line(re.sub(r"[\x00\x0b\x0c\r]+", "\n", text), facts, depth + 1),
            ]
        )
    walk = _Walk(facts, depth)
    found = list(_bomb(text))
    raw = encode_line(text)
    with reading(raw):
        root = parse(text)
        split = find_joined_line(root, raw)
        if split is not None:
            halves = [raw[:split], raw[split + 1 :]]
            return worst(_line(half.decode("utf-8", "replace"), facts, depth + 1) for half in halves)
        found += _check_unparsed(text) if root.has_error else ()
        for node in every(root):
            why = trouble(node, raw)
            if why:
                found.append(Verdict("unknown", why, source(node) or text))
            found += _find_hidden_code(node)
            if node.type in VISITS:
                found += VISITS[node.type](node, walk)
        found += [
            Verdict("unknown", f"arithmetic may run code in {name}", source(node))
            for node, name in find_unsafe_arithmetic(root)
        ]
    return worst([*found, *_together(text, walk)])


def _together(text: str, walk: _Walk) -> Iterator[Verdict]:
    """Yields verdicts that need several parts of a line: text that is fetched or made on the line, and then
    run."""
    facts = walk.facts
    for each in facts.texts if facts.asks else ():
        kind, reason = sql(each)
        if kind == "destructive":
            yield Verdict(kind, f"{facts.asks} {reason}", each)
    if not facts.runs:
        return
    if facts.fetches:
        yield Verdict("destructive", f"runs the text that {facts.fetches} fetches", text)
    texts, facts.texts = facts.texts, []
    for each in texts:
        seen = _line(each, facts, walk.depth + 1)
        if seen.kind == "destructive":
            yield seen


def _check_unparsed(text: str) -> Iterator[Verdict]:
    """Yields a verdict for a line that does not parse if it names a dangerous command."""
    words = re.split(r"[\s;&|(){}<>$`]+", re.sub(r"[\\'\"]", "", text))
    word = next((word for word in words if posixpath.basename(word) in table().telling), None)
    if word:
        yield Verdict("destructive", f"this is not complete shell syntax and has the word {word} in it", text)


def _bomb(text: str) -> Iterator[Verdict]:
    match = _BOMB.search(re.sub(r"\s|\\\n", "", text))
    if match:
        yield Verdict("destructive", f"{match[1]} starts itself endlessly", text)


def _find_hidden_code(node: Node) -> Iterator[Verdict]:
    """Yields a verdict if a node has a substitution that the grammar read as plain letters."""
    if node.child_count or node.type in ("raw_string", "ansi_c_string", "comment", "$(", "`", "$(("):
        return
    if node.type == "heredoc_body" and node.parent is not None and not document(node.parent)[1]:
        return
    text = source(node)
    if node.is_named and (_HIDDEN.search(text) or (node.type == "regex" and re.search(r"[<>]\(", text))):
        yield Verdict("unknown", "a substitution here cannot be read", text)


def _simple(words: Words, part: str, walk: _Walk, wrapped: int = 0) -> Verdict:
    if wrapped > MOST_WRAPPED:
        return Verdict("unknown", "this is too deeply nested to classify", part)
    scene = Scene(
        part=part,
        facts=walk.facts,
        words=lambda inner: _simple(inner, part, walk, wrapped + 1),
        line=lambda text: _line(text, walk.facts, walk.depth + 1),
        functions=frozenset(walk.functions) if wrapped == 0 else frozenset(),
    )
    return classify_shadowed(words, scene, command(words, scene), partial(_classify_alias, walk))


def _classify_alias(walk: _Walk, name: str, text: str) -> Verdict:
    """Classifies the text of an alias, in which bash does not replace its own name again."""
    left = {each: value for each, value in walk.facts.shadows.items() if each != name}
    return _line(text, replace(walk.facts, shadows=left), walk.depth + 1)


def _command(node: Node, walk: _Walk) -> Iterator[Verdict]:
    passed = (*_REDIRECTS, "variable_assignment", "comment", "subshell", "ERROR")
    words = read_command([child for child in node.children if child.type not in passed])
    for child in node.children:
        words += _behind(child)
    words += walk.extras.get(node.id, [])
    if words:
        yield _simple(words, source(node), walk)


def _behind(redirect: Node) -> Words:
    """Returns the words that stand after a redirect and belong to its command: `find . > list -delete`."""
    if redirect.type == "file_redirect":
        return read_all(redirect.children_by_field_name("destination"))[1:]
    if redirect.type == "heredoc_redirect":
        return [read(child) for child in redirect.children_by_field_name("argument")]
    return []


def _check_redirected(node: Node, walk: _Walk) -> Iterator[Verdict]:
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
        yield Verdict("unknown", "there are words after a redirect", source(node))


def _redirect(node: Node, walk: _Walk) -> Iterator[Verdict]:
    operator = next((child.type for child in node.children if not child.is_named), "")
    nodes = node.children_by_field_name("destination")
    if not nodes:
        return
    target, word = nodes[0], read_all(nodes)[0]
    if re.match(r"/dev/(tcp|udp)/", word.text):
        walk.facts.fetches = walk.facts.fetches or "the network"
    if operator.startswith("<"):
        yield from _read_by_shell(node)
        if re.match(r"/dev/(tcp|udp)/", word.text):
            yield Verdict("unknown", "reads from the network", source(node))
        elif operator == "<>" and target.type != "process_substitution":
            yield targets.classify_write(word, source(node), adds=True, folders=walk.facts.folders)
        return
    if target.type == "process_substitution" or (operator == ">&" and re.fullmatch(r"\d+-?|-", word.text)):
        return
    if not operator.endswith(">>") and word.fixed and word.text in _read_words(node):
        yield Verdict("destructive", f"overwrites {word.text}, which it reads", source(node))
    yield targets.classify_write(word, source(node), adds=operator.endswith(">>"), folders=walk.facts.folders)


def _read_words(redirect: Node) -> list[str]:
    """Returns the words of the commands before a redirect, other than of those that only print words."""
    body = redirect.parent.child_by_field_name("body") if redirect.parent is not None else None
    if body is None:
        return []
    commands = [each for each in every(body) if each.type == "command"]
    return [
        read(child).text
        for each in commands
        if source(each.children[0]) not in ("echo", "printf")
        for child in each.named_children[1:]
        if child.type in ("word", "string", "raw_string")
    ]


def _read_by_shell(redirect: Node) -> Iterator[Verdict]:
    """Yields a verdict on `exec < file`, after which the shell reads its next commands from the file."""
    number = next((source(child) for child in redirect.children if child.type == "file_descriptor"), "0")
    parent = redirect.parent
    body = parent.child_by_field_name("body") if parent is not None else None
    command = parent if parent is not None and parent.type == "command" else body
    if command is None or number.lstrip("0"):
        return
    words = [read(child).text for child in command.named_children if child.type in ("command_name", "word")]
    if words[-1:] == ["exec"] or words[-2:] == ["exec", "--"]:
        yield Verdict("unknown", "the shell reads its next commands from this", source(redirect))


def _document(node: Node, walk: _Walk) -> Iterator[Verdict]:
    yield from _read_by_shell(node)
    walk.facts.texts.append(document(node)[0])


def _string(node: Node, walk: _Walk) -> Iterator[Verdict]:
    yield from _read_by_shell(node)
    walk.facts.texts += [read(child).text for child in node.named_children]


def _function(node: Node, walk: _Walk) -> Iterator[Verdict]:
    name = node.child_by_field_name("name")
    body = node.child_by_field_name("body")
    if name is None or body is None:
        return
    below = list(every(body))
    label = source(name)
    if is_known(label):
        yield Verdict("unknown", f"this changes what {label} means", source(node))
    elif node.parent is not None and node.parent.type == "program":
        walk.functions.add(label)
    calls = [each for each in below if each.type == "command_name" and source(each) == label]
    if calls and any(each.type in ("pipeline", "&") for each in below):
        yield Verdict("destructive", f"{label} starts itself endlessly", source(node))
    elif calls:
        yield Verdict("unknown", f"{label} calls itself", source(node))


def _assignment(node: Node, walk: _Walk) -> Iterator[Verdict]:
    name = node.child_by_field_name("name") or node.child_by_field_name("variable")
    label = source(name).partition("[")[0] if name is not None else ""
    value = node.child_by_field_name("value")
    if node.type == "variable_assignment" and table().settings.fullmatch(
        f"{label}={read(value).text if value else ''}"
    ):
        return
    if _is_prefix(node) and (table().harmless.fullmatch(label) or _splits_input(node, label)):
        doubtful = label in CONSTANTS and not re.fullmatch(r"\d+", source(value) if value else "")
        if doubtful:
            yield Verdict("unknown", f"{label} is not set to a number", source(node))
    elif _is_exported(node) and not table().harmless.fullmatch(label):
        yield Verdict("unknown", f"{label} may change what the command does", source(node))
    elif table().special.fullmatch(label):
        yield Verdict("unknown", f"{label} changes what commands mean", source(node))
    if node.type == "variable_assignment":
        yield from _find_quoted_code(node, walk)


def _is_prefix(node: Node) -> bool:
    """Returns True if an assignment stands before a command and lasts only as long as that command."""
    return node.type == "variable_assignment" and node.parent is not None and node.parent.type == "command"


def _splits_input(node: Node, label: str) -> bool:
    """Returns True for `IFS=, read -r a b`, in which IFS only says how `read` splits its input."""
    name = node.parent.child_by_field_name("name") if node.parent is not None else None
    return label == "IFS" and name is not None and source(name) == "read"


def _is_exported(node: Node) -> bool:
    """Returns True if an assignment goes into the environment of a program."""
    parent = node.parent
    if node.type != "variable_assignment" or parent is None:
        return False
    return parent.type == "command" or (parent.type == "declaration_command" and _exports(parent))


def _exports(declaration: Node) -> bool:
    first, *rest = [source(child) for child in declaration.children]
    return first == "export" or any(re.match(r"-\w*x", each) for each in rest)


def _find_quoted_code(node: Node, walk: _Walk) -> Iterator[Verdict]:
    """Yields a verdict for a substitution in single quotes: arithmetic or a prompt may evaluate it later."""
    _ = walk
    for each in every(node):
        if each.type in ("raw_string", "ansi_c_string") and re.search(r"\$\(|`", read(each).text):
            yield Verdict("unknown", "a substitution in quotes may be evaluated later", source(each))


def _test(node: Node, walk: _Walk) -> Iterator[Verdict]:
    yield from _find_quoted_code(node, walk)
    # The grammar reads `[[ a<(x) ]]` as a comparison, and bash as a process substitution.
    plain = [each for each in every(node) if each.type in ("process_substitution", *_QUOTED)]
    seen = [(each.start_byte, each.end_byte) for each in plain]
    for match in re.finditer(rb"[<>]\(", encode_line(source(node))):
        at = node.start_byte + match.start()
        if not any(start <= at < end for start, end in seen):
            yield Verdict("unknown", "a process substitution here cannot be read", source(node))
    for each in every(node):
        if each.type == "test_operator" and source(each) in ("-v", "-R"):
            name = each.next_named_sibling
            if name is None or not re.fullmatch(r"\w+", source(name)):
                yield Verdict("unknown", "a test may run code in the name of a variable", source(node))


def _declaration(node: Node, walk: _Walk) -> Iterator[Verdict]:
    kept = [child for child in node.children if child.type != "variable_assignment"]
    words = [Word(source(kept[0])), *(read(child) for child in kept[1:])]
    if words[0].text == "unset":
        walk.functions.clear()
    if _exports(node) and len(words) > 2 and any(re.match(r"-\w*f", word.text) for word in words):
        yield Verdict("unknown", "programs that run bash get the function", source(node))
    for word in words[1:]:
        label, equals, _ = word.text.partition("=")
        if re.match(r"-\w*[inI]", word.text):
            yield Verdict("unknown", f"{words[0].text} {word.text} changes how values are read", source(node))
        elif word.loose or re.search(r"\[", label):
            yield Verdict(
                "unknown", f"{words[0].text} gets a name that is not known before it runs", source(node)
            )
        elif not equals and any(each.text == "-p" for each in words[1:]):
            continue
        elif table().special.fullmatch(label):
            yield Verdict("unknown", f"{label} changes what commands mean", source(node))
        elif _exports(node) and not word.text.startswith("-") and not table().harmless.fullmatch(label):
            yield Verdict("unknown", f"{label} may change what commands do", source(node))
        elif equals and UNSEEN in label:
            yield Verdict("unknown", "a variable is set whose name is not known before it runs", source(node))
    yield from _find_quoted_code(node, walk)


def _expansion(node: Node, walk: _Walk) -> Iterator[Verdict]:
    _ = walk
    text = source(node).lstrip()  # in a string, the grammar puts the blank before an expansion into it
    if re.search(r"@P\}$", text):
        yield Verdict("unknown", "a variable is expanded like a prompt", text)
    elif re.match(r"\$\{!", text) and not re.fullmatch(r"\$\{!\w+(?:[@*]|\[[@*]\])\}", text):
        yield Verdict("unknown", "a variable is read whose name is not known before it runs", text)
    setting = re.match(r"\$\{(\w+)(?:\[[^]]*\])?:?=", text)
    if setting and table().special.fullmatch(setting[1]):
        yield Verdict("unknown", f"{setting[1]} changes what commands mean", text)


_QUOTED = ("ansi_c_string", "raw_string", "string")

VISITS: Mapping[str, Callable[[Node, _Walk], Iterator[Verdict]]] = {
    "command": _command,
    "redirected_statement": _check_redirected,
    "file_redirect": _redirect,
    "heredoc_redirect": _document,
    "herestring_redirect": _string,
    "function_definition": _function,
    "variable_assignment": _assignment,
    "for_statement": _assignment,
    "declaration_command": _declaration,
    "unset_command": _declaration,
    "test_command": _test,
    "expansion": _expansion,
}
"""The check of each node type; the nodes below it are checked by their own types."""
