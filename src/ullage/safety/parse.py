"""Parses a command line with tree-sitter's bash grammar, and finds what that grammar reads wrongly.

The parser is made for editors: it goes on after an error, and it reads some constructs as plain letters.
Nothing here repairs that. If a tree has an error, or a construct that the grammar is known to read wrongly,
the line is at least unknown.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING

from ullage.extras import require
from ullage.safety.words import source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tree_sitter import Node, Parser

MOST = 8_000
"""Most characters of a line that is parsed; a longer line is unknown."""

CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")


@functools.cache
def _parser() -> Parser:
    require("shell", "tree_sitter", "tree_sitter_bash")
    import tree_sitter  # noqa: PLC0415 - a shared library, loaded for the first line
    import tree_sitter_bash  # noqa: PLC0415 - the same

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


# The grammar's scanner has a table of 256 characters, and crashes on some characters beyond it. For the
# shell, a byte that is not ASCII may be part of a word but not of a name. The same is true of `%`.
_LETTERS = bytes(range(128)) + b"%" * 128


def parse(line: str) -> Node:
    """Returns the tree of a line; `trouble` says if a node can be relied on."""
    return _parser().parse(encode_line(line).translate(_LETTERS)).root_node


def encode_line(line: str) -> bytes:
    """Returns the bytes of a line; a lone surrogate becomes a question mark."""
    return line.encode("utf-8", "replace")


def parses(line: str) -> bool:
    """Returns True if a line is complete and valid shell syntax."""
    return len(line) <= MOST and not parse(line).has_error


def readings(line: str) -> list[str]:
    """Returns the texts that a line may stand for; the worst of them decides.

    The shell joins lines that end with a backslash, except in comments and single quotes. Both readings are
    classified, which is simpler than to find out which one is right. A line that begins with a backslash gets
    a blank in front: without it, the grammar reads the line as one more word of the line before.
    """
    joined = CONTINUED.sub(r"\1", line)
    return list(dict.fromkeys([line, joined, joined.replace("\n\\", "\n \\")]))


def every(node: Node) -> Iterator[Node]:
    """Yields a node and all nodes below it, in the order of the text."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(current.children)


def trouble(node: Node, raw: bytes) -> str | None:
    """Returns the reason why this node of the line `raw` cannot be relied on; None if it can."""
    return next((reason for reason, wrong in TROUBLES.items() if wrong(node, raw)), None)


_ONE_LINE = (
    "command",
    "declaration_command",
    "file_redirect",
    "herestring_redirect",
    "negated_command",
    "redirected_statement",
    "unset_command",
    "variable_assignments",
)
"""The node types whose parts stand on one line, unless a backslash joins two."""


def find_joined_line(root: Node, raw: bytes) -> int | None:
    """Returns the place of a line end that the grammar took for a blank in a command; None if there is none.

    The grammar reads the second line of `ls | sort| uniq -c`, `make < f` as words of `uniq`.
    """
    for node in every(root):
        if node.type not in _ONE_LINE or any(each.type == "heredoc_redirect" for each in node.children):
            continue
        for before, after in itertools.pairwise(node.children):
            end = re.search(rb"(?<!\\)(?:\\\\)*(\n)", raw[before.end_byte : after.start_byte])
            if end:
                return before.end_byte + end.start(1)
    return None


def _is_within_string(node: Node) -> bool:
    """Returns True if a word belongs to an expansion in double quotes, as the blank in `"${x//:/ }"` does."""
    parent = node.parent
    while parent is not None and parent.type in ("expansion", "concatenation"):
        parent = parent.parent
    return parent is not None and parent.type == "string"


def _begins(comment: Node, raw: bytes) -> bool:
    r"""Returns True if the shell sees this comment too; the grammar also begins one after `\ `."""
    parent = comment.parent
    if parent is not None and parent.type in NO_COMMENT:
        return False
    before = raw[: comment.start_byte]
    return not before or bool(re.search(rb"(?:^|[^\\])(?:\\\\)*[\s;&|()]$", before))


def document(node: Node) -> tuple[str, bool]:
    """Returns the body of a here-document, and True if the shell expands it."""
    start = next((source(child) for child in node.children if child.type == "heredoc_start"), "")
    body = next((source(child) for child in node.children if child.type == "heredoc_body"), "")
    return body, not re.search(r"['\"\\]", start)


def _has_escaped_blank(node: Node, raw: bytes) -> bool:
    """Returns True if a backslash stands between the parts: the grammar reads an escaped blank as a blank."""
    if node.type in ("string", "heredoc_body", "heredoc_redirect", "translated_string"):
        return False
    end = 0 if node.parent is None else node.start_byte
    for child in node.children:
        if b"\\" in raw[end : child.start_byte].replace(b"\\\n", b""):
            return True
        end = child.end_byte
    return False


def _unclear(node: Node, raw: bytes) -> bool:
    """Returns True if the grammar may have missed the end of the here-document.

    For the shell, `EOF; ls` does not end it, because other text stands on the line.
    """
    last = next((child for child in node.children if child.type == "heredoc_end"), None)
    if last is not None and raw[last.end_byte : last.end_byte + 1] not in (b"", b"\n"):
        return True
    start = next((source(child) for child in node.children if child.type == "heredoc_start"), "")
    end = re.sub(r"['\"\\]", "", start)
    if not end or re.search(r"[;&|<>()$`\s]", start):
        return True
    return any(text.lstrip("\t") == end for text in document(node)[0].splitlines())


