"""Completion scripts for bash, zsh and fish, written from the tree of commands.

A script is static: it never starts `ullage`, so that completion is immediate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.cli.command_tree import command_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ullage.cli.command_tree import Argument, CommandNode


def completion_script(shell: str) -> str:
    """Returns the script for a shell, one of `SHELLS`."""
    return "\n".join(SHELLS[shell](command_tree())) + "\n"


def _place(node: CommandNode) -> str:
    return "".join(f"/{part}" for part in node.path)


def _words(node: CommandNode) -> list[str]:
    """Returns the words without a dash that may follow: commands, actions, or values of the first word."""
    if node.children:
        return [child.path[-1] for child in node.children]
    first = next((each for each in node.arguments if not each.flags), None)
    return [] if first is None else list(first.words)


def _takes_files(node: CommandNode) -> bool:
    return any(each.is_file for each in node.arguments if not each.flags)


def _flags(node: CommandNode) -> list[str]:
    return [flag for each in node.arguments for flag in each.flags]


# bash


def _bash(root: CommandNode) -> Iterator[str]:
    yield "# Completion of ullage for bash. Load it: source <(ullage completions bash)"
    yield "_ullage() {"
    yield "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} place= words= files= i"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    places = "|".join(_place(node) for node in root.walk() if node.path)
    yield '        case "$place/${COMP_WORDS[i]}" in'
    yield f'            {places}) place="$place/${{COMP_WORDS[i]}}" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$place $prev" in'
    for node in root.walk():
        for each in node.arguments:
            if each.flags and each.value:
                pattern = "|".join(f'"{_place(node)} {flag}"' for flag in each.flags)
                yield f"        {pattern}) {_bash_value(each)} ;;"
    yield "    esac"
    yield '    case "$place" in'
    for node in root.walk():
        files = "files=1 " if _takes_files(node) else ""
        words = " ".join(_words(node))
        yield f'        "{_place(node)}")'
        yield f'            {files}words="{words}"'
        yield f'            [[ $cur == -* ]] && words="{" ".join(_flags(node))}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "    [[ -n $files && $cur != -* ]] && compopt -o default 2> /dev/null"
    yield "    return 0"
    yield "}"
    yield "complete -F _ullage ullage"


def _bash_value(argument: Argument) -> str:
    if argument.words:
        return f'COMPREPLY=($(compgen -W "{" ".join(argument.words)}" -- "$cur")); return'
    if argument.is_file:
        return "COMPREPLY=(); compopt -o default 2> /dev/null; return"
    return "COMPREPLY=(); return"


# zsh


def _zsh(root: CommandNode) -> Iterator[str]:
    yield "#compdef ullage"
    yield "# Completion of ullage for zsh. Load it after compinit: source <(ullage completions zsh)"
    for node in root.walk():
        yield f"{_zsh_name(node)}() {{"
        yield from _zsh_children(node) if node.children else _zsh_leaf(node)
        yield "}"
    yield 'if [[ "${funcstack[1]}" == _ullage ]]; then'
    yield '    _ullage "$@"'
    yield "else"
    yield "    compdef _ullage ullage"
    yield "fi"


def _zsh_name(node: CommandNode) -> str:
    return "_ullage" + "".join(f"_{part}" for part in node.path)


def _zsh_children(node: CommandNode) -> Iterator[str]:
    yield "    local context state line curcontext=$curcontext"
    yield "    typeset -A opt_args"
    yield "    local -a names=("
    for child in node.children:
        yield f"        {_zsh_quoted(f'{child.path[-1]}:{child.brief}')}"
    yield "    )"
    yield "    _arguments -C \\"
    for each in node.arguments:
        yield f"        {_zsh_option(each)} \\"
    yield "        '1: :->name' '*:: :->rest'"
    yield "    case $state in"
    yield "        name) _describe command names ;;"
    yield "        rest)"
    yield "            case $words[1] in"
    for child in node.children:
        yield f"                {child.path[-1]}) {_zsh_name(child)} ;;"
    yield "            esac ;;"
    yield "    esac"


def _zsh_leaf(node: CommandNode) -> Iterator[str]:
    yield "    _arguments \\"
    for each in node.arguments:
        if each.flags:
            yield f"        {_zsh_option(each)} \\"
    words = [each for each in node.arguments if not each.flags]
    for number, each in enumerate(words, 1):
        place = "*" if each.is_repeated else str(number)
        yield f"        {_zsh_quoted(f'{place}:{each.value}:{_zsh_value(each)}')} \\"
    yield "        && return 0"


def _zsh_option(argument: Argument) -> str:
    flags = " ".join(argument.flags)
    about = argument.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = f":{argument.value}:{_zsh_value(argument)}" if argument.value else ""
    names = ",".join(argument.flags)
    group = f"'({flags})'" if len(argument.flags) > 1 else ""
    named = f"{group}{{{names}}}" if len(argument.flags) > 1 else names
    return named + _zsh_quoted(f"[{about}]{value}")


def _zsh_value(argument: Argument) -> str:
    if argument.words:
        return f"({' '.join(argument.words)})"
    return "_files" if argument.is_file else " "


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# fish


def _fish(root: CommandNode) -> Iterator[str]:
    yield "# Completion of ullage for fish. Load it: ullage completions fish | source"
    yield "function __ullage_at"
    yield "    set -l place ''"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        switch "$place/$word"'
    yield f"            case {' '.join(_place(node) for node in root.walk() if node.path)}"
    yield '                set place "$place/$word"'
    yield "        end"
    yield "    end"
    yield '    test "$place" = "$argv[1]"'
    yield "end"
    yield "complete -c ullage -f"
    for node in root.walk():
        begin = f"complete -c ullage -n {_fish_quoted(f'__ullage_at {_place(node)}'.rstrip())}"
        for child in node.children:
            yield f"{begin} -a {child.path[-1]} -d {_fish_quoted(child.brief)}"
        if not node.children and _words(node):
            yield f"{begin} -a {_fish_quoted(' '.join(_words(node)))}"
        if _takes_files(node):
            yield f"{begin} -F"
        for each in node.arguments:
            if each.flags:
                yield f"{begin} {_fish_option(each)}"


def _fish_option(argument: Argument) -> str:
    names = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in argument.flags]
    if argument.words:
        names.append(f"-x -a {_fish_quoted(' '.join(argument.words))}")
    elif argument.value:
        names.append("-r -F" if argument.is_file else "-x")
    return f"{' '.join(names)} -d {_fish_quoted(argument.help)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Mapping[str, Callable[[CommandNode], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""The function that writes the lines of each shell's script."""
