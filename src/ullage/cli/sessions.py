"""`ullage sessions`: lists, prints and deletes saved conversations."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from ullage.cli.command_spec import ActionSpec, CommandSpec, json_option, store_option
from ullage.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ullage.store import Session, Store

EXIT_CODES = """\
exit codes:
  0  done
  1  no store, a damaged session, or a session that is open elsewhere and was not deleted
  2  wrong usage: an unknown option or session, an unusable store, a deletion without your yes"""

DESCRIPTION = """\
Manages saved conversations. Deleting a session also deletes the texts that no other session uses, and the
store becomes smaller. Its costs stay in `ullage cost`. A session is named by its id, or by the beginning
of its id."""

EXAMPLES = """\
examples:
  ullage sessions list
  ullage sessions show 2f6c --json > session.jsonl
  ullage sessions delete 2f6c 91ab
  ullage sessions prune --older-than 90d --yes"""

MANY = 2**31 - 1
DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}
"""Number of days in each unit of an age."""
_AGE = re.compile(r"([0-9]{1,6})([dwmy])")


def _list_options(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--most", type=_positive, default=20, metavar="N", help="print at most N sessions (default: 20)"
    )
    _output_options(action)


def _show_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("session", metavar="SESSION", help="an id, or the beginning of one")
    _output_options(action)


def _delete_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("sessions", nargs="+", metavar="SESSION", help="an id, or the beginning of one")
    _consent_options(action)


def _prune_options(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--older-than",
        type=parse_age,
        required=True,
        metavar="AGE",
        dest="age",
        help="sessions whose last turn is older than this: 90d (days), 12w (weeks), 6m (months), 1y (years)",
    )
    _consent_options(action)


def _consent_options(action: argparse.ArgumentParser) -> None:
    action.add_argument("--yes", action="store_true", help="delete without asking")
    action.add_argument(
        "--dry-run", action="store_true", help="only print the sessions that would be deleted"
    )
    _output_options(action)


def _output_options(action: argparse.ArgumentParser) -> None:
    json_option(action)
    store_option(action)


def parse_age(text: str) -> float:
    """Returns an age such as 90d, 12w, 6m (30 days each) or 1y (365 days) in seconds."""
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age: write 90d, 12w, 6m or 1y")
    return int(found[1]) * DAYS[found[2]] * 86_400.0


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MANY:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


# Actions ----------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Runs the action and returns the exit code."""
    from ullage.cli.open_store import MISSING, open_store

    with open_store(options.store) as kept:
        return MISSING if kept is None else ACTS[options.action](options, kept)


def _list(options: argparse.Namespace, kept: Store) -> int:
    _print_sessions(kept.sessions(options.most), json=options.json)
    return 0


def _show(options: argparse.Namespace, kept: Store) -> int:
    from ullage.cli.complaint import complain
    from ullage.cli.open_store import MISSING

    (session,) = find_sessions(kept, [options.session])
    events = kept.salvage(session.id)
    damaged = [number for number, event in enumerate(events) if event is None]
    for number, event in enumerate(events):
        _print_event(number, event, json=options.json)
    if damaged:
        numbers = ", ".join(map(str, damaged[:10])) + (" …" if len(damaged) > 10 else "")
        complain(
            f"{len(damaged)} of {len(events)} events {'is' if len(damaged) == 1 else 'are'} damaged and "
            f"cannot be read: {numbers}. If you have a backup of the store, restore it"
        )
    return MISSING if damaged or len(events) < session.events else 0


def _delete(options: argparse.Namespace, kept: Store) -> int:
    return _delete_sessions(options, kept, find_sessions(kept, options.sessions))


def _prune(options: argparse.Namespace, kept: Store) -> int:
    from ullage.cli.complaint import complain

    before = time.time() - options.age
    old = [each for each in kept.sessions(MANY) if each.updated < before]
    for each in old:
        if each.damaged:  # its time may be wrong too
            complain(f"session {each.id} is damaged and was kept. `ullage sessions delete` deletes it")
    return _delete_sessions(options, kept, [each for each in old if not each.damaged])


ACTS: dict[str, Callable[[argparse.Namespace, Store], int]] = {
    "list": _list,
    "show": _show,
    "delete": _delete,
    "prune": _prune,
}


def find_sessions(kept: Store, names: Iterable[str]) -> list[Session]:
    """Returns the sessions whose ids are, or begin with, these names.

    Raises ConfigurationError for a name that matches no session or more than one.
    """
    known = {each.id: each for each in kept.sessions(MANY)}
    found: dict[str, Session] = {}
    for name in names:
        fitting = [name] if name in known else [each for each in known if name and each.startswith(name)]
        if len(fitting) != 1:
            how_many = f"{len(fitting)} sessions begin" if fitting else "no session begins"
            raise ConfigurationError(f"{how_many} with {name!r}. `ullage sessions list` prints their ids")
        found[fitting[0]] = known[fitting[0]]
    return list(found.values())


