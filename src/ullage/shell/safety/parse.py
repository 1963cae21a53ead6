"""A command line as a tree, by the bash grammar of tree-sitter, and what that grammar is known to miss.

The parser is the one of editors: it goes on after an error, and it takes some constructs for letters. Nothing
here repairs that. A tree with an error in it, or a construct that the grammar is known to read wrongly, is
reported, and the line is then never less than unknown.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from ullage.shell.safety.words import source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tree_sitter import Node, Parser

MOST = 8_000
"""Characters of a line that are looked at; a longer one is unknown."""

CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n")


@functools.cache
def _parser() -> Parser:
    import tree_sitter  # noqa: PLC0415 - a shared library: loaded by the first line that is classified
    import tree_sitter_bash  # noqa: PLC0415 - the same

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


# The scanner of the grammar looks characters up in a table of 256, and crashes on some that are beyond it.
# To the shell, a byte that is not ASCII is a letter of a word, but not of a name: so is this.
_LETTERS = bytes(range(128)) + b"%" * 128


def parse(line: str) -> Node:
    """The tree of a line; `trouble` tells whether it can be relied on."""
    return _parser().parse(encoded(line).translate(_LETTERS)).root_node


def encoded(line: str) -> bytes:
    """The bytes of a line; a lone surrogate is a question mark."""
    return line.encode("utf-8", "replace")


def parses(line: str) -> bool:
    """Whether a line is whole shell grammar."""
    return len(line) <= MOST and not parse(line).has_error


def readings(line: str) -> list[str]:
    """The texts that a line may stand for; the worst of them counts.

    Lines that a backslash continues are looked at apart and joined: the shell joins them everywhere but in
    comments and single quotes, and looking at both is simpler than knowing where. A line that begins with a
    backslash is set off by a blank: the grammar would read it as one more word of the line before.
    """
    joined = CONTINUED.sub(r"\1", line)
    return list(dict.fromkeys([line, joined, joined.replace("\n\\", "\n \\")]))


def every(node: Node) -> Iterator[Node]:
    """A node and all below it, in the order of the text."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(current.children)


def trouble(node: Node, raw: bytes) -> str | None:
    """Why this node of the line `raw` cannot be trusted; None where it can."""
    return next((reason for reason, wrong in TROUBLES.items() if wrong(node, raw)), None)


def _begins(comment: Node, raw: bytes) -> bool:
    """Whether a comment begins where the shell begins one; the grammar takes an escaped blank for one."""
    parent = comment.parent
    if parent is not None and parent.type in NO_COMMENT:
        return False
    before = raw[: comment.start_byte]
    return not before or bool(re.search(rb"(?:^|[^\\])(?:\\\\)*[\s;&|()]$", before))


def document(node: Node) -> tuple[str, bool]:
    """The body of a here-document, and whether the shell expands it."""
    start = next((source(child) for child in node.children if child.type == "heredoc_start"), "")
    body = next((source(child) for child in node.children if child.type == "heredoc_body"), "")
    return body, not re.search(r"['\"\\]", start)


def _escaped_blank(node: Node, raw: bytes) -> bool:
    """Whether a backslash stands between the parts: the grammar takes an escaped blank for a blank."""
    if node.type in ("string", "heredoc_body", "heredoc_redirect", "translated_string"):
        return False
    end = 0 if node.parent is None else node.start_byte
    for child in node.children:
        if b"\\" in raw[end : child.start_byte].replace(b"\\\n", b""):
            return True
        end = child.end_byte
    return False


def _unclear(node: Node) -> bool:
    """A here-document ends where its word stands alone; the grammar is not trusted to have seen that."""
    start = next((source(child) for child in node.children if child.type == "heredoc_start"), "")
    end = re.sub(r"['\"\\]", "", start)
    if not end or re.search(r"[;&|<>()$`\s]", start):
        return True
    return any(text.lstrip("\t") == end for text in document(node)[0].splitlines())


def _backquoted(node: Node) -> bool:
    if node.type == "heredoc_redirect":
        body, expanded = document(node)
        return expanded and "`" in body
    text = source(node)
    return node.type == "command_substitution" and text.startswith("`") and "\\`" in text


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
"""The kinds of node that the classification knows how to read. A grammar of tomorrow may have others."""

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
"""The kinds of node in the middle of which the shell sees no comment, or not always."""

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
    "this is not whole shell grammar": lambda node, _: (
        node.type == "ERROR"
        or node.is_missing
        or (node.type in _ENDS and (node.parent is None or node.parent.type != "case_item"))
        or (node.type == "compound_statement" and not node.named_children)
    ),
    "the rules do not know this part of the grammar": lambda node, _: (
        node.is_named and node.type not in KNOWN and node.type != "ERROR"
    ),
    "a redirect goes on behind the end of its line": lambda node, _: (
        node.type in _REDIRECTS and bool(re.match(r"[\d&<>|-]*\s*\n", source(node)))
    ),
    "the end of a word is unclear": lambda node, _: (
        node.type == "word" and bool(re.search(r"[\s;&|<>()\"'`]", re.sub(r"(?s)\\.", "", source(node))))
    ),
    "a blank here may be part of a word": _escaped_blank,
    "two words here may be one": lambda node, _: (
        node.is_named
        and node.parent is not None
        and (node.type == "variable_assignment" or node.parent.type in _APART)
        and node.next_named_sibling is not None
        and node.next_named_sibling.start_byte == node.end_byte
    ),
    "what follows may be no comment": lambda node, raw: node.type == "comment" and not _begins(node, raw),
    "the end of this here-document is unclear": lambda node, _: (
        node.type == "heredoc_redirect" and _unclear(node)
    ),
    "backquotes stand where they cannot be read": lambda node, _: _backquoted(node),
}
"""Where the grammar of tree-sitter and the shell differ, or may."""