def _has_backquotes(node: Node) -> bool:
    if node.type == "heredoc_redirect":
        body, expanded = document(node)
        return expanded and "`" in body
    text = source(node)
    return node.type == "command_substitution" and text.startswith("`") and "\\`" in text


def _split_expansion(node: Node, raw: bytes) -> bool:
    r"""Returns True if a substitution begins inside the text of a string or a here-document.

    The grammar reads `$ $(rm x)` as the variable `$ $` and plain text.
    """
    if node.type == "simple_expansion":
        # Between two expansions of a string, the grammar puts the blanks into the second one.
        return re.fullmatch(r"\s*\$(?:\w+|[-?#$!@*])", source(node)) is None
    if node.type not in ("string", "heredoc_body") or not _expands(node):
        return False
    starts = {each.start_byte for each in every(node) if each.type in _SUBSTITUTIONS}
    inside = [(each.start_byte, each.end_byte) for each in every(node) if each.type in _SUBSTITUTIONS]
    text = raw[node.start_byte : node.end_byte]
    for match in re.finditer(rb"(?<!\\)(?:\\\\)*(?P<sign>\$\(|`)", text):
        at = node.start_byte + match.start("sign")
        if at not in starts and not any(start < at < end for start, end in inside):
            return True
    return False


def _expands(node: Node) -> bool:
    """Returns True if the shell expands the text of a string or of the body of a here-document."""
    return node.type == "string" or node.parent is None or document(node.parent)[1]


_SUBSTITUTIONS = ("command_substitution", "arithmetic_expansion", "process_substitution", "expansion")

_NAMES = """
ansi_c_string arithmetic_expansion array binary_expression brace_expression c_style_for_statement case_item
case_statement command command_name command_substitution comment compound_statement concatenation
declaration_command do_group elif_clause else_clause expansion extglob_pattern file_descriptor file_redirect
for_statement function_definition heredoc_body heredoc_content heredoc_end heredoc_redirect heredoc_start
herestring_redirect if_statement list negated_command number parenthesized_expression pipeline
postfix_expression process_substitution program raw_string redirected_statement regex simple_expansion
special_variable_name string string_content subscript subshell ternary_expression test_command test_operator
translated_string unary_expression unset_command variable_assignment variable_assignments variable_name
while_statement word
"""
KNOWN = frozenset(_NAMES.split())
"""The node types that the classification can read; a later version of the grammar may have others."""

NO_COMMENT = frozenset(
    (
        "array",
        "command",
        "concatenation",
        "expansion",
        "file_redirect",
        "heredoc_redirect",
        "herestring_redirect",
        "string",
        "test_command",
        "variable_assignment",
    )
)
"""Types of nodes inside which a `#` may be a plain character and not the start of a comment."""

_REDIRECTS = ("file_redirect", "herestring_redirect")
_APART = (
    "array",
    "case_statement",
    "declaration_command",
    "for_statement",
    "herestring_redirect",
    "unset_command",
)
_ENDS = (";;", ";&", ";;&")

TROUBLES: Mapping[str, Callable[[Node, bytes], bool]] = {
    "this is not complete shell syntax": lambda node, _: (
        node.type == "ERROR"
        or node.is_missing
        or (node.type in _ENDS and (node.parent is None or node.parent.type != "case_item"))
        or (node.type == "compound_statement" and not node.named_children)
    ),
    "the rules do not know this part of the syntax": lambda node, _: (
        node.is_named and node.type not in KNOWN and node.type != "ERROR"
    ),
    "a redirect goes on after the end of its line": lambda node, _: (
        node.type in _REDIRECTS and bool(re.match(r"[\d&<>|-]*\s*\n", source(node)))
    ),
    "the end of a word is unclear": lambda node, _: (
        node.type == "word"
        and bool(re.search(r"[\s;&|<>()\"'`]", re.sub(r"(?s)\\.", "", source(node))))
        and not (re.fullmatch(r"[ \w.,:/-]*", source(node)) and _is_within_string(node))
    ),
    "a blank here may be part of a word": _has_escaped_blank,
    "two words here may be one": lambda node, _: (
        node.is_named
        and node.parent is not None
        and (node.type == "variable_assignment" or node.parent.type in _APART)
        and node.next_named_sibling is not None
        and node.next_named_sibling.start_byte == node.end_byte
    ),
    "the text after # may not be a comment": lambda node, raw: (
        node.type == "comment" and not _begins(node, raw)
    ),
    "the end of this here-document is unclear": lambda node, raw: (
        node.type == "heredoc_redirect" and _unclear(node, raw)
    ),
    "a command in backquotes cannot be read here": lambda node, _: _has_backquotes(node),
    "a substitution here cannot be read": _split_expansion,
    "the shell may end this test at the end of its first line": lambda node, _: (
        node.type == "test_command" and "\n" in CONTINUED.sub(r"\1", source(node))
    ),
}
"""The cases in which tree-sitter's grammar and the shell may differ, by their reason."""
