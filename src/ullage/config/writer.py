"""Writes settings as text: the initial file of a user, and single values."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.config.keys import ROWS, SECTIONS
from ullage.config.kinds import allowed
from ullage.config.problems import join_key, looks_secret, quote_text
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ullage.config.key_row import KeyRow

WIDTH = 96
HIDDEN = '"…"'
"""Shown instead of a text that may be a secret."""

HEAD = """\
# The configuration of Ullage.
#
# A line that begins with # and no blank is a setting with its default.
# To change it, remove the # and edit the value.
# `ullage config check` reports errors. `ullage config show` prints all settings and their sources.
# A variable such as ULLAGE_COST_CAP_AT_DOLLARS=2 overrides this file.
"""


def toml_of(value: Any, row: KeyRow | None = None, *, hides: Callable[[str], bool] | None = None) -> str:
    """Returns a value as TOML; None as the key's word for it, and `HIDDEN` for texts that `hides` selects."""
    if value is None:
        return quote_text((row.word if row else None) or "none")
    if isinstance(value, str):
        return HIDDEN if hides is not None and hides(value) else quote_text(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{join_key([key])} = {toml_of(each, hides=hides)}" for key, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_of(each, hides=hides) for each in value)}]"
    return f"{value:f}" if isinstance(value, Decimal) else str(value).lower()


def public(value: Any, row: KeyRow) -> str:
    """Returns a value as TOML without secrets: values of `env` and `headers`, and arguments like keys."""
    return toml_of(value, row, hides=SECRETS.get(row.kind))


def _is_literal(text: str) -> bool:
    return not text.startswith("env:")


SECRETS: Mapping[str, Callable[[str], bool]] = {
    "pairs": _is_literal,
    "headers": _is_literal,
    "texts": looks_secret,
}
"""For each type of value, a function that returns True for a text that must not be shown."""


# The initial file


def initial() -> str:
    """Returns the initial file: every key as a comment, with its default, its effect and its cost."""
    parts = [HEAD, *_keys("")]
    for section, about in SECTIONS.items():
        parts.append(f"\n\n# {about}\n[{section}]")
        parts += _keys(section)
    return "\n".join(parts) + "\n"


def _keys(section: str) -> Iterator[str]:
    plain = [row for row in ROWS if not row.is_named and row.name.rpartition(".")[0] == section]
    for row in plain:
        yield f"\n{_about(row)}\n#{row.path[-1]} = {toml_of(row.default, row)}"
    named = [row for row in ROWS if row.is_named and row.name.startswith(f"{section}.<")]
    if named:
        yield "\n#\n".join(map(_about_named, named))
        yield _example(section, named)


def _about(row: KeyRow) -> str:
    return _comment(row.what, f"Cost: {row.cost}", f"Allowed: {allowed(row)}.")


def _about_named(row: KeyRow) -> str:
    name = ".".join(row.path[row.name.split(".").index(_own(row)) + 1 :]) or _own(row)
    default = "" if name.startswith("<") else f" Default: {toml_of(row.default, row)}."
    return _comment(f"{name}: {row.what}", f"Cost: {row.cost}", f"Allowed: {allowed(row)}.{default}")


def _comment(*texts: str) -> str:
    import textwrap  # noqa: PLC0415 - only needed to write a file

    filled = (
        textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
        for text in texts
    )
    return "\n".join(filled)


def _own(row: KeyRow) -> str:
    return next(part for part in row.path if part.startswith("<"))


EXAMPLES = {"models": ["[models.cloud]"], "mcp": ["[mcp.git]"]}
"""First lines of the examples, for sections in which the user names tables."""


def _example(section: str, named: list[KeyRow]) -> str:
    """Returns an example, indented so that it remains a comment if the # of each setting is removed."""
    lines = [*EXAMPLES.get(section, []), *(row.example for row in named if row.example)]
    return "#\n# For example:\n#\n" + "\n".join(f"#   {line}" for line in lines)


def write_initial(path: Path, *, force: bool = False) -> Path:
    """Writes the initial file, readable by its owner only.

    Raises ConfigurationError if the file exists, unless `force` is set.
    """
    target = path.resolve()  # keeps a link and writes the file that it points to
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(target, initial().encode(), force=force)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{path} exists and was not changed. --force overwrites it, and your settings in it are lost"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}. Name another file with --config"
        ) from error
    return target


def replace_file(path: Path, content: bytes) -> None:
    """Writes the user's file completely or not at all; an existing file keeps its permissions.

    Raises ConfigurationError if it cannot be written.
    """
    target = path.resolve()  # keeps a link and writes the file that it points to
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
        _replace(target, content, mode)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error


def _write(target: Path, content: bytes, *, force: bool) -> None:
    """Writes a file that only its owner can read; an old file is replaced completely or not at all."""
    if not force:
        with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:  # noqa: PTH123
            file.write(content)
        return
    _replace(target, content, 0o600)


def _replace(target: Path, content: bytes, mode: int) -> None:
    import tempfile  # noqa: PLC0415 - only needed to write a file

    handle, name = tempfile.mkstemp(prefix=".config-", dir=target.parent)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
            os.fchmod(handle, mode)
            file.write(content)
            file.flush()
            os.fsync(handle)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
