"""Commands that run a program which they are given as text: shells, languages, sed, awk, databases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.shell.safety import code
from ullage.shell.safety.verdict import Verdict, worst
from ullage.shell.safety.words import Word, join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.shell.safety.scene import Scene, Words

    Handler = Callable[[str, Words, Scene], Verdict]

SHELL_VALUES = frozenset(("-o", "+o", "-O", "+O", "--rcfile", "--init-file"))


def shell(name: str, words: Words, scene: Scene) -> Verdict:
    """A shell: what it is given with -c, or else something that is not on the line."""
    if [word.text for word in words] in (["--version"], ["--help"]):
        return scene.verdict("read-only", f"{name} tells about itself")
    at = 0
    coded = False
    while at < len(words) and words[at].text[:1] in ("-", "+") and not words[at].loose:
        text = words[at].text
        coded = coded or bool(re.fullmatch(r"-\w*c\w*", text))
        at += 2 if text in SHELL_VALUES else 1
        if text in ("--rcfile", "--init-file"):
            scene.facts.runs = scene.facts.runs or name
    if not coded:
        scene.facts.runs = scene.facts.runs or name
        return scene.verdict("unknown", f"{name} runs a file or what it reads, which is not on the line")
    if at >= len(words):
        return scene.verdict("unknown", f"{name} -c of nothing")
    return scene.code(words[at], name)


def switching(name: str, words: Words, scene: Scene) -> Verdict:
    """`su`, `script` and the like: a text for a shell behind -c, and unknown without."""
    for at, word in enumerate(words):
        match = re.fullmatch(r"-\w*c|--command(?:=(.*))?", word.text, re.DOTALL)
        if match:
            rest = Word(match[1], fixed=word.fixed) if match[1] else (words[at + 1 : at + 2] or [Word("")])[0]
            floor = scene.verdict("unknown", f"{name} runs a command as somebody else or into a file")
            return worst([floor, scene.code(rest, name)])
    return scene.verdict("unknown", f"{name} opens a shell")


def sourcing(name: str, words: Words, scene: Scene) -> Verdict:
    """`source` and `.`: the commands of a file."""
    scene.facts.runs = scene.facts.runs or name
    named = words[0].text if words else "nothing"
    return scene.verdict("unknown", f"{name} runs the commands of {named}")


def language(name: str, words: Words, scene: Scene) -> Verdict:
    """An interpreter: unknown, and destructive where its program names a call that deletes."""
    texts = [word.text for word in words]
    if texts in (["--version"], ["-V"], ["-v"], ["--help"], ["-h"]):
        return scene.verdict("read-only", f"{name} tells about itself")
    if texts[:2] in (["-m", "json.tool"], ["-m", "tokenize"], ["-m", "calendar"]) and len(texts) < 4:
        return scene.verdict("read-only", f"{name} {' '.join(texts[:2])} only looks")
    if texts[:1] == ["-m"] and len(texts) > 1 and texts[1] in ("pip", "pip3", "ruff", "black"):
        return scene.words(words[1:])
    call = next((found for text in texts if (found := code.deletes(text))), None)
    if call:
        return scene.verdict("destructive", f"{name} is given a program with {call.strip()} in it")
    given = any(re.match(r"-\w*[ceErRp]$|--eval|--print|-e|--execute", text) for text in texts)
    if not given and texts[:1] != ["-m"]:
        scene.facts.runs = scene.facts.runs or name
    return scene.verdict("unknown", f"{name} runs a program")


def sed(name: str, words: Words, scene: Scene) -> Verdict:
    """`sed`: -i changes files; a script may write files and run commands."""
    if [word.text for word in words] in (["--version"], ["--help"]):
        return scene.verdict("read-only", f"{name} tells about itself")
    found = [scene.verdict("read-only", "sed only changes what flows through it")]
    scripts: Words = []
    operands: Words = []
    at = 0
    while at < len(words):
        text = words[at].text
        long = re.match(r"--exp\w*=(.*)", text, re.DOTALL)
        if long:
            scripts.append(Word(long[1], fixed=words[at].fixed))
        elif re.fullmatch(r"-[nErsuz]*e|--exp\w*", text):
            scripts += words[at + 1 : at + 2]
            at += 1
        elif re.match(r"-[nErsuz]*f|--fi", text):
            found.append(scene.verdict("unknown", "sed -f runs a script that is not on the line"))
        elif re.match(r"-[nErsuz]*i|--in|-[nErsuz]*I", text):
            found.append(scene.verdict("writes", "sed -i changes files"))
        elif not text.startswith("-") or text == "-":
            operands.append(words[at])
        elif not re.fullmatch(
            r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|null-data|posix|debug|separate|unbuffered|sandbox)",
            text,
        ):
            found.append(scene.verdict("unknown", f"the option {text} of sed is not in the rules"))
        at += 1
    scripts = scripts or operands[:1]
    if any(word.loose for word in words) or not all(word.fixed and code.sed(word.text) for word in scripts):
        found.append(scene.verdict("unknown", "the script of sed may write files or run commands"))
    return worst(found)


def awk(name: str, words: Words, scene: Scene) -> Verdict:
    """`awk`: a program that may write files and run commands."""
    texts = [word.text for word in words]
    if any(code.deletes(text) for text in texts):
        return scene.verdict("destructive", f"{name} is given a program that deletes")
    if any(
        re.match(r"-\w*[fiEleDo]|--(?!version|help|csv|re-interval|posix)", text)
        for text in texts
        if not re.match(r"-[Fv]", text)
    ):
        return scene.verdict("unknown", f"{name} is given a program or an option that the rules cannot read")
    if not all(code.awk(text) for text in texts) or not all(word.fixed for word in words):
        return scene.verdict("unknown", f"the program of {name} may write files or run commands")
    return scene.verdict("read-only", f"{name} only prints")


def database(name: str, words: Words, scene: Scene) -> Verdict:
    """A client of a database: the statements that it is given."""
    texts = [word.text for word in words]
    if texts in (["--version"], ["-V"], ["--help"], ["-l"], ["--list"]):
        return scene.verdict("read-only", f"{name} tells about itself")
    given: Words = []
    for at, word in enumerate(words):
        match = re.match(
            r"(?:-\w*[ce]|--command|--execute|--eval)(?:=|(?<=-[ce])(?=.)|$)(.*)", word.text, re.DOTALL
        )
        if match:
            given += [Word(match[1], fixed=word.fixed)] if match[1] else words[at + 1 : at + 2]
    if name == "sqlite3":
        given += [word for word in words if not word.text.startswith("-")][1:]
    whole = code.sql(join(words).text) if words else ("unknown", "")
    if whole[0] == "destructive":
        return scene.verdict("destructive", f"{name} {whole[1]}")
    if not given:
        scene.facts.asks = name
    if (
        not given
        or not all(word.fixed for word in given)
        or re.search(r"(^|\s)(-f|-o|-L|--file|--output|-\w*init|-cmd)\b", " ".join(texts))
    ):
        return scene.verdict("unknown", f"{name} runs statements that are not on the line")
    return worst(
        Verdict(kind, f"{name} {reason}", scene.part)
        for kind, reason in (code.sql(word.text) for word in given)
    )


def alias(name: str, words: Words, scene: Scene) -> Verdict:
    """`alias`: a line for later."""
    given = [word for word in words if "=" in word.text]
    found = [scene.verdict("read-only", f"{name} only looks")]
    for word in given:
        label, _, text = word.text.partition("=")
        found += [
            scene.verdict("unknown", f"{name} changes what {label} means"),
            scene.code(Word(text, fixed=word.fixed), name),
        ]
    return worst(found)


def trap(name: str, words: Words, scene: Scene) -> Verdict:
    """`trap`: a line for a signal."""
    operands = [word for word in words if word.text not in ("-p", "-l", "--")]
    if len(operands) < 2 or operands[0].text in ("", "-"):
        return scene.verdict("read-only", f"{name} sets no command")
    return scene.code(operands[0], name)


SHELLS = "sh bash dash zsh ksh mksh ash fish rbash csh tcsh"
LANGUAGES = """
python python2 python3 pypy pypy3 ipython perl ruby irb node nodejs deno php lua luajit Rscript R julia
osascript pwsh powershell groovy scala ghci runghc tclsh expect guile racket sbcl erl elixir swift
"""
DATABASES = "psql mysql mariadb sqlite3 mongosh mongo clickhouse-client duckdb sqlcmd cqlsh"

HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(SHELLS.split(), shell),
    **dict.fromkeys(LANGUAGES.split(), language),
    **dict.fromkeys(DATABASES.split(), database),
    **dict.fromkeys(["su", "runuser", "script", "sg"], switching),
    **dict.fromkeys(["source", "."], sourcing),
    **dict.fromkeys(["awk", "gawk", "mawk", "nawk"], awk),
    "sed": sed,
    "alias": alias,
    "trap": trap,
}
