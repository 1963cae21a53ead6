"""What is typed runs, is asked, or is a meta command, by rules that can be told in advance."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.safety.input_line import ENGLISH, InputDecision, classify_input, is_unfinished
from ullage.terminal import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = """
ls cat cd echo printf git grep find test make who what is time look cut sort python python3 pip docker vim
man which date sleep kill export alias watch df du ps head tail more less file host last tree type rm cp
mv sudo ./run.sh /usr/bin/ls /bin npm yes top join split touch open free install read declare let history
jobs continue wait nice true false clear exit w sh bash rg mkdir while for if case until select function time
{ [ [[ pytest wish su aws mount chage rview timeout diff comm chmod tar curl ssh set env uniq wc ping mysql
node cargo go kubectl cmp seq paste column sed awk xargs
link service else then done do fi
"""
COMMANDS = frozenset(NAMES.split())


def resolves(word: str) -> bool:
    return word in COMMANDS


# A kind of decision, with a question mark where it is ambiguous, and a line; ¶ is a line end.
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
shell	exit
shell	clear
shell	w
shell	true && ls
shell	yes | head
shell	wait 123
shell	grep failed build.log
shell	grep is README.md
shell	rg crashes src
shell	mv tests failed
shell	git checkout feature
shell	git log --author me, you
shell	for i in 1 2; do¶echo what is the $i¶done
shell	cat <<EOF¶what is this, and how?¶EOF
shell	!yes
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
ask?	look at boats.csv
ask?	npm fails with EACCES
ask?	npm crashes on start
ask?	docker failed to start
ask?	npm install fails
ask?	git push fails with 403
ask?	git rebase conflicts, what do I do now
ask?	git merge or rebase, which is it?
ask?	docker compose or just the two of them?
ask?	yes
ask?	continue
ask?	nice
ask?	wait
ask?	look
ask?	more
ask?	test
ask	right
ask	in the end it works
ask	then do it
ask	else what
ask	do it
ask	done
ask	fi
ask	it's fine, isn't it
ask	'tis "fine"
ask	what's up
ask	who's there
ask?	gti status
ask?	sl
ask?	vmi boats.csv
ask?	pyhton x.py
ask?	pythn x.py
ask?	grepp
ask?	mkdr build
ask	gti is slow today
ask	clean boats.csv
ask	vmi or emacs
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
shell	true
shell	false
shell	diff a b
shell	diff -u a b
shell?	diff old new
shell	cat a
shell	cat a b
shell	sort a b
shell	comm a b
shell	make clean all
shell	make all
shell	make test all
shell	make clean
shell	who am i
shell	who am I
shell	time make all
shell	sudo make install
shell	rm all
shell	rm a b
shell	rm -rf build
shell	rm *.o
shell	cp a b
shell	mv a b
shell	mv old new
shell	mkdir a b c
shell	touch a
shell	touch a b
shell	git add all
shell	git add .
shell	git commit
shell	git checkout main
shell	git diff HEAD
shell	git log -3
shell	git stash pop
shell	git push
shell	git pull origin main
shell	docker ps
shell	docker compose up
shell	docker run -it alpine
shell	npm test
shell	npm run build
shell	npm install
shell	pip install requests
shell	python3 -m venv .venv
shell	python x.py
shell	cargo test
shell	go build ./...
shell	kubectl get pods
shell	ssh host
shell	curl localhost:8080
shell	ping localhost
shell	tar xzf a.tgz
shell	chmod +x run.sh
shell	wc -l a
shell	head a
shell	tail -f log
shell	ps aux
shell	df -h
shell	du -sh .
shell	env
shell	history
shell	alias
shell	which git
shell	type ls
shell	man git
shell	cd src
shell	cd
shell	cd -
shell	export A=1
shell	sed s/a/b/ f
shell	awk '{print $1}' f
shell	seq 3
shell	test -d src
shell	kill -9 12
shell	set -x
shell	find . -type f
shell	ls src tests
shell	vim README.md
shell	ls | head
shell	wc -l < a
shell	echo the old files
shell	grep the README.md
shell	printf 'the end'
ask?	rm the old files
ask?	rm it
ask?	rm everything
ask?	sudo rm the old files
ask?	ls the files and the folders
ask?	git show what is this
ask?	mv this to that
ask?	cp my notes to the backup
ask?	cd to the src folder
ask?	tar the folder
ask?	mkdir the build folder
ask?	chmod the script
ask?	git commit the changes
ask?	git undo my last commit
ask?	docker stop every container
ask?	npm install the package
ask?	python run my script
ask?	curl the api
ask?	ssh into the server
ask?	vim the config
ask?	kill all python processes
ask?	make the tests pass
ask?	make a list of files
ask?	who is logged in
ask?	cat the file
ask?	touch the file
ask?	find my keys
ask?	diff these two
ask?	diff the two files
ask?	sort my downloads by size
ask?	head of the list
ask?	top of my list
ask?	which one is faster?
ask?	time the build
ask?	nice to meet you
ask?	node keeps crashing
ask?	mysql is down
ask?	ping is high
ask	delete everything
ask	undo that
ask	explain this
ask	list the files
ask	show me the log
ask?	what changed since yesterday?
ask	how big is this folder?
ask	write a poem
ask	run the tests
ask	fix it
meta	:help
meta	:model gpt-5
meta	/help
meta	/model local
meta	/rolling-context on
meta	/nothing-like-that
shell	ls src
shell	git log --oneline -5
shell	git commit -m "fix the build when the cache is cold"
shell	git diff HEAD~1 HEAD
shell	git blame README
shell	docker compose up -d
shell	docker run -it ubuntu bash
shell	npm install express
shell	cargo build --release
shell	go test ./...
shell	go build
shell	python3 app.py
shell	make install
shell	cat notes.txt
shell	less README.md
shell	head -20 access.log
shell	tail -f app.log
shell	du -sh *
shell	free -m
shell	which python3
shell	ssh user@example.com
shell	curl https://example.com
shell	vim main.py
shell?	touch new file
shell	mkdir build
shell	rm build
shell	grep TODO main.py
shell	grep error log
shell	sort names
shell	uniq -c
shell	wc -l main.py
shell	chmod +x run
shell	jobs
shell	alias ll='ls -l'
shell	for i in 1 2 3; do echo $i; done
shell	test -f x && echo yes
shell	watch ls
shell	cat file | grep error | wc -l
ask	why does the test fail
ask?	what is this
ask	show me the largest files
ask	how do I undo a commit
ask?	find all files larger than a megabyte
ask?	kill the server on port 3000
ask?	sort this list by date
ask?	cat says permission denied
ask?	git says I have diverged
ask	can you fix the build
ask?	install numpy for me
ask?	test my code
ask	thanks
ask	ok do it
ask?	docker won't start
ask?	cut the last column out of data.csv
ask?	who wrote this file
ask?	who changed main.py last
ask?	which file defines main
ask?	which process uses port 80
ask?	which module handles logins
shell?	which ls cat find
ask?	top 5 memory hogs
shell?	kill 1234 5678
ask?	git 怎么撤销提交
ask?	git のコミットを取り消す方法
ask?	git как отменить коммит
ask?	docker が遅い
shell	cat 报告.txt
shell	git add 报告.txt
ask?	grep for TODO in all files
shell	grep for main.py
ask?	mysql I need help
shell	diff I J
ask	list the open ports
ask	move everything to backup
ask?	python is too slow, what can I do
ask?	time to commit?
ask	delete node_modules
ask?	join these two files
ask?	touch every file in src
ask	explain git rebase
ask?	open the readme
ask?	look at main.py and tell me what it does
ask	write a function that sorts a list
ask?	split the file into parts of 10 lines
ask?	file a bug about this
ask	tell me a joke
ask?	cd into the folder with the tests
ask	was ist das für ein Fehler
ask	warum geht make nicht
ask?	date of the last commit
ask?	head over to src and list it
meta	:q
meta	:exit
meta	/clear
shell	./run.sh now
shell	git
shell	file main.py
shell?	man git commit
shell	touch a b c
shell	make all install
shell	last
shell	last -5
shell	git push origin main
shell	git pull
shell	git merge feature
shell	git show
shell	git branch new feature
shell	git init my
shell	tar czf my.tgz my
shell	git log -- my file
shell	install a b
shell	link a b
shell	cd my
shell?	make help install
shell	sudo service nginx restart
shell	kill 1 2 3
shell	top -b
shell	watch date
shell	touch x y z
shell	git checkout my-branch
shell	docker rm all
shell?	which ls cat
shell?	find src tests
shell	exit 1
shell	last bob
shell	echo it works please
shell	less old
shell	git tag
ask?	git commit everything with a good message
ask?	git push is rejected
ask?	git log shows nothing, why?
ask?	git merge has conflicts
ask?	git blame who wrote this line
ask?	git tell me what changed
ask?	npm run build crashes
ask?	make fails
ask?	make geht nicht
ask?	docker startet nicht
ask?	docker images are too big
ask?	touch a file named foo
ask?	make a file called notes
ask?	grep the logs for errors please
ask?	sort algorithms compared
ask?	file descriptors explained
ask?	kill signals explained
ask?	kill switch ideas
ask?	head over heels
ask?	clear all
ask?	clear the screen please
ask?	exit now please
ask?	top secret stuff
ask?	true story
ask?	false alarm
ask?	free memory
ask?	history of unix
ask?	jobs for today
ask?	date night ideas
ask?	last commit
ask?	declare victory
ask?	watch out
ask?	nice one
ask?	nice try
ask?	time for lunch
ask?	time zones in python
ask?	time complexity of quicksort
ask?	cd there
ask?	which one
ask?	look for TODOs
ask?	look up the docs
ask?	find die größte Datei
ask?	find los archivos grandes
ask?	sort die Liste
ask?	cat les fichiers
ask	else
ask	in german please
ask	then what
shell	ls the_dir
shell	git log origin/main
shell	git checkout -b fix-the-bug
shell	make the
shell	go run .
shell	node server.js
shell	npm run test unit
shell	docker logs web
shell	docker exec -it web sh
shell	cat /etc/hosts
shell	cp my.conf your.conf
shell	mv the.txt other.txt
shell	tail log
shell	kill %1
shell	cd src tests
shell	watch df -h
shell	sudo apt install vim
shell	wc all.txt
shell	cat i j
shell	tar tf all.tar
shell	mount
shell	date -u
shell	time sleep 1
shell	set
shell	seq 1 10
shell	paste a b
shell	nice make
shell	aws s3 ls
shell	rg TODO
shell	grep the file
shell	grep -c a b
shell	python setup.py install
shell	host example.com
shell	curl localhost:8000
shell	chmod 644 a b c
shell	tree src
shell	head a b
shell	ssh web
shell	git tag v1
shell	sh install.sh
shell	yes no
shell	file a b
shell	read name
shell	wait %1
shell	sed s/a/b/ x
ask?	find out who wrote this
ask?	make a backup of src
ask?	make me a sandwich
ask?	git keeps asking for my password
ask?	git is it possible to undo a push
ask?	docker is slow today
ask?	npm install hangs
ask?	cargo build fails with E0502
ask?	test whether the server is up
ask?	kill all the node processes
ask?	sort the lines of a by length
ask?	tail the log until it says ready
ask?	cat the three files into one
ask?	mv everything into backup
ask?	cp this to that
ask?	rm all the logs
ask	delete every pyc file
ask?	split this pdf
ask?	host this folder on port 80
ask?	which port is free
ask?	time how long make takes
ask	why did make fail?
ask?	is it raining
ask?	ls shows nothing
ask?	curl returns 403
ask?	ssh asks for a password every time
ask?	python can't find numpy
ask?	watch this folder for changes
ask?	open a pull request
ask?	read the config and explain it
ask?	set up a virtualenv
ask?	look into the failing test
ask?	wait what
ask?	sleep is what I need
ask?	top processes by memory
ask?	free up some disk space
ask?	nice work
ask?	type hints for this function please
ask?	file size of main.py?
ask?	let me know when it is done
ask?	true or false: bash is older than zsh
ask	for each file, print its size
ask	if the build fails, tell me why
ask	while you are at it, fix the docs
ask?	ping me when done
ask?	go ahead
ask?	node is not found
ask?	mount the usb stick
ask?	tree of this project please
ask?	env var for the key?
"""


@pytest.mark.parametrize(
    "row", [row for row in ROWS.splitlines() if row], ids=lambda row: row.replace("\t", ": ")
)
def test_a_line_is_decided_as_the_table_says(row: str) -> None:
    expected, line = row.replace("¶", "\n").split("\t", 1)
    metas = {"help", "model", "rolling-context"}
    decision = classify_input(line, resolves=resolves, metas=metas, names=lambda: COMMANDS)
    assert (decision.kind, decision.ambiguous) == (expected.rstrip("?"), expected.endswith("?")), decision


@pytest.mark.parametrize("line", ["", "  ", "!", "?", " ! "])
def test_a_line_with_nothing_in_it_is_nothing(line: str) -> None:
    assert classify_input(line, resolves=resolves).kind == "nothing"


def test_the_table_is_large_enough() -> None:
    assert len(ROWS.splitlines()) > 200


def test_the_hint_of_an_ambiguous_line_tells_how_to_get_the_other_reading() -> None:
    asked = classify_input("find the parser", resolves=resolves)
    why = "find is a command, but this reads like a sentence"
    assert asked.hint == f"{why}: sent as a question. To run it, put ! in front: !find the parser"
    assert classify_input("!find the parser", resolves=resolves) == InputDecision("shell", "find the parser")
    ran = classify_input("sort names numbers", resolves=resolves)
    assert ran.hint.endswith("put ? in front: ?sort names numbers")


def test_a_slip_in_a_name_is_told_with_the_line_that_was_meant() -> None:
    asked = classify_input("gti commit -m 'one two'", resolves=resolves, names=lambda: COMMANDS)
    hint = "Unknown command gti (did you mean git?): sent as a question. To run it: git commit -m 'one two'"
    assert asked == InputDecision("ask", "gti commit -m 'one two'", True, hint)
    assert classify_input("gti status", resolves=resolves) == InputDecision(
        "ask", "gti status"
    )  # no names to compare with
    unknown = classify_input("gti status", resolves=lambda word: word == "ls", names=lambda: COMMANDS)
    assert not unknown.hint  # a name in a folder of the PATH that cannot be run


def test_a_hint_shows_the_first_line_of_many() -> None:
    asked = classify_input("find the parser\nand the lexer", resolves=resolves)
    assert asked.hint.endswith("put ! in front: !find the parser …")


WORDS = """
about actually add after again agree all also always and another answer any anything app are asap ask awesome
back bad best better big bird black blue boat book both bug but buy bye call can cancel change cheers class
code coffee come cool correct cost could count create damn data day delete describe did different disk does
dog done email end english error even exactly example explain fast fine first five fix food for four from
funny german get give go good great green group guess haha happy hate have hello help here hey hi hmm hola
home hope hour house how huh idea indeed into is issue it job joke just keep kind know lake later lets like
line list lol long longer look love main make many maybe me merci mine minute mom money month moon morning
most move much must name names need never new news next night nine no nobody nope not note nothing now oh ok
okay one only oops open other our over past people perfect pick plan please poem port possibly price probably
question quick quit rather ready really red redo release remove retry review rust same search second see send
sheep shell ship short shorter should show simple size slow small some something sorry spanish star start
state stats stop story summarize sun sure table take tea tell ten thank thanks that the them then there they
thing think this three time today tomorrow too translate tree true try two ugh undo until update us use user
very wait want was water way weather welcome well were what when where which white who why will wish with
wonder word work world would wow write wrong yeah year yellow yep yes yesterday you your zero
"""
PROGRAMS = """
apt ar as awk aws base64 bash bat bc bind cal cargo cat cd chage chgrp chmod chown clang clear cmp code col
comm convert cp cron curl cut date dc dd df diff dig docker du echo ed emacs env expr fd fdisk fg file find
fish fmt fold for free fuser gcc gdb gh git go gold grep groups gzip head helm host htop id info ip jobs
jq jshell kill last less let link ln logger look ls lsof mail make man mkdir mount mutt mv namei nano nc nice
nl nm node npm od passwd paste patch perl php pic ping pip play ps ptar pwck pwd python rake read red rev rm
rsync ruby rustc rview sar sed seq set setarch sh shopt sleep sort split ss ssh stat su sudo sum sync tac tail
tar tee test then top touch tr tree ul uname uniq users uv vi view vim wait wall watch wc wget while who wish
write xargs yarn yes zip
"""


def test_no_word_that_people_say_is_taken_for_a_slip() -> None:
    programs = frozenset(PROGRAMS.split())
    words = [word for word in WORDS.split() if word not in programs]
    assert len(words) > 200
    told = [classify_input(word, resolves=programs.__contains__, names=lambda: programs) for word in words]
    assert [each for each in told if each != InputDecision("ask", each.text)] == []


@pytest.mark.parametrize(
    ("line", "kind"), [("ls \udcff", "shell"), ("!ls \udcff", "shell"), ("\udcff?", "ask")]
)
def test_bytes_that_are_no_text_are_made_harmless(line: str, kind: str) -> None:
    decision = classify_input(line, resolves=resolves)
    assert decision == InputDecision(kind, line.lstrip("!").replace("\udcff", "\N{REPLACEMENT CHARACTER}"))


def test_without_a_list_of_meta_commands_any_name_is_one() -> None:
    assert classify_input("/srv", resolves=lambda _: True).kind == "meta"
    assert classify_input("/srv", resolves=lambda _: True, metas=set()).kind == "shell"
    assert classify_input(":help me", resolves=resolves).text == "help me"


@given(st.text(max_size=40), st.booleans())
def test_every_text_is_decided_and_only_an_ambiguous_one_explains_itself(text: str, known: bool) -> None:
    decision = classify_input(text, resolves=lambda _: known)
    assert decision.kind in ("shell", "ask", "meta", "nothing")
    assert bool(decision.hint) >= decision.ambiguous


@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip().strip("!?")))
def test_a_mark_forces_the_decision(text: str) -> None:
    assert classify_input("!" + text, resolves=lambda _: False).kind == "shell"
    assert classify_input("?" + text, resolves=lambda _: True).kind == "ask"


@given(st.sampled_from(sorted(ENGLISH)), st.sampled_from(("-l", "--all", "*.py", "a/b", "x > y")))
def test_what_only_a_shell_understands_is_never_taken_for_a_sentence(word: str, rest: str) -> None:
    decision = classify_input(f"{word} {rest}", resolves=lambda _: True)
    assert decision.kind == "shell" or not decision.hint or "not complete" in decision.hint


# Lines that go on.

OPEN = """
for i in 1 2; do
for i in 1 2
for f in *.py
for f in *.py; do¶echo "$f"
for ((i = 0; i < 3; i++)); do
while true; do
while read line
until test -f a; do
if test -f a; then
if [ -f a ]
if ls; then¶echo yes¶else
case $x in
case "$1" in¶a) ls ;;
select x in a b
function greet {
greet() {
{ ls
(cd src; ls
cat <<EOF
cat <<'EOF' > notes.txt¶what is this
echo "one
echo 'one
echo $(ls
echo `ls
echo ${x
ls |
ls &&
ls ||
ls \\
x=(1 2
x="one
FOO=1 make |
time ls |
timeout 5 ls |
( ls
[[ -f a &&
((x = 1
!for i in 1 2; do
!frobnicate |
! frobnicate "one
python3 - <<EOF¶print("what is this, and how?")
"""

WHOLE = """
ls
ls -la | wc -l
for i in 1 2; do ls; done
for i in 1 2; do¶echo $i¶done
cat <<EOF¶what¶EOF
greet() { ls; }
echo "it's"
echo it's
git doesn't work (
find files that don't work
what's up
who's there
why (
(see above
(I think that
{ you know
for me, what is best
for example
for example in the docs
for instance in case of
if I may ask: (
if I delete this, what happens?
if test is slow
if this is it
while you are at it
until we meet
case by case
case in point
function of time
function composition
select the best
make a list of "things
ls )
frobnicate |
hello (
?for i in 1 2; do
? cat <<EOF
:help (
/model (
3 + (4
"""


def rows(table: str) -> list[str]:
    return [row.replace("¶", "\n") for row in table.splitlines() if row]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    made = Runner(cwd=Path("/"), environ={"PATH": os.environ.get("PATH", os.defpath), "LANG": "de_DE.UTF-8"})
    yield made
    made.close()


@pytest.mark.parametrize("text", rows(OPEN))
def test_a_command_goes_on_where_bash_would_go_on_reading(runner: Runner, text: str) -> None:
    assert is_unfinished(text, resolves=resolves, reads_on=runner.reads_on)


@pytest.mark.parametrize("text", rows(WHOLE))
def test_a_whole_command_and_a_sentence_do_not_go_on(runner: Runner, text: str) -> None:
    assert not is_unfinished(text, resolves=resolves, reads_on=runner.reads_on)


@pytest.mark.parametrize("text", ["ls -la", "git status", "hello", "why is it slow", "it's", "?ls |", ""])
def test_bash_is_not_asked_about_what_cannot_be_open(text: str) -> None:
    def never(_: str) -> bool:
        raise AssertionError("bash was asked")

    assert not is_unfinished(text, resolves=resolves, reads_on=never)


def test_nothing_is_run_by_asking_whether_a_text_goes_on(runner: Runner, tmp_path: Path) -> None:
    assert is_unfinished(f"touch {tmp_path}/mark; (ls", resolves=lambda _: True, reads_on=runner.reads_on)
    assert not (tmp_path / "mark").exists()


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=20), st.sampled_from(("(", "'", "<<", "\0|", "\ud800{")))
def test_every_text_can_be_asked_about(runner: Runner, text: str, sign: str) -> None:
    assert is_unfinished(f"!{text}{sign}", resolves=resolves, reads_on=runner.reads_on) in (True, False)
