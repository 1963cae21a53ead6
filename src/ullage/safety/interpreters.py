"""Classifies commands that run a program given as text: shells, languages, sed, awk and databases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ullage.safety import code, targets
from ullage.safety.awk_program import read_pipes
from ullage.safety.lookup import read_rule_arguments
from ullage.safety.options import NO_OPTIONS, read_arguments
from ullage.safety.rules import DatabaseClient, table
from ullage.safety.verdict import Verdict, worst
from ullage.safety.words import Word, join

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ullage.safety.scene import Scene, Words

    Handler = Callable[[str, Words, Scene], Verdict]

CHECKS: Mapping[str, str] = {"php": "-l", "node": "-c|--check", "nodejs": "-c|--check"}
"""Interpreters with the option that only checks the syntax of a file."""

FOREIGN = frozenset(("csh", "fish", "tcsh"))
"""Shells whose language is not that of bash: `fish -c 'ls (rm x)'` runs `rm`."""

_PLAIN = re.compile(r"[\w\s./,:=+@%|;&<>'\"-]*")
"""A text that means the same to each of these shells as to bash."""

SHELL_VALUES = frozenset(("-o", "+o", "-O", "+O", "--rcfile", "--init-file"))


def shell(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies a shell by its -c text; without -c, the shell runs something that is not on the line."""
    if [word.text for word in words] in (["--version"], ["--help"]):
        return scene.verdict("read-only", f"{name} prints its help or version")
    at = 0
    coded = False
    doubt = ""
    while at < len(words) and words[at].text[:1] in ("-", "+") and not words[at].loose:
        text = words[at].text
        coded = coded or bool(re.fullmatch(r"-\w*c\w*", text))
        if not re.fullmatch(r"[-+][a-zA-Z]+|--(?:norc|noprofile|posix|login|restricted|verbose)?", text):
            doubt = f"the option {text} of {name} is not in the rules"
            scene.facts.runs = scene.facts.runs or name
        at += 2 if text in SHELL_VALUES else 1
    if [word.text for word in words[:1]] == ["-n"] and len(words) == 2 and not words[1].loose:
        return scene.verdict("read-only", f"{name} -n only checks the syntax")
    if name in FOREIGN and coded and not all(_PLAIN.fullmatch(word.text) for word in words[at:]):
        doubt = f"the text may mean something else to {name} than to bash"
    if doubt:
        return worst(
            [
                scene.verdict("unknown", doubt),
                *(scene.code(word, name) for word in words[at : at + 1] if coded),
            ]
        )
    if not coded:
        scene.facts.runs = scene.facts.runs or name
        return scene.verdict("unknown", f"{name} runs a file or its input, which is not on the line")
    if at >= len(words):
        return scene.verdict("unknown", f"{name} -c has no command")
    return scene.code(words[at], name)


