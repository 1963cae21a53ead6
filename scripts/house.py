"""Measures how a package reads: `python scripts/house.py [FOLDER ...]` prints one row a folder.

Without a folder it measures Ullage. The folder of any installed package can stand beside it, for instance
`python scripts/house.py src/ullage .venv/lib/python3*/site-packages/httpx`. `--list` also prints the names
behind the last six figures.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OURS = Path(__file__).parents[1] / "src" / "ullage"
GERUNDS_ALLOWED = frozenset({"fitting", "testing"})
"""`fitting` is what Ullage does, and `testing` is the usual name of a module with fakes."""
RIDDLES = re.compile(r"(What|Whether|How|Where|Who)\b|(?s:.*)\b[Ww]hat\b[^.]*\bwhat\b")
"""Docstrings that begin with one of these words name no noun. Nor does a sentence with two "what"s."""
VERB = re.compile(r"[A-Z][a-z]+s\b(?<!This)")
"""The first word of a docstring that says what its function does."""
VALUES = re.compile(r"property|contextmanager|setter|command")
"""Decorators of functions that stand for a value or a block, or whose docstring is a help text."""
ALIAS = re.compile(r"[A-Z]\w*[a-z]\w*")
"""The name of a class or of a type alias: it begins with a capital and is not a constant."""

PUBLIC = frozenset({"_replace", "_asdict", "_fields", "_make", "_exit"})
"""Documented names that begin with an underscore: those of a NamedTuple, and `os._exit`."""


@dataclass(slots=True)
class Module:
    """One parsed file."""

    name: str
    """With dots, from the package's own name on."""
    text: str
    tree: ast.Module
    is_package: bool


@dataclass(slots=True)
class Figures:
    """The measures of one package."""

    modules: list[int] = field(default_factory=list)
    """Lines of each module."""
    functions: list[int] = field(default_factory=list)
    """Lines of each function, from its `def` to its end."""
    parameters: list[int] = field(default_factory=list)
    """Parameters of each function without self and cls."""
    noqa: int = 0
    any: int = 0
    riddles: list[str] = field(default_factory=list)
    """Docstrings that begin like a question, or have two "what"s in a sentence."""
    twice: list[str] = field(default_factory=list)
    """Names of public classes and type aliases that occur more than once."""
    gerunds: list[str] = field(default_factory=list)
    """Modules whose name ends in -ing."""
    verbless: list[str] = field(default_factory=list)
    """Functions whose docstring does not begin with what they do: "Returns", "Writes"."""
    cycles: list[str] = field(default_factory=list)
    """Groups of modules that import each other when they are loaded."""
    private: list[str] = field(default_factory=list)
    """Accesses to a private name of another module's object."""


