"""What is typed runs, is asked, or is a meta command, by rules that can be told in advance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.shell.deciding import ENGLISH, Decision, decide

NAMES = """
ls cat cd echo printf git grep find test make who what is time look cut sort python python3 pip docker vim
man which date sleep kill export alias watch df du ps head tail more less file host last tree type rm cp
mv sudo ./run.sh /usr/bin/ls /bin npm yes top join split touch open free install read declare let history
jobs
"""
COMMANDS = frozenset(NAMES.split())


def resolves(word: str) -> bool:
    return word in COMMANDS


ROWS = """
shell	ls
shell	ls -la
shell	ls | wc -l
shell	ls; pwd
shell	cat README.md
shell	cd ..
shell	git status
shell	git commit -m "this is what it is"
shell	git log --oneline
shell	grep -rn "how to" docs
shell	echo what is this
shell	echo why not?
shell	./run.sh
shell	/usr/bin/ls
shell	/usr/bin/ls -l
shell	/bin
shell	FOO=1 make
shell	x=1
shell	export FOO=1
shell	for f in *.py; do cat "$f"; done
shell	if test -f a; then cat a; fi
shell	while true; do ls; done
shell	(cd src; ls)
shell	{ ls; }
shell	[ -f a ]
shell	[[ -f a ]]
shell	((x = 1))
shell	$EDITOR notes.txt
shell	"ls" -l
shell	\\ls
shell	! grep -q x y
shell	!ls
shell	! frobnicate
shell	!what is this
shell	find . -name '*.py'
shell	find src
shell	make
shell	make test
shell	make -j4 install
shell	test -f setup.py
shell	who
shell	who -b
shell	time ls
shell	time make
shell	sort names.txt
shell	sort -u a b
shell	cut -d: -f1 /etc/passwd
shell	look hello
shell	which python
shell	date
shell	sleep 5
shell	kill 1234
shell	man ls
shell	head -n 5 a.txt
shell	file a.out
shell	top
shell	sudo rm -rf x
shell	ls > out.txt
shell	> out.txt
shell	python3 -c 'print(1)'
shell?	ls the files and the folders
shell?	sort names numbers
ask?	what is the largest file here?
ask?	what is the largest file here
ask?	who are you
ask	why does this fail
ask	how do I undo a commit?
ask	hello
ask	thanks, that worked
ask	I want to delete all logs
ask	please list the files
ask?	find the largest file in this directory
ask?	find all Python files that import json
ask?	make it faster
ask?	make a new branch and push it
ask?	test this
ask?	test the parser, please
ask?	who wrote this?
ask?	time is money
ask?	look at the last error
ask?	cut the first column out of data.csv
ask?	sort these by size
ask?	is this a bug?
ask?	which file is the biggest
ask?	git is slow
ask?	docker is not running
ask?	watch me
ask?	install the package for me
ask?	open the log and tell me what is wrong
ask?	kill the server on port 8080
ask?	read this file to me
ask?	split this function into two
ask?	git commit -m "unfinished
ask?	ls |
ask?	cat 'it
ask	what's up
ask	who's there
ask?	gti status -s
ask?	lss -la
ask?	./missing.sh
ask	(see above)
ask	if I delete this, what happens?
ask	for each file, show the size
ask	?ls
ask	? ls -la
ask	?what is this
ask	:)
ask	:-(
ask	3 + 4
meta	:help
meta	:model gpt-5
meta	/help
meta	/model local
meta	/rolling-context on
meta	/nothing-like-that
"""


@pytest.mark.parametrize(
    "row", [row for row in ROWS.splitlines() if row], ids=lambda row: row.replace("\t", ": ")
)
def test_a_line_is_decided_as_the_table_says(row: str) -> None:
    expected, line = row.split("\t", 1)
    decision = decide(line, resolves=resolves, metas={"help", "model", "rolling-context"})
    assert (decision.kind, decision.ambiguous) == (expected.rstrip("?"), expected.endswith("?")), decision


@pytest.mark.parametrize("line", ["", "  ", "!", "?", " ! "])
def test_a_line_with_nothing_in_it_is_nothing(line: str) -> None:
    assert decide(line, resolves=resolves).kind == "nothing"


def test_the_table_is_large_enough() -> None:
    assert len(ROWS.splitlines()) > 80


def test_the_hint_of_an_ambiguous_line_tells_how_to_get_the_other_reading() -> None:
    asked = decide("find the parser", resolves=resolves)
    why = "find is a command, but this reads like a sentence"
    assert asked.hint == f"{why}: asked; to run it, put ! in front: !find the parser"
    assert decide("!find the parser", resolves=resolves) == Decision("shell", "find the parser")
    ran = decide("sort names numbers", resolves=resolves)
    assert ran.hint.endswith("put ? in front: ?sort names numbers")


def test_without_a_list_of_meta_commands_any_name_is_one() -> None:
    assert decide("/srv", resolves=lambda _: True).kind == "meta"
    assert decide("/srv", resolves=lambda _: True, metas=set()).kind == "shell"
    assert decide(":help me", resolves=resolves).text == "help me"


@given(st.text(max_size=40), st.booleans())
def test_every_text_is_decided_and_only_an_ambiguous_one_explains_itself(text: str, known: bool) -> None:
    decision = decide(text, resolves=lambda _: known)
    assert decision.kind in ("shell", "ask", "meta", "nothing")
    assert bool(decision.hint) >= decision.ambiguous


@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip().strip("!?")))
def test_a_mark_forces_the_decision(text: str) -> None:
    assert decide("!" + text, resolves=lambda _: False).kind == "shell"
    assert decide("?" + text, resolves=lambda _: True).kind == "ask"


@given(st.sampled_from(sorted(ENGLISH)), st.sampled_from(("-l", "--all", "*.py", "a/b", "x > y")))
def test_what_only_a_shell_understands_is_never_taken_for_a_sentence(word: str, rest: str) -> None:
    decision = decide(f"{word} {rest}", resolves=lambda _: True)
    assert decision.kind == "shell" or not decision.hint or "not whole" in decision.hint