def switching(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `su`, `script` and similar commands by their -c text; without -c, they are unknown."""
    for at, word in enumerate(words):
        match = re.fullmatch(r"-\w*c|--command(?:=(.*))?", word.text, re.DOTALL)
        if match:
            rest = Word(match[1], fixed=word.fixed) if match[1] else (words[at + 1 : at + 2] or [Word("")])[0]
            floor = scene.verdict("unknown", f"{name} runs a command as another user or records it in a file")
            return worst([floor, scene.code(rest, name)])
    return scene.verdict("unknown", f"{name} opens a shell")


def sourcing(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `source` and `.`, which run the commands of a file."""
    scene.facts.runs = scene.facts.runs or name
    named = words[0].text if words else "nothing"
    return scene.verdict("unknown", f"{name} runs the commands of {named}")


def language(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies an interpreter: unknown, or destructive if its program names a call that deletes."""
    texts = [word.text for word in words]
    if texts in (["--version"], ["-V"], ["-v"], ["--help"], ["-h"]):
        return scene.verdict("read-only", f"{name} prints its help or version")
    isolated = texts[:1] in (["-I"], ["-P"])
    if isolated and texts[1:3] in (["-m", "json.tool"], ["-m", "calendar"]) and len(texts) < 5:
        return scene.verdict("read-only", f"{name} {' '.join(texts[:3])} only reads")
    if name in CHECKS and len(texts) == 2 and re.fullmatch(CHECKS[name], texts[0]) and not words[1].loose:
        return scene.verdict("read-only", f"{name} {texts[0]} only checks the syntax")
    if texts[:1] == ["-m"] and len(texts) > 1 and texts[1] in ("pip", "pip3", "ruff", "black"):
        floor = scene.verdict("unknown", f"{name} -m runs a file of this name if the folder has one")
        return worst([floor, scene.words(words[1:])])
    call = next((found for text in texts if (found := code.deletes(text))), None)
    if call:
        return scene.verdict("destructive", f"{name} gets a program that has {call.strip()} in it")
    given = any(re.match(r"-\w*[ceErRp]$|--eval|--print|-e|--execute", text) for text in texts)
    if not given and texts[:1] != ["-m"]:
        scene.facts.runs = scene.facts.runs or name
    return scene.verdict("unknown", f"{name} runs a program")


def sed(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `sed`: -i changes files, and a script may write files and run commands."""
    if [word.text for word in words] in (["--version"], ["--help"]):
        return scene.verdict("read-only", f"{name} prints its help or version")
    found = [scene.verdict("read-only", "sed only changes the text that passes through it")]
    scripts: Words = []
    operands: Words = []
    replaces = False
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
            replaces = replaces or bool(re.fullmatch(r"-[nErsuz]*i|--in[\w-]*", text))
        elif not text.startswith("-") or text == "-":
            operands.append(words[at])
        elif not re.fullmatch(
            r"-[nErsuz]+|-l\d+|--(?:quiet|silent|regexp-extended|null-data|posix|debug|separate|unbuffered|sandbox)",
            text,
        ):
            found.append(scene.verdict("unknown", f"the option {text} of sed is not in the rules"))
        at += 1
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    found += targets.classify_changes(operands, name, scene) if replaces else []
    if any(word.loose or word.splits for word in words) or not all(
        word.fixed and code.sed(word.text) for word in scripts
    ):
        found.append(scene.verdict("unknown", "the script of sed may write files or run commands"))
    return worst(found)


def awk(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `awk`, whose program may write files and run commands."""
    if any(code.deletes(word.text) for word in words):
        return scene.verdict("destructive", f"{name} gets a program that deletes")
    seen = read_rule_arguments(table().rules["awk"], words)
    if seen.unknown or not seen.operands:
        return scene.verdict("unknown", f"{name} gets a program or an option that is not in the rules")
    first = next(at for at, word in enumerate(words) if word is seen.operands[0])
    loose = any(word.loose or word.splits for word in words[: first + 1])
    piped = None if loose or not seen.operands[0].fixed else read_pipes(seen.operands[0].text)
    if piped is None:
        return scene.verdict("unknown", f"the program of {name} may write files or run commands")
    return worst(
        [scene.verdict("read-only", f"{name} only prints"), *(scene.code(Word(each), name) for each in piped)]
    )


def database(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies a database client by the statements on the line."""
    texts = [word.text for word in words]
    if texts in (["--version"], ["-V"], ["--help"], ["-l"], ["--list"]):
        return scene.verdict("read-only", f"{name} prints its help, its version or a list")
    client = table().databases.get(name, DatabaseClient(NO_OPTIONS, frozenset(), False))
    seen = read_arguments(words, lambda _: client.options, whole=client.whole)
    given = [each.value for each in seen.given if each.name in client.statements and each.value]
    if name in ("sqlite3", "duckdb"):
        given += seen.operands[1:]
    whole = code.sql(join(words).text) if words else ("unknown", "")
    if whole[0] == "destructive" and any(code.sql(word.text)[0] == "destructive" for word in words):
        return scene.verdict("destructive", f"{name} {whole[1]}")
    if not given:
        scene.facts.asks = name
    scripts = name in ("mongosh", "mongo") and any(_SCRIPT.search(word.text) for word in seen.operands)
    if seen.unknown or seen.loose or seen.many or scripts:
        return scene.verdict(
            "unknown", f"{name} has an argument that is not in the rules or not known before it runs"
        )
    if not given or not all(word.fixed for word in given):
        return scene.verdict("unknown", f"{name} runs statements that are not on the line")
    if name == "psql" and any("`" in word.text for word in given):
        return scene.verdict("unknown", f"{name} runs the text in backquotes as a command")
    found = [
        Verdict(kind, f"{name} {reason}", scene.part)
        for kind, reason in (code.sql(word.text) for word in given)
    ]
    if any(each.name in HOSTS and each.value and not each.value.fixed for each in seen.given):
        found.append(scene.verdict("sends", f"{name} looks up a machine whose name the line makes"))
    if name in ("duckdb", "clickhouse-client") and any("://" in word.text for word in given):
        found.append(scene.verdict("sends", f"{name} asks another machine"))
    return worst(found)


_SCRIPT = re.compile(r"^(?!mongodb)(?=.*[./])|\.m?js$")
"""An argument of `mongosh` that may be a file to run."""

HOSTS = frozenset(("-h", "--host", "-S"))
"""Options of database clients whose value is a machine."""


def alias(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `alias` by the text that it defines."""
    given = [word for word in words if "=" in word.text]
    found = [scene.verdict("read-only", f"{name} only reads")]
    for word in given:
        label, _, text = word.text.partition("=")
        found += [
            scene.verdict("unknown", f"{name} changes what {label} means"),
            scene.code(Word(text, fixed=word.fixed), name),
        ]
    return worst(found)


def trap(name: str, words: Words, scene: Scene) -> Verdict:
    """Classifies `trap` by the text that it runs on a signal."""
    operands = [word for word in words if word.text not in ("-p", "-l", "--")]
    if len(operands) < 2 or operands[0].text in ("", "-"):
        return scene.verdict("read-only", f"{name} sets no command")
    floor = scene.verdict("unknown", f"{name} runs a command later")
    return worst([floor, scene.code(operands[0], name)])


SHELLS = "sh bash dash zsh ksh mksh ash fish rbash csh tcsh"
LANGUAGES = """
python python2 python3 pypy pypy3 ipython perl ruby irb node nodejs deno php lua luajit Rscript R julia
osascript pwsh powershell groovy scala ghci runghc tclsh expect guile racket sbcl erl elixir swift bun
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
