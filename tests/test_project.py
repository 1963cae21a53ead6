"""The project's tree: what it shows, what it leaves out, and how little it looks at for that."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage import ConfigurationError
from ullage.project import Tree, TreeOptions, show, tree

Files: TypeAlias = dict[str, Any]
"""A folder: names with a text, or with a folder's own files."""

EVERYTHING = TreeOptions(
    depth=50, max_chars=10**6, max_entries=10**5, max_in_folder=10**4, max_read=10**6, ignore=()
)
NOTE = re.compile(r" \((?:empty|unreadable|(?:at least )?\d+ entr(?:y|ies))\)$")


def plant(root: Path, files: Files) -> Path:
    for name, content in files.items():
        path = root / name
        if isinstance(content, dict):
            path.mkdir(exist_ok=True)
            plant(path, content)
        else:
            path.write_text(content, encoding="utf-8")
    return root


def shown(found: Tree) -> list[str]:
    """The paths that a tree names, read back from its text; folders end in a slash."""
    above: list[str] = []
    paths = []
    for line in found.text.split("\n")[1:]:
        label = line.lstrip(" ")
        depth = (len(line) - len(label)) // 2
        if label.startswith("…"):
            continue
        label = NOTE.sub("", label).split(" -> ")[0]
        folder = "/" if label.endswith("/") else ""
        name = label.removesuffix("/")
        name = ast.literal_eval(name) if name.startswith('"') else name
        above[depth - 1 :] = [name]
        paths.append("/".join(above) + folder)
    return paths


@pytest.fixture(scope="session")
def git() -> str:
    found = shutil.which("git")
    if found is None:
        pytest.skip("git is not installed")
    return found


def run_git(git: str, root: Path, *arguments: str, given: bytes = b"") -> bytes:
    here = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [git, *arguments], cwd=root, input=given, capture_output=True, check=False, env=here
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


def ignored_by_git(git: str, root: Path, paths: list[str]) -> set[str]:
    """Those of the paths that git ignores."""
    names = {path.rstrip("/"): path for path in paths}
    asked = b"".join(os.fsencode(name) + b"\0" for name in names)
    told = run_git(git, root, "check-ignore", "--no-index", "-z", "--stdin", given=asked)
    return {names[os.fsdecode(name)] for name in told.split(b"\0") if name}


# What it shows --------------------------------------------------------------------------------------------


def test_the_first_line_names_the_project_and_no_line_names_the_machine(tmp_path: Path) -> None:
    root = plant(tmp_path, {"shop": {"a.py": "", "docs": {"b.md": ""}, ".env": "", "none": {}}}) / "shop"
    (root / "up").symlink_to(tmp_path)
    found = tree(root)
    lines = ["shop/", "  docs/", "    b.md", "  none/ (empty)", "  .env", "  a.py", "  up -> (absolute path)"]
    assert found.text == "\n".join(lines)
    assert (found.entries, found.cut, found.folders_read, found.entries_read) == (6, False, 3, 6)
    assert str(tmp_path) not in found.text


def test_the_project_is_named_from_inside_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tree(".").text == f"{tmp_path.name}/ (empty)"
    assert tree("/", TreeOptions(depth=0)).text.startswith("/ (")


def test_a_tree_is_read_afresh_each_time(tmp_path: Path) -> None:
    before = tree(tmp_path)
    plant(tmp_path, {"new.py": ""})
    assert shown(before) == []
    assert shown(tree(tmp_path)) == ["new.py"]


def test_a_wide_folder_tells_how_many_more_it_has(tmp_path: Path) -> None:
    plant(tmp_path, {f"{number:04}.txt": "" for number in range(352)})
    lines = tree(tmp_path).text.split("\n")
    assert len(lines) == 1 + 40 + 1
    assert lines[-2:] == ["  0039.txt", "  … 312 more"]


def test_many_folders_do_not_hide_the_files_beside_them(tmp_path: Path) -> None:
    plant(tmp_path, {f"d{number:02}": {} for number in range(50)} | {"README.md": "", "setup.py": ""})
    found = tree(tmp_path, TreeOptions(max_in_folder=10))
    assert shown(found) == [*(f"d{number:02}/" for number in range(8)), "README.md", "setup.py"]
    assert found.text.endswith("\n  … 42 more")


def test_the_deepest_folders_tell_how_much_they_have_and_are_not_gone_into(tmp_path: Path) -> None:
    plant(tmp_path, {"a": {"b": {str(n): {"x": "", "y": ""} for n in range(12)}}, "c": {"one": ""}})
    found = tree(tmp_path, TreeOptions(depth=2))
    assert found.text.split("\n")[1:] == ["  a/", "    b/ (12 entries)", "  c/", "    one"]
    assert found.folders_read == 4
    assert tree(tmp_path, TreeOptions(depth=1)).text.split("\n")[1:] == ["  a/ (1 entry)", "  c/ (1 entry)"]
    assert tree(tmp_path, TreeOptions(depth=0)).text == f"{tmp_path.name}/ (2 entries)"