def _delete_sessions(options: argparse.Namespace, kept: Store, sessions: Sequence[Session]) -> int:
    """Deletes sessions after the user confirmed it; returns the exit code."""
    if options.dry_run or not sessions:
        _print_sessions(sessions, json=options.json)
        if not options.json:
            _say(f"{_number(len(sessions))} would be deleted" if sessions else "no session to delete")
        return 0
    if not options.yes and not _consents(sessions):
        return 2
    before = _size_of(kept)
    gone = [session.id for session in sessions if _is_deleted(kept, session)]
    if gone:
        kept.shrink()
    _print_deleted(options, gone, before - _size_of(kept))
    return 0 if len(gone) == len(sessions) else 1


def _consents(sessions: Sequence[Session]) -> bool:
    """Returns True if the user confirms on the terminal; without a terminal prints a message."""
    from ullage.cli.complaint import complain

    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        complain(
            f"cannot ask without a terminal before deleting {_number(len(sessions))}. "
            "Use --yes to delete, or --dry-run to see the list"
        )
        return False
    _print_sessions(sessions, json=False)
    sys.stdout.flush()
    sys.stderr.write(f"Delete {_number(len(sessions))} permanently? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in {"y", "yes"}:
        return True
    complain("nothing was deleted")
    return False


def _is_deleted(kept: Store, session: Session) -> bool:
    from ullage.cli.complaint import complain

    try:
        return kept.delete_session(session.id)
    except StoreError as error:
        complain(str(error))
        return False


def _size_of(kept: Store) -> int:
    """Returns the size of the store in bytes, with its write-ahead log."""
    if kept.path is None:
        return 0
    files = (kept.path, kept.path.with_name(f"{kept.path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


# Output -----------------------------------------------------------------------------------------------


def _number(sessions: int) -> str:
    return f"{sessions:,} session{'' if sessions == 1 else 's'}"


def _print_deleted(options: argparse.Namespace, gone: Sequence[str], freed: int) -> None:
    if options.json:
        from ullage.batch.request_text import encode

        sys.stdout.buffer.write(encode({"deleted": list(gone), "bytes_freed": max(0, freed)}))
    else:
        _say(f"deleted {_number(len(gone))}; the store is {max(0, freed) / 1e6:,.1f} MB smaller")


def _say(text: str) -> None:
    from ullage.window_chart import console

    console().file.write(f"{text}\n")


def _print_sessions(sessions: Sequence[Session], *, json: bool) -> None:
    if json:
        from ullage.batch.request_text import encode

        sys.stdout.buffer.writelines(encode(each._asdict()) for each in sessions)
        return
    from datetime import UTC, datetime

    from ullage.text import one_line
    from ullage.window_chart import console, short

    out = console()
    for each in sessions:
        at = datetime.fromtimestamp(each.updated, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        begin = f"{one_line(each.id):<32}  {at}  {each.events:>6,} events  "
        title = "(damaged) " * each.damaged + one_line(each.title)
        out.file.write(f"{begin}{short(title, max(20, out.width - len(begin)))}\n")


def _print_event(number: int, event: tuple[str, Any] | None, *, json: bool) -> None:
    if json:
        from ullage.batch.request_text import encode

        kind, data = ("damaged", None) if event is None else event
        sys.stdout.buffer.write(encode({"number": number, "kind": kind, "data": data}))
        return
    from ullage.text import printable
    from ullage.window_chart import console

    who, text = _words_of(event)
    lines = text.splitlines() or [""]
    console().file.write(f"[{who}]\n" + "".join(f"{printable(line)}\n" for line in lines) + "\n")


def _words_of(event: tuple[str, Any] | None) -> tuple[str, str]:
    """Returns the role of an event's message, or the kind of the event, and its text."""
    from ullage.store.pieces import text_in

    if event is None:
        return "damaged", "This event cannot be read."
    kind, data = event
    message = data.get("message") if isinstance(data, dict) else None
    return str(message.get("role", kind)) if isinstance(message, dict) else kind, text_in(data) or ""


SPEC = CommandSpec(
    name="sessions",
    usage="ACTION [options]",
    brief="list, show and delete saved conversations",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=EXIT_CODES,
    run=run,
    actions=(
        ActionSpec(
            name="list",
            usage="[options]",
            brief="print the sessions, the latest first",
            add_options=_list_options,
        ),
        ActionSpec(
            name="show",
            usage="SESSION [options]",
            brief="print the turns of a session",
            add_options=_show_options,
        ),
        ActionSpec(
            name="delete", usage="SESSION ... [options]", brief="delete sessions", add_options=_delete_options
        ),
        ActionSpec(
            name="prune",
            usage="--older-than AGE [options]",
            brief="delete sessions that were not used for some time",
            add_options=_prune_options,
        ),
    ),
)