def main() -> None:
    """Prints the table, and the names behind it if they are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[OURS], metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="print the names behind the figures")
    options = parser.parse_args()
    print(
        f"{'package':<14}{'modules':>8}{'median':>7}{'max':>6}{'functions':>10}{'p50':>5}{'p90':>5}{'max':>5}"
        f"{'params p90/max':>15}{'noqa/k':>7}{'Any/k':>6}{'riddles':>8}"
        f"{'verbless':>9}{'twice':>6}{'-ing':>5}{'cycles':>7}"
        f"{'private':>8}"
    )
    for folder in options.folders:
        if not list(folder.glob("*.py")):
            sys.exit(f"{folder} has no Python files: name the folder of a package")
        figures = measure(folder)
        print(_row(folder.name, figures))
        if options.list:
            for name in ("riddles", "verbless", "twice", "gerunds", "cycles", "private"):
                for each in getattr(figures, name):
                    print(f"  {name}: {each}")


def measure(folder: Path) -> Figures:
    """The figures of the package in a folder."""
    modules = list(_parsed(folder))
    figures = Figures()
    classes: Counter[str] = Counter()
    for module in modules:
        lines = module.text.count("\n")
        figures.modules.append(lines)
        figures.noqa += module.text.count("# noqa")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                figures.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
                figures.parameters.append(_parameters(node))
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name] += 1
            elif isinstance(node, ast.Name) and node.id == "Any":
                figures.any += 1
        classes.update(_aliases(module))
        figures.riddles += [f"{module.name}: {text}" for text in _docstrings(module) if RIDDLES.match(text)]
        figures.private += [f"{module.name}: {access}" for access in _private_accesses(module)]
        last = module.name.rpartition(".")[2]
        if last.endswith("ing") and last not in GERUNDS_ALLOWED:
            figures.gerunds.append(module.name)
        figures.verbless += [f"{module.name}: {name}" for name in _verbless(module)]
    figures.twice = sorted(name for name, count in classes.items() if count > 1)
    figures.cycles = [" ".join(sorted(group)) for group in _cycles(modules)]
    return figures


def _row(name: str, figures: Figures) -> str:
    thousands = sum(figures.modules) / 1000
    functions, parameters = sorted(figures.functions), sorted(figures.parameters)
    return (
        f"{name:<14}{len(figures.modules):>8}{statistics.median(figures.modules):>7.0f}{max(figures.modules):>6}"
        f"{len(functions):>10}{_share(functions, 0.5):>5}{_share(functions, 0.9):>5}{functions[-1]:>5}"
        f"{f'{_share(parameters, 0.9)}/{parameters[-1]}':>15}{figures.noqa / thousands:>7.1f}"
        f"{figures.any / thousands:>6.1f}{len(figures.riddles):>8}{len(figures.verbless):>9}"
        f"{len(figures.twice):>6}{len(figures.gerunds):>5}{len(figures.cycles):>7}{len(figures.private):>8}"
    )


def _share(ordered: list[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _parsed(folder: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield Module(name, text, ast.parse(text), is_package)


def _aliases(module: Module) -> Iterator[str]:
    """The public names at the top of a module that are assigned and written like the name of a class."""
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and ALIAS.fullmatch(target.id):
                yield target.id


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = node.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def _docstrings(module: Module) -> Iterator[str]:
    """The docstrings of the module, its classes, functions, fields and constants."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text
        body = getattr(node, "body", None)
        for before, after in pairwise(body) if isinstance(body, list) else ():
            if (
                isinstance(before, ast.Assign | ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                yield after.value.value


def _verbless(module: Module) -> Iterator[str]:
    """The functions whose docstring does not begin with a verb; properties and contexts are values."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            is_value = any(VALUES.search(ast.unparse(decorator)) for decorator in node.decorator_list)
            text = ast.get_docstring(node)
            if text and not is_value and not VERB.match(text):
                yield node.name


def _private_accesses(module: Module) -> Iterator[str]:
    """Accesses to a private attribute that this module does not define itself."""
    own = {
        node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            own |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Attribute)
            and re.match(r"_[a-z]", node.attr)
            and node.attr not in own
            and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
            and node.attr not in PUBLIC
        ):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _cycles(modules: list[Module]) -> list[list[str]]:
    """The groups of modules that reach each other by the imports that run when a module is loaded."""
    names = {module.name for module in modules}
    imports = {module.name: set(_imported(module, names)) - {module.name} for module in modules}
    reached = {name: _reachable(name, imports) for name in imports}
    groups = {
        tuple(sorted({name, *(other for other in reached[name] if name in reached[other])}))
        for name in imports
        if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def _reachable(start: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(imports[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports[name]
    return found


def _imported(module: Module, names: set[str]) -> Iterator[str]:
    """The modules of the same package that are imported when this one is loaded."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node in _top_level(module.tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [base])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                if full in names:
                    yield full
                elif base in names:
                    yield base


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run at import, without those for type checkers."""
    for node in body:
        if isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from _top_level(node.body)
            yield from _top_level(node.orelse)
        elif isinstance(node, ast.Try):
            yield from _top_level(node.body)
        else:
            yield node


if __name__ == "__main__":
    main()
