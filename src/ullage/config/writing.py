"""Settings as text: the file that a user begins with, and all that is in effect."""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ullage.config.building import entries
from ullage.config.keys import ROWS, SECTIONS
from ullage.config.kinds import allowed
from ullage.config.problems import dotted, looks_secret, quoted
from ullage.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ullage.config.keys import Row
    from ullage.config.settings import Settings

WIDTH = 96
HIDDEN = '"…"'
"""What is shown of a text that may be a secret."""

HEAD = """\
# The configuration of Ullage.
#
# A line that begins with # and no blank is a setting with its default: take the # away and change it.
# `ullage config check` says whether all is well, `ullage config show` what is in effect and why.
# A variable such as ULLAGE_COST_CAP_AT_DOLLARS=2 goes before what is written here.
"""


def toml_of(value: Any, row: Row | None = None, *, hides: Callable[[str], bool] | None = None) -> str:
    """A value as TOML writes it, None as the key's own word for it; texts that `hides` says are not shown."""
    if value is None:
        return quoted((row.word if row else None) or "none")
    if isinstance(value, str):
        return HIDDEN if hides is not None and hides(value) else quoted(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{dotted([key])} = {toml_of(each, hides=hides)}" for key, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_of(each, hides=hides) for each in value)}]"
    return f"{value:f}" if isinstance(value, Decimal) else str(value).lower()


def public(value: Any, row: Row) -> str:
    """The same without secrets: values of an environment, and arguments that look like keys."""
    return toml_of(value, row, hides=SECRETS.get(row.kind))


def _is_literal(text: str) -> bool:
    return not text.startswith("env:")


SECRETS: Mapping[str, Callable[[str], bool]] = {
    "pairs": _is_literal,
    "headers": _is_literal,
    "texts": looks_secret,
}
"""By kind of value, the texts in it that are not shown."""


def written(settings: Settings) -> str:
    """All settings as TOML; read again they are the same."""
    return "".join(f"{dotted(path)} = {toml_of(value, row)}\n" for row, path, value in entries(settings))


# The file that a user begins with


def initial() -> str:
    """Every key as a comment, with its default, what it does and what it costs."""
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


def _about(row: Row) -> str:
    return _comment(row.what, f"Cost: {row.cost}", f"Takes {allowed(row)}.")


def _about_named(row: Row) -> str:
    name = ".".join(row.path[row.name.split(".").index(_own(row)) + 1 :]) or _own(row)
    default = "" if name.startswith("<") else f" Default: {toml_of(row.default, row)}."
    return _comment(f"{name}: {row.what}", f"Cost: {row.cost}", f"Takes {allowed(row)}.{default}")


def _comment(*texts: str) -> str:
    import textwrap  # noqa: PLC0415 - only to write a file

    filled = (
        textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
        for text in texts
    )
    return "\n".join(filled)


def _own(row: Row) -> str:
    return next(part for part in row.path if part.startswith("<"))


EXAMPLES = {"models": ["[models.cloud]"], "mcp": ["[mcp.git]"]}
"""How the example of a section with names of the user's own begins, where those are tables."""


def _example(section: str, named: list[Row]) -> str:
    """An example behind three blanks: a comment still where the # of each setting is taken away."""
    lines = [*EXAMPLES.get(section, []), *(row.example for row in named if row.example)]
    return "#\n# For example:\n#\n" + "\n".join(f"#   {line}" for line in lines)


def write_initial(path: Path, *, force: bool = False) -> Path:
    """Writes that file, for its owner only; raises ConfigurationError where there is one, unless by force."""
    target = path.resolve()  # what a link leads to is written, not the link
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(target, initial().encode(), force=force)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{path} is there already and was left as it is; --force writes it anew, without your settings"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}. Name another file") from error
    return target


def _write(target: Path, content: bytes, *, force: bool) -> None:
    """For its owner only from the first byte; what was there before is replaced as a whole or not at all."""
    if not force:
        with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:  # noqa: PTH123
            file.write(content)
        return
    import tempfile  # noqa: PLC0415 - the same

    handle, name = tempfile.mkstemp(prefix=".config-", dir=target.parent)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
            file.flush()
            os.fsync(handle)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
