"""The block that the model reads: the task as the user's own words, then the digest as quoted lines.

A line has a label and items. An item is a text, or a value behind its name: `order_id=Z-20931`. Values of one
name that are single words share the name: `path=src/a.py, src/b.py`, and paths of one folder share the
folder: `path=src/cask/{a.py, b.py}`. `read_block` reads what `write_block` has written.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from ullage.fitting.values import SEPARATOR, VALUE_CHARS, clean, one_line
from ullage.text import DIGEST_CLOSE, DIGEST_OPEN, TASK_CLOSE, TASK_OPEN, disarm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LINE_CHARS = 240
"""Characters after which a line of the block is broken."""
LIST_CHARS = 120
"""Characters after which a list of values with one name is broken."""
FOLDER_CHARS = 8
"""A shorter folder is written with each of its paths."""
SHARED_CHARS = 20
"""The same for a folder of which the paths are in different folders."""

LineItem: TypeAlias = tuple[str, str]
"""A value and its name; the name is empty if it has none."""

NAMED = re.compile(r"([\w.\-\[\]]{1,40})=(.+)", re.DOTALL)
_IN_FOLDER = re.compile(r"(\S*/)\{([^{}\s]+(?:, [^{}\s]+)+)\}")


def write_block(task: str, lines: Sequence[str]) -> str:
    """Returns the block with a task (from `clean_task`) and quoted lines; empty if both are empty."""
    parts = []
    if task:
        parts.append(_fence_task(task))
    if lines:
        parts.append("\n".join([DIGEST_OPEN, *map(_quote, lines), DIGEST_CLOSE]))
    return "\n\n".join(parts)


@lru_cache(256)
def _fence_task(task: str) -> str:
    """Returns the task between its fences; remembered, because each trim writes it again."""
    return f"{TASK_OPEN}\n{disarm(task)}\n{TASK_CLOSE}"


@lru_cache(4_000)
def _quote(line: str) -> str:
    """Returns a line as a quotation; remembered, because a block is written several times until it fits."""
    return disarm(f"> {line}")


def clean_task(task: str | None) -> str:
    """Returns the task without line separators other than a newline; empty if there is no task."""
    lines = [one_line(line).rstrip() for line in (task or "").splitlines()]
    return "\n".join(lines).strip()


def write_lines(title: str, items: Iterable[LineItem]) -> Iterator[str]:
    """Returns the lines of one label. The value that the label itself shows is left out."""
    line, start = "", f"{title}: "
    for text in _texts(items, read_value(title)):
        if line and len(line) + len(text) > LINE_CHARS:
            yield line
            line, start = "", "  "
        line = f"{line}{SEPARATOR}{text}" if line else start + text
    if line:
        yield line


def read_value(title: str) -> str:
    """Returns the value of the argument that a label shows."""
    return title.partition("=")[2][:-1] if title[-1:] == ")" else ""


def _texts(items: Iterable[LineItem], shown: str) -> Iterator[str]:
    """Returns the texts of items. Successive values of the same name become one text."""
    name = ""
    values: list[str] = []
    for own, value in items:
        if value == shown or (shown and ": " in value and value.replace(": ", ":") == shown):
            continue  # a label has no colon followed by a space
        if values and own == name and own and " " not in value:
            values.append(value)
            continue
        yield from _list_values(name, values)
        name, values = own, [value]
        if not own or " " in value:
            yield from _list_values(own, values)
            values = []
    yield from _list_values(name, values)


def _list_values(name: str, values: Sequence[str]) -> Iterator[str]:
    """Returns a name with a list of its values, split if the list is long."""
    if not name:
        yield from values
        return
    part: list[str] = []
    size = 0
    for text in _by_folder(values):
        if part and size + len(text) > LIST_CHARS:
            yield f"{name}={', '.join(part)}"
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield f"{name}={', '.join(part)}"


def _by_folder(values: Sequence[str]) -> Iterator[str]:
    """Returns the values. Successive paths of one folder become one text, with the folder written once."""
    at = 0
    while at < len(values):
        folder, slash, _ = values[at].rpartition("/")
        end, size = at, len(folder)
        if len(folder) >= FOLDER_CHARS:
            folder += slash
            while end < len(values) and size < LIST_CHARS and _is_in(folder, values[end]):
                size += len(values[end]) - len(folder)
                end += 1
        if end - at < 2:
            folder = _find_shared_folder(values[at : at + 2])
            end, size = at, len(folder)
            while folder and end < len(values) and size < LIST_CHARS and _is_below(folder, values[end]):
                size += len(values[end]) - len(folder)
                end += 1
        if end - at < 2:
            yield values[at]
            at += 1
        else:
            yield f"{folder}{{{', '.join([value[len(folder) :] for value in values[at:end]])}}}"
            at = end


def _find_shared_folder(paths: Sequence[str]) -> str:
    """Returns the folder that two paths are both below, with its slash; empty if it is short."""
    if len(paths) < 2 or paths[0][:SHARED_CHARS] != paths[1][:SHARED_CHARS]:
        return ""
    folders = [path.split("/")[:-1] for path in paths]
    both = takewhile(lambda names: names[0] == names[1], zip(folders[0], folders[-1], strict=False))
    folder = "/".join([name for name, _ in both])
    return f"{folder}/" if len(folder) >= SHARED_CHARS else ""


def _is_below(folder: str, path: str) -> bool:
    return path.startswith(folder) and path != folder and "{" not in path and "}" not in path


def _is_in(folder: str, path: str) -> bool:
    name = path.removeprefix(folder)
    return name not in {path, ""} and "/" not in name and "{" not in path and "}" not in path


def read_block(block: str) -> tuple[str | None, list[tuple[str, list[LineItem]]]]:
    """Returns the task, and the label and the items of each line."""
    task: list[str] | None = None
    is_task = False
    lines: list[tuple[str, list[str]]] = []
    for line in block.split("\n"):
        if is_task:
            is_task = line != TASK_CLOSE
            if is_task and task is not None:
                task.append(line)
        elif line == TASK_OPEN and task is None and not lines:
            task, is_task = [], True
        elif line.startswith(">   ") and lines:
            lines[-1][1].extend(line[4:].split(SEPARATOR))
        elif line.startswith("> "):
            title, _, rest = line[2:].partition(": ")
            lines.append((title, rest.split(SEPARATOR)))
    return clean_task("\n".join(task)) or None if task else None, _with_items(lines)


def read_quoted_lines(block: str) -> tuple[str, ...]:
    """Returns the quoted lines of a block."""
    quoted = block[block.rfind(DIGEST_OPEN) :] if DIGEST_OPEN in block else ""
    return tuple([line[2:] for line in quoted.split("\n") if line.startswith("> ")])


def _with_items(lines: Iterable[tuple[str, list[str]]]) -> list[tuple[str, list[LineItem]]]:
    raw = [(title, [_split_name(clean(text)) for text in texts]) for title, texts in lines]
    often = Counter([part for _, items in raw for name, text in items for part in _parts(name, text)])
    found = []
    for title, items in raw:
        each: list[LineItem] = []
        for name, text in items:
            parts = _parts(name, text)
            # A value may look like a list: "Paris, France". It stays whole if a part stands elsewhere, too.
            whole = any(often[part] > 1 for part in parts)
            each += [(name, part[:VALUE_CHARS]) for part in ([text] if whole else parts) if part]
        if each:
            found.append((title, each))
    return found


def _split_name(text: str) -> LineItem:
    named = NAMED.fullmatch(text) if "=" in text else None
    return (named[1], named[2]) if named else ("", text)


def _parts(name: str, text: str) -> list[str]:
    """Returns the values of a list; a text that is not a list is the only value."""
    if not name or ", " not in text:
        return [text]
    texts = _split_list(text)
    values: list[str] = []
    for each in texts:
        folder = _IN_FOLDER.fullmatch(each) if each[-1:] == "}" else None
        if not folder and (not each or any(map(str.isspace, each))):
            return [text]
        values += [folder[1] + name for name in folder[2].split(", ")] if folder else [each]
    return values


def _split_list(text: str) -> list[str]:
    """Returns the parts between the commas of a list; paths in the braces of a folder are one part."""
    texts: list[str] = []
    opened: list[str] = []
    for part in text.split(", "):
        if opened or ("/{" in part and "}" not in part):
            opened.append(part)
            if part[-1:] == "}":
                texts.append(", ".join(opened))
                opened = []
        else:
            texts.append(part)
    return texts + opened