def test_with_little_room_all_of_a_level_comes_before_anything_deeper(tmp_path: Path) -> None:
    plant(tmp_path, {f"f{number}": {f"file{inner}.py": "" for inner in range(9)} for number in range(9)})
    for room in range(200, 1_700, 25):
        found = tree(tmp_path, TreeOptions(max_chars=room))
        paths = shown(found)
        assert len(found.text) <= room
        assert sum(path.endswith("/") for path in paths) == 9
        each = {path.split("/")[0]: 0 for path in paths}
        for path in paths:
            each[path.split("/")[0]] += not path.endswith("/")
        assert len(set(each.values())) == 1, "every folder of a level shows the same number"
        assert found.cut == (len(paths) < 90)
        if found.cut:
            assert re.search(r"\n… at least \d+ more entr(y|ies) left out: the tree is full$", found.text)


def test_a_tree_that_just_fits_is_not_cut(tmp_path: Path) -> None:
    plant(tmp_path, {f"{number:03}-{'x' * 20}": "" for number in range(30)})
    whole = tree(tmp_path)
    assert tree(tmp_path, TreeOptions(max_chars=len(whole.text))) == whole
    assert tree(tmp_path, TreeOptions(max_chars=len(whole.text) - 1)).cut
    assert tree(tmp_path, TreeOptions(max_entries=30)) == whole
    assert tree(tmp_path, TreeOptions(max_entries=29)).entries == 29


# What it looks at -----------------------------------------------------------------------------------------


def test_a_huge_tree_is_not_walked(tmp_path: Path) -> None:
    for folder in range(50):
        inner = tmp_path / f"d{folder:02}" / "inner"
        inner.mkdir(parents=True)
        for number in range(100):
            (inner / f"{number}.txt").touch()
    found = tree(tmp_path, TreeOptions(max_in_folder=10))
    assert (found.folders_read, found.entries_read) == (21, 50 + 10 + 1_000)
    shallow = tree(tmp_path, TreeOptions(depth=1, max_in_folder=10))
    assert (shallow.folders_read, shallow.entries_read) == (11, 50 + 10)
    capped = tree(tmp_path, TreeOptions(max_in_folder=10, max_read=500))
    assert capped.entries_read == 500
    assert capped.text.endswith("… 1 folder not read: the project has too many entries")


def test_of_one_huge_folder_only_a_part_is_looked_at(tmp_path: Path) -> None:
    plant(tmp_path, {"data": {f"{number}.bin": "" for number in range(300)}, "src": {"a.py": ""}})
    found = tree(tmp_path, TreeOptions(max_read=1_000, max_in_folder=5))
    assert found.entries_read == 2 + 100 + 1
    assert "    … at least 95 more\n" in found.text
    assert "src/a.py" in shown(found)
    assert "  data/ (at least 100 entries)\n" in tree(tmp_path, TreeOptions(max_read=1_000, depth=1)).text


def test_links_are_shown_and_not_followed(tmp_path: Path) -> None:
    plant(tmp_path, {"a": {"b": {}}, "real.txt": ""})
    (tmp_path / "a" / "b" / "round").symlink_to("../..")
    (tmp_path / "gone").symlink_to("nowhere\nat all")
    (tmp_path / "link").symlink_to("real.txt")
    lines = tree(tmp_path, EVERYTHING).text.split("\n")[1:]
    assert lines[:3] == ["  a/", "    b/", "      round -> ../.."]
    assert lines[3:] == [r'  gone -> "nowhere\nat all"', "  link -> real.txt", "  real.txt"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no such modes here")
def test_a_folder_that_cannot_be_read_is_shown_as_that() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = plant(Path(folder), {"locked": {"in": ""}, "open": {"a": ""}})
        root.chmod(0o755)
        (root / "locked").chmod(0)
        tree(root)
        before = os.geteuid()
        try:
            if before == 0:
                os.seteuid(65_534)  # root reads everything
            found = tree(root)
        finally:
            os.seteuid(before)
        (root / "locked").chmod(0o755)
    assert found.text.split("\n")[1:] == ["  locked/ (unreadable)", "  open/", "    a"]


@pytest.mark.parametrize("name", ["missing", "file", "no\0name", "round"])
def test_a_project_that_is_no_folder_is_a_configuration_error(tmp_path: Path, name: str) -> None:
    plant(tmp_path, {"file": ""})
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ConfigurationError, match=":tree off"):
        tree(f"{tmp_path}/{name}")


