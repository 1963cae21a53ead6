"""No destructive command line is taken for one that only reads, however it is written."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage.safety import KINDS, Verdict, classify, parses, worst
from ullage.safety.rules import table

TABLE = Path(__file__).with_name("command_lines.tsv")


def rows() -> list[tuple[str, str]]:
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    split = [line.split("\t", 1) for line in lines]
    return [(kind, line.replace("␤", "\n")) for kind, line in split]


ROWS = rows()
OF = {kind: [line for each, line in ROWS if each == kind] for kind in KINDS}
# Lines that a person can put into another line: whole, on one line of text, and without a here-document.
WHOLE = {kind: [line for line in lines if parses(line) and "\n" not in line] for kind, lines in OF.items()}
destructive = st.sampled_from(WHOLE["destructive"])
harmless = st.sampled_from([line for line in WHOLE["read-only"] if "#" not in line and line[-1] != "&"])


@pytest.mark.parametrize(("kind", "line"), ROWS, ids=[line for _, line in ROWS])
def test_a_command_line_has_the_class_of_the_table(kind: str, line: str) -> None:
    verdict = classify(line)
    assert verdict.kind == kind, verdict
    assert verdict.reason


def test_the_table_has_enough_lines_of_each_class() -> None:
    counts = Counter(kind for kind, _ in ROWS)
    assert set(counts) == set(KINDS)
    assert sum(counts.values()) >= 3_000
    assert min(counts.values()) >= 50
    assert len(set(ROWS)) == len({line for _, line in ROWS}) == len(ROWS)


JOINS = ("{0}; {1}", "{0};{1}", "{0} && {1}", "{0}||{1}", "{0} | {1}", "{0} & {1}", "{0}\n{1}", "{0} |& {1}")
AROUND = (
    "({1})",
    "( {0}; {1} )",
    "{{ {1}\n}}",
    "if {0}; then {1}\nfi",
    "if {1}\nthen {0}; fi",
    "for i in 1 2; do {1}\ndone",
    "while {0}; do {1}\ndone",
    "case x in x) {1}\n;; esac",
    "f() {{ {1}\n}}; f",
    "function g {{ {0}; {1}\n}}",
    "! {1}",
    "echo $({1}\n)",
    'echo "$({1}\n)"',
    "x=$({1}\n)",
    "cat <({1}\n)",
    "{1} &",
    "{0} # words\n{1}",
    "cat <<EOF\nwords\nEOF\n{1}",
    "cat <<EOF\n$({1}\n)\nEOF",
    "   {1}   ",
)
QUOTED = (
    "sh -c {}",
    "bash -c {}",
    "bash -lc {}",
    "sudo sh -c {}",
    "env A=1 sh -c {}",
    "timeout 5 bash -c {}",
    "nohup sh -c {} &",
    "eval {}",
    "xargs -n 1 sh -c {}",
    "find . -exec sh -c {} \\;",
    "ssh host {}",
    "watch {}",
    "su -c {}",
    "echo {} | sh",
)
PREFIXES = (
    "sudo ",
    "sudo -u bob ",
    "doas ",
    "env ",
    "env -i A=b ",
    "A=b ",
    "timeout 5 ",
    "nohup ",
    "nice -n 5 ",
    "stdbuf -oL ",
    "time ",
    "command ",
    "exec ",
    "setsid ",
    "> /dev/null ",
    "2>&1 ",
    "ls | xargs ",
    "find . -exec ",
    "\\\n",
    "  ",
)
SIMPLE = (
    "rm -rf x",
    "shred x",
    "git branch -D x",
    "git push --force",
    "dd of=x",
    "find . -delete",
    "kill -9 1",
    "mkfs.ext4 /dev/sda",
    "docker rm x",
    "chmod -R 777 .",
    "tee /etc/passwd",
)


@given(harmless, st.sampled_from(JOINS), destructive)
@example("ls", "{0} & {1}", "rm -rf x")
def test_what_stands_before_a_destructive_line_does_not_hide_it(first: str, join: str, line: str) -> None:
    whole = join.format(first, line)
    assert classify(whole).kind == "destructive" or (not parses(whole) and classify(whole).kind == "unknown")


@given(harmless, st.sampled_from(AROUND), destructive)
def test_what_stands_around_a_destructive_line_does_not_hide_it(first: str, around: str, line: str) -> None:
    verdict = classify(around.format(first, line))
    # A history mark or a here-document may make the whole unreadable, never harmless.
    assert verdict.kind in ("destructive", "unknown")


@given(st.sampled_from(QUOTED), destructive)
def test_a_shell_that_is_given_a_destructive_line_is_destructive(wrapper: str, line: str) -> None:
    assert classify(wrapper.format(shlex.quote(line))).kind == "destructive"


@given(st.lists(st.sampled_from(PREFIXES), max_size=4), st.sampled_from(SIMPLE))
def test_wrappers_do_not_hide_a_destructive_command(prefixes: list[str], line: str) -> None:
    assert classify("".join(prefixes) + line).kind in ("destructive", "unknown")


@given(st.sampled_from(PREFIXES), st.sampled_from(SIMPLE))
def test_each_wrapper_alone_shows_what_it_runs(prefix: str, line: str) -> None:
    assert classify(prefix + line).kind == "destructive"


@st.composite
def disguised(draw: st.DrawFn) -> str:
    """A simple command with quotes, backslashes, blanks and continued lines wherever they may stand."""
    words = draw(st.sampled_from(SIMPLE)).split()
    hidden = []
    for word in words:
        letters = []
        for letter in word:
            ways = (letter, f"'{letter}'", f'"{letter}"', f"\\{letter}", f"''{letter}", f"$'{letter}'")
            letters.append(draw(st.sampled_from(ways)))
        hidden.append("".join(letters))
    blank = draw(st.sampled_from((" ", "   ", "\t", " \\\n ", "  \\\n")))
    return blank.join(hidden)


@given(disguised())
def test_quotes_and_blanks_do_not_hide_a_destructive_command(line: str) -> None:
    assert classify(line).kind == "destructive"


@given(st.sampled_from(SIMPLE), st.data())
def test_a_continued_line_within_a_word_hides_nothing(line: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(line)))
    assert classify(line[:at] + "\\\n" + line[at:]).kind == "destructive"


PIECES = "ls rm x ; & | ( ) { } $( ` \" ' \\ \n # > < <<E if then fi = ! * ~"


@given(st.lists(st.sampled_from(PIECES.split(" ")), max_size=12))
def test_any_text_has_a_class(pieces: list[str]) -> None:
    verdict = classify(" ".join(pieces))
    assert verdict.kind in KINDS


@given(st.text(max_size=60))
@example("\x00")
@example("\ud800")
@example("rm\u00a0x")
@example("{\U000e0000}>")  # crashes the grammar's scanner, as it is
def test_any_characters_have_a_class(text: str) -> None:
    assert classify(text).kind in KINDS


@given(st.sampled_from([line for _, line in ROWS]), st.integers(0, 80))
def test_a_line_that_was_cut_and_does_not_parse_is_not_read_only(line: str, length: int) -> None:
    cut = line[:length]
    if not parses(cut):
        assert classify(cut).kind in ("unknown", "destructive")


@pytest.mark.parametrize(
    "line",
    [
        "ls \\ #; rm x",
        "ls a\n\\rm x",
        "ls > /dev/null\n\\rm x",
        "x=1\n\\rm x",
        "ls a\\\n#; rm x",
        "x='a'\\ ls rm y",
        "x='a'\\b rm y",
        "'ls'\\x",
        "export x='a'\\ ls; rm y",
        "\\ ls",
        "ls <\nrm x",
        "echo \"`echo \\`rm x\\``\"",
        "cat <<E\n`rm x`\nE",
        "cat <<-E\n\tE\nrm x\nE",
        "ls\rrm x",
        "read PATH <<< /tmp; ls",
        "hash -p /tmp/evil ls",
        "printf -v PATH /tmp; ls",
        "declare 'PATH=/tmp'; ls",
        "x='$(rm y)'; echo ${x@P}",
        "unset 'a[$(rm x)]'",
        "ls() { rm \"$@\"; }; ls x",
        "xargs -I ls ls",
        "tar tf x -I 'rm'",
        "sort --compress-prog=rm x",
        "rg --pre rm x",
        "git grep -Orm x",
        "env -S'rm x'",
        "sudo -- sh -c 'rm x'",
        "find . -name x -o -exec rm {} +",
        "sed 's/x/rm y/e' f",
        "sed -n '1!{w x\n}' f",
        "man -P 'rm x' ls",
    ],
)  # fmt: skip
def test_a_known_trick_is_not_read_only(line: str) -> None:
    assert classify(line).kind in ("unknown", "destructive")


def test_the_worst_part_decides_and_is_shown() -> None:
    verdict = classify("ls -l && make | rm -rf build; cp a b")
    assert verdict == Verdict("destructive", "rm deletes files", "rm -rf build")
    assert classify("cp a b; make").part == "make"


def test_the_order_of_the_classes_puts_unknown_above_writes() -> None:
    assert KINDS == ("read-only", "writes", "sends", "unknown", "destructive")
    assert worst(Verdict(kind, "", "") for kind in KINDS).kind == "destructive"
    assert worst([]).kind == "read-only"
    assert classify("").kind == "read-only"


def test_a_redirect_over_a_file_with_something_in_it_is_destructive(tmp_path: Path) -> None:
    tmp_path.joinpath("notes.txt").write_text("mine", "utf-8")
    tmp_path.joinpath("empty.txt").touch()
    assert classify("date > notes.txt").kind == "writes"
    assert classify("date > notes.txt", cwd=tmp_path).kind == "destructive"
    assert classify("date >> notes.txt", cwd=tmp_path).kind == "writes"
    assert classify("date > empty.txt", cwd=tmp_path).kind == "writes"
    assert classify("date > new.txt", cwd=tmp_path).kind == "writes"
    assert classify(f"date > {tmp_path}/notes.txt", cwd=Path("/")).kind == "destructive"


def test_text_beyond_ascii_is_read_and_shown_as_it_is(tmp_path: Path) -> None:
    tmp_path.joinpath("Übersicht.txt").write_text("mine", "utf-8")
    verdict = classify('echo "日本 $x é" > Übersicht.txt', cwd=tmp_path)
    assert verdict == Verdict("destructive", "overwrites Übersicht.txt, which exists", "> Übersicht.txt")
    assert classify("é=1").kind == "unknown"


def test_a_long_or_deep_line_is_unknown() -> None:
    assert classify("ls " + "x" * 30_000).kind == "unknown"
    deep = "ls"
    for _ in range(7):
        deep = f"sh -c {shlex.quote(deep)}"
    assert classify(deep).kind == "read-only"
    assert classify("(" * 3_000 + "ls" + ")" * 3_000).kind in KINDS
    nested = "ls"
    for _ in range(12):
        nested = "eval " + nested
    assert classify(nested).kind == "unknown"
    assert classify("sudo " * 1_000 + "ls").kind == "unknown"


@pytest.mark.parametrize("piece", ["{,", "[!", "eval ", "x:", "a|", "sed -n 'p;' ", "$(", "<<E\n", "a{b,c} "])
def test_a_line_of_one_piece_has_a_class_in_little_time(piece: str) -> None:
    start = time.process_time()
    assert classify(f"ls {piece * 8_000}"[:7_990]).kind in KINDS
    # Backtracking would take minutes; the limit leaves room for a slow machine.
    assert time.process_time() - start < 20


def test_no_rule_of_a_destructive_command_has_a_lighter_second_name() -> None:
    for name, words in table().same.items():
        assert name not in table().rules
        assert words[0] in table().rules


def test_the_parser_is_loaded_by_the_first_line_only() -> None:
    program = "import sys, ullage.safety as s; a = 'tree_sitter' in sys.modules; s.classify('ls'); print(a)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


OVERWRITING = {
    "destructive": """
        cp a b ¦ cp a sub ¦ cp a sub/ ¦ mv a b ¦ mv a sub ¦ mv a -t sub
        cp --target-directory=sub a ¦ cp -r sub .
        echo x | tee b ¦ sort -o b a ¦ sort a -o b ¦ sort -uob a ¦ sort --output=b a
        uniq a b ¦ xxd a b ¦ install a b
        tar cf x.tar a ¦ tar -cf x.tar a ¦ tar --create --file=x.tar a ¦ rsync -t a b
        date > b ¦ date >| b ¦ date &> b
        sed -i s/m/n/ a ¦ git checkout a ¦ find . -fprint b ¦ curl -o b https://example.org ¦ pandoc x -o b
        sed --in-place s/m/n/ a ¦ gofmt -w a ¦ black a ¦ ruff format a ¦ patch a p ¦ docker cp c:/f b
        docker save c -o b ¦ aws s3 cp s3://c/f b ¦ gsutil cp gs://c/f b ¦ curl --output b https://example.org
        cp {a,b} sub
        cd sub && cp ../b a ¦ cd sub; date > a ¦ sudo cp a b ¦ bash -c 'cp a b' ¦ find . -exec cp {} b \\;
    """,
    "writes": """
        cp a new ¦ cp b sub ¦ cp -n a b ¦ mv b sub ¦ mv -t sub b ¦ echo x | tee -a b ¦ tee new ¦ sort -o new a
        tar czf new.tgz a ¦ tar rf x.tar b
        cp a empty ¦ date > empty ¦ date >> b ¦ cd sub && cp a new
        cp -r sub other ¦ sed -i.old s/m/n/ a ¦ sed -i s/m/n/ new ¦ git checkout topic ¦ touch a
        docker cp c:/f new ¦ docker save c -o new ¦ gofmt -w new ¦ patch new p
    """,
    "sends": "rsync a host:b ¦ curl -o new https://example.org ¦ aws s3 cp s3://c/f new ¦ aws s3 cp a s3://c/a",
    "unknown": """
        cd $X && date > new ¦ cp *.txt sub ¦ cp a $X ¦ ls | xargs cp -t sub ¦ cd - && cp a new ¦ tar xf x.tar
    """,
}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (line.strip(), kind)
        for kind, lines in OVERWRITING.items()
        for line in lines.replace("\n", "¦").split("¦")
        if line.strip()
    ],
)
def test_what_overwrites_a_file_with_something_in_it_is_destructive(
    tmp_path: Path, line: str, kind: str
) -> None:
    for name in ("a", "b", "sub/a", "x.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "empty").touch()
    assert classify(line, cwd=tmp_path).kind == kind
    assert classify(line).kind != "destructive"
