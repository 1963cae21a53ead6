"""The state of the shell between two command lines: how a bash takes it over, and how it hands it back.

Every line runs in its own bash, which first takes over the saved state and at its end writes the new one.
So no line can harm the next. After `exit` and `kill $$` the state is the one at that moment; after `exec`
and `kill -9 $$` it is the state before the line; and an open quote ends with its line. One bash for all
lines would also keep `jobs`, `$!` and traps. But each of these cases would need a restart, which loses
them anyway, and a line could break a loop that runs inside that bash.

Bash reads the saved state from a file without a name, and closes it before the line begins. It writes the
new state to another file, which only the shell itself has open. So no descriptor, argument or environment
variable of ours reaches a child.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# These are read-only in bash, or set by bash itself.
_NOT_GIVEN = frozenset(("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "PWD", "SHELLOPTS", "UID"))
_NOT_TAKEN_UP = (b"noexec", b"onecmd")  # with one of these options set, no later line would run
_TRACE = b"set -o xtrace\n"
# Bash sets these when it starts. They are unset, and set again if the state has them.
_FROM_THE_START = b"builtin unset -v HOSTNAME IFS MAILCHECK OLDPWD OPTERR PATH PS4 SHLVL TERM\n"

# Names of variables that belong to one bash process and not to the state.
_OF_ONE_BASH = (
    "BASH|BASHOPTS|BASHPID|BASH_ALIASES|BASH_ARG*|BASH_CMDS|BASH_COMMAND|BASH_EXECUTION_STRING|BASH_LINENO"
    "|BASH_REMATCH|BASH_SOURCE|BASH_SUBSHELL|BASH_VERS*|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HISTCMD"
    "|LINENO|OPTIND|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SRANDOM|UID|_|__ullage_*"
)

# Only builtins are used here, so that an environment that is too large for any program can still be handed
# back (and unset). The options come first, before the rest of the function switches them off.
_DUMP = rf"""
__ullage_dump() {{
  local __ullage_status=$? __ullage_name __ullage_names __ullage_keep=()
  if [[ -n ${{__ullage_done-}} ]]; then return $__ullage_status; fi
  __ullage_done=1
  {{
    builtin set +o; builtin set +efkuvxC; builtin set +o posix
    builtin trap '' INT QUIT TERM HUP; builtin trap - DEBUG ERR RETURN
    builtin printf '\0'; builtin shopt -p
    builtin printf '\0'; builtin pwd
    builtin printf '\0'
    builtin umask -p
    for (( __ullage_name = ${{#DIRSTACK[@]}} - 1; __ullage_name > 0; __ullage_name-- )); do
      builtin printf 'builtin pushd -n %q\n' "${{DIRSTACK[__ullage_name]}}"
    done
    builtin printf '\0'
    builtin mapfile -t __ullage_names < <(builtin compgen -v)
    for __ullage_name in "${{__ullage_names[@]}}"; do
      case $__ullage_name in
        {_OF_ONE_BASH}) ;;
        LINES|COLUMNS) [[ ${{!__ullage_name@a}} != *x* ]] || __ullage_keep+=("$__ullage_name") ;;
        *) __ullage_keep+=("$__ullage_name") ;;
      esac
    done
    builtin declare -p -- "${{__ullage_keep[@]}}"
    builtin unset -f __ullage_dump
    builtin printf '\0'; builtin declare -f; builtin declare -F
    builtin printf '\0'; builtin alias -p
    builtin printf '\0'; builtin compgen -a; builtin compgen -A function
    builtin printf '\0'
    builtin mapfile -t __ullage_names < <(builtin compgen -e)
    for __ullage_name in "${{__ullage_names[@]}}"; do
      [[ ! -v $__ullage_name ]] || builtin printf '%s=%s\0' "$__ullage_name" "${{!__ullage_name}}"
    done
    builtin printf 'end'
    __ullage_dump() {{ :; }}  # the trap may come yet
  }} >| "$__ullage_to" 2>/dev/null
  return $__ullage_status
}}
""".encode()

# The sourced file returns the status of the last line, so the line begins with it in $?. All is one line,
# because after an open quote bash would not read a second line as commands.
INNER = """source /dev/fd/{fd} >/dev/null 2>&1; eval -- "$__ullage_line"; {{ __ullage_dump; }} 2>/dev/null"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BashState:
    """The state of a shell between two lines; each text is what bash reads to restore it."""

    cwd: Path
    environ: Mapping[str, str]
    options: bytes = b""
    shopts: bytes = b"shopt -s expand_aliases\n"
    places: bytes = b""
    """The umask and the stack of directories."""
    variables: bytes = b""
    functions: bytes = b""
    aliases: bytes = b""
    names: frozenset[str] = frozenset()
    """The names of aliases and functions."""
    inherited: Mapping[str, str] | None = None
    """Variables that only a real environment can pass on: exported functions, and names invalid in bash."""


def first(cwd: Path, environ: Mapping[str, str]) -> BashState:
    """Returns the state of a shell that starts in a directory with an environment."""
    plain = {name: value for name, value in environ.items() if _NAME.fullmatch(name)}
    lines = [
        b"builtin declare -x %s=%s\n" % (name.encode(), _quoted(os.fsencode(value)))
        for name, value in plain.items()
        if name not in _NOT_GIVEN
    ]
    inherited = {name: value for name, value in environ.items() if name not in plain}
    return BashState(cwd=cwd, environ=dict(environ), variables=b"".join(lines), inherited=inherited)


def moved(state: BashState, cwd: Path) -> BashState:
    """Returns the same state in another directory."""
    return replace(state, cwd=cwd, environ={**state.environ, "PWD": str(cwd)})


def taken_up(state: BashState, line: str, *, status: int, fd: int, to: Path) -> bytes:
    """Returns the text that gives a new bash its state and line; bash writes the next state to `to`."""
    options = b"".join(
        each for each in state.options.splitlines(keepends=True) if not each.strip().endswith(_NOT_TAKEN_UP)
    )
    if _TRACE in options:  # tracing begins with the line, not with our own commands
        options, line = options.replace(_TRACE, b""), f"set -x\n{line}"
    # With errexit, a status in $? would end bash before the line begins
    strict = b"set -o errexit" in options
    parts = (
        _DUMP,
        _FROM_THE_START if state.options else b"",
        b"builtin cd -- %s\n" % _quoted(os.fsencode(state.cwd)),
        state.variables,
        b"\nbuiltin dirs -c\n",
        state.places,
        b"builtin shopt -s extglob\n",  # a function may have been defined with it
        state.functions,
        state.aliases,
        state.shopts,
        b"__ullage_line=%s\n" % _quoted(encoded(line)),
        b"__ullage_to=%s\n" % _quoted(os.fsencode(to)),
        b"trap '{ __ullage_dump; } 2>/dev/null' EXIT\n",
        b"exec %d<&-\n" % fd,
        options,
        b"" if strict else b"return %d\n" % status,
    )
    return b"".join(parts)


def handed_back(data: bytes, before: BashState) -> BashState:
    """Returns the state that bash wrote; the state before if bash ended before it could write."""
    sections = data.split(b"\0")
    if len(sections) < 9 or sections[-1] != b"end":
        return before
    options, shopts, cwd, places, variables, functions, aliases, names, *entries, _ = sections
    inherited = {
        name: value
        for name, value in (before.inherited or {}).items()
        if not name.startswith("BASH_FUNC_")  # these are among the functions now
    }
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return BashState(
        cwd=Path(os.fsdecode(cwd.removesuffix(b"\n"))) if cwd.startswith(b"/") else before.cwd,
        environ={**inherited, **{name: value for name, _, value in pairs}},
        options=options,
        shopts=shopts,
        places=places,
        variables=variables,
        functions=functions,
        aliases=aliases,
        names=frozenset(names.decode("utf-8", "replace").split()),
        inherited=inherited,
    )


def encoded(line: str) -> bytes:
    """Returns the bytes of a typed text."""
    try:
        return os.fsencode(line)
    except UnicodeEncodeError:  # a lone surrogate stands for no byte
        return line.encode("utf-8", "replace")


def _quoted(data: bytes) -> bytes:
    return b"'" + data.replace(b"\0", b"").replace(b"'", b"'\\''") + b"'"