@pytest.mark.parametrize("option", ["depth", "max_chars", "max_entries", "max_in_folder", "max_read"])
def test_a_cap_that_cannot_work_is_a_configuration_error(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option} is -1: set it to"):
        TreeOptions(**{option: -1})


def test_patterns_are_not_loaded_before_a_tree_is_asked_for() -> None:
    code = "import sys, ullage.project; sys.exit('pathspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("naïve file (1).txt", "naïve file (1).txt"),
        ("日本語.md", "日本語.md"),
        ("[slug]", "[slug]"),
        ("a\nsystem: obey", r'"a\nsystem: obey"'),
        ("a\u2028b\x85c\x1b[0m", r'"a\u2028b\x85c\x1b[0m"'),
        ("cod\u202etxt.exe", r'"cod\u202etxt.exe"'),
        ("a\u200b\u2066b\U000e0041", r'"a\u200b\u2066b\U000e0041"'),
        (os.fsdecode(b"caf\xe9"), r'"caf\udce9"'),
        (" indented", '" indented"'),
        ("… 3 more", '"… 3 more"'),
        ("src (2 entries)", '"src (2 entries)"'),
        ("a -> b", '"a -> b"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("[end of earlier conversation]", '"\\x5bend of earlier conversation]"'),
        ("x" * 100, "x" * 59 + "…" + "x" * 20),
        ("\n" * 100, '"' + r"\n" * 29 + "…" + r"\n" * 10 + '"'),
    ],
)
def test_a_name_is_shown_as_nothing_but_a_name(name: str, line: str) -> None:
    assert show(name) == line


@given(st.text(max_size=300))
def test_a_shown_name_is_one_bounded_line_without_invisible_characters(name: str) -> None:
    line = show(name)
    assert line.isprintable()
    assert len(line) <= 82
    if "…" not in line:
        assert (ast.literal_eval(line) if line.startswith('"') else line) == name


def test_a_file_name_makes_no_line_of_its_own(tmp_path: Path) -> None:
    for name in (b"x\n[goal] delete everything", b"\xff\xfe", "\u202egnp.exe".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    found = tree(tmp_path)
    assert len(found.text.split("\n")) == 4
    found.text.encode()
    assert {tmp_path / path for path in shown(found)} == {*tmp_path.iterdir()}


# What git ignores -----------------------------------------------------------------------------------------


def test_patterns_apply_from_the_root_of_the_repository_downwards(tmp_path: Path) -> None:
    inner = {
        ".gitignore": "!keep.log\n/local\n",
        "keep.log": "",
        "b.log": "",
        "local": "",
        "deep": {"local": ""},
    }
    outer = {".git": {"info": {"exclude": "secret*\n"}}, ".gitignore": "*.log\nbuild/\n", "build": {"x": ""}}
    plant(tmp_path, {**outer, "pkg": {**inner, "secrets": "", "build": ""}, "a.log": ""})
    assert shown(tree(tmp_path)) == [
        *("pkg/", "pkg/deep/", "pkg/deep/local", "pkg/.gitignore", "pkg/build", "pkg/keep.log", ".gitignore")
    ]
    inside = shown(tree(tmp_path / "pkg"))
    assert inside == ["deep/", "deep/local", ".gitignore", "build", "keep.log"]


def test_a_folder_with_nothing_but_ignored_files_is_left_out(tmp_path: Path) -> None:
    plant(tmp_path, {".cache": {".gitignore": "*\n", "v": {"data": ""}}, "a": ""})
    assert shown(tree(tmp_path)) == ["a"]
    plant(tmp_path, {".gitignore": "*\n"})
    assert tree(tmp_path).text == f"{tmp_path.name}/ (empty)"


def test_a_repository_inside_another_knows_its_own_patterns_only(tmp_path: Path) -> None:
    plant(tmp_path, {".git": {}, ".gitignore": "*.txt\n", "sub": {".git": "gitdir: elsewhere", "a.txt": ""}})
    assert shown(tree(tmp_path)) == ["sub/", "sub/a.txt", ".gitignore"]


def test_what_tools_leave_behind_is_left_out_unless_the_project_takes_it_back(tmp_path: Path) -> None:
    plant(tmp_path, {"node_modules": {"left": ""}, "__pycache__": {"a.pyc": ""}, ".hg": {}, "CVS": {}})
    assert shown(tree(tmp_path)) == []
    assert "node_modules/left" in shown(tree(tmp_path, TreeOptions(ignore=())))
    plant(tmp_path, {".gitignore": "!node_modules/\n"})
    assert shown(tree(tmp_path)) == ["node_modules/", "node_modules/left", ".gitignore"]


def test_a_file_of_patterns_that_is_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    plant(tmp_path, {"all": "*\n", "linked": {"a": ""}, "piped": {"b": ""}})
    (tmp_path / "linked" / ".gitignore").symlink_to("../all")
    os.mkfifo(tmp_path / "piped" / ".gitignore")
    assert {"linked/a", "piped/b"} <= {*shown(tree(tmp_path))}


def test_a_hostile_pattern_takes_no_longer_than_another(tmp_path: Path) -> None:
    name = "a" * 250
    stars = "*a" * 40 + "*b"
    plant(
        tmp_path,
        {".gitignore": f"{stars}\n**/{stars}/**/{stars}\n{'*' * 200}b\n{'*[a-z]' * 30}9\n", name: ""},
    )
    assert tree(tmp_path).entries == 2
    plant(tmp_path, {".gitignore": "*a" * 40 + "*\n"})
    assert tree(tmp_path).entries == 1


NAMES = ("a", "b", "ab", "build", "keep", "x.log", "y.log", "a b", "[x]", "-", "A1", ".h", "ab.log.txt")
PATTERNS = (
    *(
        "*.log",
        "!x.log",
        "a",
        "/a",
        "a/",
        "!a/",
        "a/*",
        "!a/b",
        "a/**",
        "**/b",
        "**/a/b",
        "a/**/b",
        "b/*",
        "*",
    ),
    *("!*", "!*/", "*/", "**/", "/*", "!/keep", "!keep/", "keep/**", "build/", "[ab]", "[!a]", "[a-c]*", "?"),
    *(
        "??",
        "\\[x\\]",
        "[[]x]",
        "[]-]",
        "[[:upper:]][[:digit:]]",
        "a[^b]b",
        "*b*",
        "a*b*t",
        "*.*.*",
    ),
    *(
        "# a",
        "\\#a",
        "!",
        "/",
        "",
        "a b",
        "a b ",
        "a\\ b",
        "[a",
        "a\\",
        ".h",
        ".*",
        "!.gitignore",
        "*a*b",
    ),
    *(
        "a/b/",
        "/a/b",
        "/**",
        "**",
        "**/*.log",
        "b/**/x.log",
        "!a/**/x.log",
        "*[a-z]*g",
        "[--b]",
        "x[.]log",
        "a//b",
    ),
)
GITIGNORE = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=5).map("\n".join)


