"""Runs generated command lines in a real bash: a line that is read-only changes nothing and starts nothing.

`make soak` runs this. The lines are made from harmless lines of the table and pieces that a shell reads in
special ways. The folder is a throw-away one with hostile names and contents, and the PATH has a few real
programs; every other program of the vocabulary only notes that it was started.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import select
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.test_safety import ROWS
from ullage.safety import classify
from ullage.safety.rules import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINES = int(os.environ.get("ULLAGE_LINES", "3000"))
"""Number of generated lines that are run, for each seed."""

_REAL = """
awk basename cat comm cp cut date diff dirname du env expr false find fold grep head join ls md5sum mkdir mv
nice nl od paste pr printf readlink realpath rev sed seq sort split stat stdbuf tac tail tee test timeout
touch tr true tsort uniq wc xargs sh bash
"""
REAL = frozenset(_REAL.split())
MARKERS = ("mark", "evil", "rm", "make", "python3", "curl", "ssh", "vim", "sudo")

_POISONS = """
$(mark) `mark` ;mark &mark |mark ¶mark &&mark >new >>a >|a &>new <(mark) >(mark) "$(mark)" '$(mark)'
$'\\x60mark\\x60' \\¶ ¶ \\ " ' ` $ $( ) ( { } [[ ]] [ ] == =~ -eq -v < > << <<E <<'E' <<< | & ; ;; # ! !! *
? ~ = += : , .. %n ¶E¶ $x "$x" ${x} ${x:-$(mark)} ${!x} ${x@P} ${a[$x]} $((x)) $((a[$x])) $@ "$@" $* $USER
$PWD $RANDOM x=mark x=-delete x='a[$(mark)]' x=$(cat¶hostile) USER=-delete a=(1¶2) mark() f(){¶mark;}
function declare¶-i¶x let¶x=y export read¶x -delete -exec¶mark -exec¶mark¶{}¶; -fprint¶new -o¶new -onew
--output=new --compress-program=mark -i -s -f¶prog w¶new --files0-from=list $(cat¶hostile) $(<hostile)
{-delete,x} -{o,x} "-delet${y}e" [[¶$x¶-eq¶1¶]] [[¶a¶==¶b¶]] ((x)) (( $x )) then fi do done case esac in if
for while time coproc exec eval source . command builtin trap alias unset set shopt xargs¶mark env¶mark
timeout¶1¶mark sed¶-i¶s/a/b/¶a sort¶-o¶a awk¶'{print>"new"}' tee¶new touch¶new mkdir¶new
"$x¶$y" "$x¶$(mark)" "$y¶-delete" ${x//:/¶} "${x//:/¶}" "${x:-¶}" IFS=:¶read¶x IFS=¶read¶-r IFS=a¶x=1
COLUMNS=1 COLUMNS=$x LINES=x¶let¶LINES printf¶%n¶x printf¶--¶%n¶x printf¶%n¶'a[$(mark)]' printf¶"$x"
printf¶"$x"¶x {a,b} *.{a,b} -{delete,print} {-o,new} {,-o} {a,$x} {a,"b"} {1..3} @{u}.. [¶"$x"¶-gt¶1¶]
[¶$x¶-gt¶1¶] [!a]* PAGER=cat PAGER=mark GIT_PAGER= LESS=-R -p declare¶-A¶x declare¶-p¶x x=$(date¶+%s)
$((y-x)) set¶-a time¶( time $(which¶mark) $(which¶ls) $(command¶-v¶mark) tee¶/dev/null¶new /dev/null
sed¶-n¶'//{p}' '1{e¶mark}' '/a/{w¶new}' -V -v --version
$o $d $w $t "$o" test¶$t [¶$t¶] nice¶-n¶$w timeout¶$w¶ls env¶-u¶$w xargs¶-n¶$w stdbuf¶-o¶$w find¶.¶$d sort¶$o
a=([x]=1) a+=([$x]=1¶b) declare¶-a¶a=([x]=1) declare¶-A¶m=([x]=1) ${m[x]} m[x]=1 a[x]=1 read¶a[x] "${a[x]}"
test¶-v¶'a[x]'
exec¶<cmds exec¶0<cmds exec¶<<<mark exec¶3<a export¶-f¶f TMOUT=1 ${¶mark;¶} "${¶mark;¶}" ${|¶mark;¶}
awk¶'{print¶$1,␤b>"new"}' awk¶'{print¶(1,␤2)>"new"}' awk¶'BEGIN{print¶1¶&&␤2>"new"}' awk¶'{print¶>$1}'
awk¶'{print|"mark"}'
<f <a >/dev/null 2>&1 2>/dev/null |wc¶<f ␤mark¶<f ␤mark¶x¶2>/dev/null ␤ls¶<f ␤wc¶a¶<f ;wc¶<f
sed¶'r¶a' sed¶'R¶a' sed¶-n¶'r¶a;w¶new' sed¶'s/a/b/w¶new' sed¶'s/.*/mark/e'
$(date¶+%F) $(git¶rev-parse¶HEAD) $(whoami) $(mark¶-l) bash¶-c¶'x' bash¶-c¶"$x" sh¶-c¶'ls¶$o'
"""
POISONS = tuple(_POISONS.split())
"""Pieces that are put into lines; ¶ is a blank or a line end, and ␤ a line end."""

_COMMANDS = """
%
ls; %
ls && %
false || %
% | wc
ls | %
ls & %
(%)
{ %; }
if %; then ls; fi
if false; then ls; else %; fi
while %; do break; done
for i in a; do %; done
for ((i=0;i<1;i++)); do %; done
case a in a) %;; esac
case a in (a|b) % ;; esac
f() { %; }; f
f() ( % ); f
! %
time %
2>/dev/null %
</dev/null %
x=1 %
LC_ALL=C %
ls # c␤%
ls \\␤ -l␤%
ls | sort| uniq -c␤%
ls | wc > /dev/null␤%
cat <<E␤a␤E␤%
cat <<'E'␤$x `␤E␤%
cat <<E | wc␤a␤E␤%
cat <<E && %␤a␤E
% <<E␤a␤E
cat <<A <<B␤a␤A␤b␤B␤%
[[ a =~ b ]] || %
((1+1)); %
a=(1 2); %
x=$'a\\'b'; %
echo 'a\\'; %
echo a\\;b; %
echo ${x//\\//-}; %
echo "${x:-'}"; %
echo ${y:-"}"}; %
echo $((1<<2)); %
echo $(case a in a) ls;; esac); %
echo $(echo ')'); %
echo a#b; %
echo \\#; %
echo \\\\␤%
echo "x␤y"; %
declare q=1; %
exec 3>&1; %
echo `echo a`;%
while read l; do %; done <<< a
coproc { %; }
"""
_WORDS = """
echo @
cat < @
cat <<< @
cat <<E␤ a @ b␤E
x=@
x=@ ls
a=(1 @ 2)
a[0]=@
declare x=@
[[ @ ]]
[[ -n @ ]]
[[ a == @ ]]
[[ @ == a ]]
[[ a =~ @ ]]
[[ a < @ ]]
[ a = @ ]
test @
case @ in a) ls;; esac
case a in @) ls;; esac
for i in a @ b; do ls; done
while [ @ ]; do break; done
(( @ ))
echo a > @
echo a 2> @
printf '%s' @
eval echo @
f() { echo @; }; f
echo @ | wc
env A=@ ls
find . -name @
sed -n @ f
timeout 1 echo @
trap @ INT
echo "x" @
echo x@
echo @x
time echo @
"""
_MAKERS = """
$(%) `%` "$(%)" "`%`" <(%) >(%) $(¶%¶) $(ls;%) $(ls␤%) "a¶$(%)" "$x¶$(%)" "$¶$(%)" $$$(%) $#$(%) \\\\$(%)
'a'"$(%)"
$(echo¶'$('¶;%) "$(echo¶"$(%)")" $(cat¶<<X␤a␤X␤%) -$(%) =$(%) ~/$(%)
"""
_AROUND = """
@ "@" "a¶@" a@b \\a@ $x@ "$x¶@" 'a'@ $'a'@ {a,@} [@] *@* !(@) @(@|a) $(echo¶@) `echo¶@`
${x#@} ${x%%@} ${x/@/b} ${x//a/@} ${x^@} ${x,,@} ${y:-@} ${y:=@} ${x:+@} ${y:?@} ${x:@} ${x:0:@}
${a[@]} ${a[0]:-@} ${!a[*]}@ "${y:-@}" "${x#@}" $((@)) $((¶x+@¶)) $[@]
"""
LINES_AROUND = tuple(_COMMANDS.strip().split("\n"))
"""Lines that run a command, which stands at `%`; ␤ is a line end."""
LINES_WITH = tuple(_WORDS.strip().split("\n"))
"""Lines with a word, which stands at `@`."""
MAKERS, AROUND = tuple(_MAKERS.split()), tuple(_AROUND.split())
"""Words that run a command at `%`, and words around a word at `@`; ¶ is a blank."""

ENVIRONMENT = {"LC_ALL": "C.UTF-8", "x": "a[$(mark)]", "y": "", "USER": "bob", "TERM": "dumb", "HISTFILE": ""}
# Values that are several words, for an expansion without quotation marks.
ENVIRONMENT |= {"o": "-o new", "d": "-delete", "w": "5 mark", "t": "-v a[$(mark)]"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with a few real programs, and programs that only note that they were started."""
    folder = tmp_path_factory.mktemp("bin")
    for name in REAL:
        real = shutil.which(name)
        if real:
            (folder / name).symlink_to(real)
    for name in MARKERS:
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} >> {folder}/started\n")
        program.chmod(0o755)
    return folder


def fill(folder: Path) -> None:
    """Makes the files of the throw-away folder."""
    texts = {"a": "b\na\n", "b": "1 2\n", "f": "x\n", "sub/c": "c\n", "-delete": "", "-onew": ""}
    texts |= {"hostile": "a[$(mark)]", "list": "-delete\0a\0", "prog": "w new\n", "cmds": "mark\n"}
    texts |= {"names": "-i\n-f\nprog\n"}
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def picture(folder: Path) -> str:
    """Returns a digest of the names and contents in a folder."""
    found = sorted(path for path in folder.rglob("*"))
    parts = [bytes(path) + (path.read_bytes() if path.is_file() else b"") for path in found]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def seeds() -> list[str]:
    """Returns the harmless lines of the table that use only programs of the throw-away PATH."""
    slow = ("-f ", "-F", "--follow", "watch", "sleep", "/", "~", "..", "suspend", "exit", "logout", "ulimit")
    return [
        line
        for kind, line in ROWS
        if kind == "read-only" and line.split()[0] in REAL and not any(word in line for word in slow)
    ]


def mutate(chance: random.Random, lines: list[str]) -> str:
    """Returns a line made of one or two harmless ones, with pieces put in, doubled, moved or taken out."""
    line = chance.choice(lines)
    if chance.random() < 0.3:
        line += chance.choice((";", " | ", "\n", " && ", " & ", " ")) + chance.choice(lines)
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(line))
        if chance.random() < 0.6:
            at = chance.choice([0, len(line), *(place for place, sign in enumerate(line) if sign in " \n\t")])
        piece = chance.choice(POISONS).replace("¶", chance.choice((" ", " ", "\n"))).replace("␤", "\n")
        blank = chance.choice(("", " "))
        kind = chance.random()
        if kind < 0.75:
            line = line[:at] + blank + piece + blank + line[at:]
        elif kind < 0.9:
            line = line[:at] + line[at + chance.randint(1, 4) :]
        else:
            line = line[:at] + line[at : at + 6] + line[at:]
    return line


def run(line: str, folder: Path, programs: Path, *, typed: bool) -> None:
    """Runs a line in bash, for a second at most; a typed line is read by an interactive bash."""
    bash = [shutil.which("bash") or "bash", "--norc", "--noprofile"]
    closed, held = os.pipe()  # everything that the line starts holds one end, until it has ended
    process = subprocess.Popen(
        [*bash, "-i"] if typed else [*bash, "-c", line],
        cwd=folder,
        env={**ENVIRONMENT, "PATH": str(programs), "HOME": str(folder)},
        stdin=subprocess.PIPE if typed else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=(held,),
    )
    os.close(held)
    try:
        process.communicate(f"{line}\n".encode("utf-8", "replace") if typed else None, timeout=1)
        ended = bool(select.select([closed], [], [], 1)[0])
    except subprocess.TimeoutExpired:
        ended = False
    finally:
        os.close(closed)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


@pytest.mark.parametrize("seed", range(4))
def test_a_read_only_line_changes_nothing_and_starts_nothing(
    seed: int, tmp_path: Path, programs: Path
) -> None:
    chance = random.Random(f"{os.environ.get('ULLAGE_SEED', '')}{seed}")  # noqa: S311 - lines, not secrets
    lines = seeds()
    folder = tmp_path / "folder"
    folder.mkdir()
    fill(folder)
    before = picture(folder)
    wrong = []
    ran = 0
    while ran < LINES:
        line = mutate(chance, lines)
        if "\0" in line or "/" in line or "~" in line or ".." in line:
            continue
        if classify(line, cwd=folder).kind != "read-only":
            continue
        ran += 1
        run(line, folder, programs, typed=chance.random() < 0.4)
        started = programs / "started"
        if started.exists() or picture(folder) != before:
            wrong.append((line, started.read_text() if started.exists() else "changed"))
            started.unlink(missing_ok=True)
            shutil.rmtree(folder)
            folder.mkdir()
            fill(folder)
    assert not wrong, "\n".join(f"{line!r}: {what}" for line, what in wrong[:20])


def nest(chance: random.Random, depth: int) -> str:
    """Returns a line that runs `mark` somewhere inside, or seems to."""
    if depth == 0:
        return chance.choice(("mark", "mark", "mark x", "mark <f", 'm""ark', "m\\ark", "mark|cat"))
    inner = nest(chance, depth - 1)
    if chance.random() < 0.5:
        return chance.choice(LINES_AROUND).replace("%", inner)
    word = chance.choice(MAKERS).replace("%", inner)
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        word = chance.choice(AROUND).replace("@", word, 1)
    return chance.choice(LINES_WITH).replace("@", word)


@pytest.mark.parametrize("seed", range(4))
def test_no_context_hides_a_command(seed: int, tmp_path: Path, programs: Path) -> None:
    chance = random.Random(f"{os.environ.get('ULLAGE_SEED', '')}{seed}")  # noqa: S311 - lines, not secrets
    started = programs / "started"
    started.unlink(missing_ok=True)
    fill(tmp_path)
    wrong = []
    for _ in range(2 * LINES):
        line = nest(chance, chance.choice((1, 2, 2, 3, 4))).replace("␤", "\n").replace("¶", " ")
        if classify(line).kind != "read-only":
            continue
        for typed in (False, True):
            run(line, tmp_path, programs, typed=typed)
            if started.exists():
                wrong.append(line)
                started.unlink()
    assert not wrong, "\n".join(map(repr, wrong[:20]))


PACKERS = "ar bzip2 diff diff3 file gunzip gzip lz4 patch sdiff sort uniq unxz unzip xxd xz zip zstd"
"""Programs with a rule that read with some options and write with others."""

_PACK = """
gzip -k f; bzip2 -k f; xz -k f; zstd -q f; lz4 -q f; tar cf a.tar f; zip -q a.zip f; ar rc a.a f
diff -u f g > f.diff
"""


def combine(name: str) -> Iterator[str]:
    """Yields the lines that have a harmless option of a program and one more of its options."""
    rule = table().rules[name]
    needs = [need for row in rule.rows if row.kind == "read-only" for need in row.needs]
    reading = [flag for need in needs if need.startswith("-") for flag in need.split("|") if "=" not in flag]
    values = {"": ((),), "=": (("new",), ("1",)), "?": ((), ("=new",))}
    options = [
        "".join((option, *value)) if taking == "?" else shlex.join((option, *value))
        for option, taking in rule.options.names.items()
        if "*" not in option and option not in ("-", "-#")
        for value in values[taking]
    ]
    files = ("f", "f new", "f.gz", "f.bz2", "f.xz", "f.zst", "f.lz4 new", "a.tar", "a.zip", "a.a", "f f.diff")
    for words in itertools.product([name], ["", *reading], ["", *options], files):
        yield " ".join(word for word in words if word)


def start(words: list[str], folder: Path) -> None:
    """Runs a program in a folder, for a second at most."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            words,
            check=False,
            timeout=1,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@pytest.mark.parametrize("name", [name for name in PACKERS.split() if shutil.which(name)])
def test_no_option_makes_a_program_write_that_only_reads(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "f").write_text("b\na\n")
    (folder / "g").write_text("a\n")
    start(["bash", "-c", _PACK], folder)
    before = picture(folder)
    for line in combine(name):
        if classify(line).kind == "read-only":
            start(shlex.split(line), folder)
            assert picture(folder) == before, line