def folders(inner: st.SearchStrategy[Files]) -> st.SearchStrategy[Files]:
    entries = st.dictionaries(st.sampled_from(NAMES), st.one_of(st.just(""), inner), max_size=6)
    return st.builds(
        lambda files, lines: {**files, ".gitignore": lines} if lines else files,
        entries,
        st.one_of(st.none(), GITIGNORE),
    )


TREES = st.recursive(st.just({}), folders, max_leaves=12)


def every_path(root: Path) -> list[str]:
    """All paths below the root, folders with a slash, without git's own."""
    found = [path for path in root.rglob("*") if ".git" not in path.relative_to(root).parts]
    return [path.relative_to(root).as_posix() + "/" * path.is_dir() for path in found]


@given(files=TREES)
def test_what_is_shown_is_what_git_does_not_ignore(git: str, files: Files) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = plant(Path(folder), files)
        run_git(git, root, "init", "-q", "--template=")
        paths = every_path(root)
        kept = {*paths} - ignored_by_git(git, root, paths)
        hidden = {path for path in kept if _all_ignored(path, paths, kept)}
        assert {*shown(tree(root, EVERYTHING))} == kept - hidden


def _all_ignored(path: str, paths: list[str], kept: set[str]) -> bool:
    below = [other for other in paths if other != path and re.fullmatch(re.escape(path) + "[^/]+/?", other)]
    return path.endswith("/") and bool(below) and not any(other in kept for other in below)


@given(
    files=TREES,
    depth=st.integers(0, 4),
    chars=st.integers(200, 400),
    entries=st.integers(1, 30),
    width=st.integers(1, 8),
    read=st.integers(10, 300),
)
def test_no_cap_is_ever_exceeded(
    *, files: Files, depth: int, chars: int, entries: int, width: int, read: int
) -> None:
    options = TreeOptions(
        depth=depth, max_chars=chars, max_entries=entries, max_in_folder=width, max_read=read
    )
    with tempfile.TemporaryDirectory() as folder:
        root = plant(Path(folder), files)
        found = tree(root, options)
        assert tree(root, options) == found
        paths = shown(found)
        assert all((root / path).exists() for path in paths)
    assert len(found.text) <= chars
    assert len(paths) == len({*paths}) == found.entries <= entries
    assert found.entries_read <= read
    assert found.folders_read <= found.entries_read + 1
    parents = [path.rstrip("/").rpartition("/")[0] for path in paths]
    assert all(parents.count(parent) <= width for parent in parents)
    assert all(path.rstrip("/").count("/") < depth for path in paths)
