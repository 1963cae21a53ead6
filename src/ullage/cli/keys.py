"""`ullage keys`: makes, lists, revokes and rotates the keys of the gateway."""
# ruff: noqa: PLC0415 - a command's modules are loaded when it runs

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from ullage.cli.command_spec import ActionSpec, CommandSpec, json_option, positive_number, store_option
from ullage.cli.complaint import complain
from ullage.cli.open_store import MISSING, STORE_EXIT_CODES, open_store

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable
    from decimal import Decimal

    from ullage.cost.keys import GatewayKey, Limits
    from ullage.store import Store

DESCRIPTION = """\
Manages the keys of the gateway. A client sends its key instead of a provider's key. Each key has a name, the
models that it may use, and caps in dollars, tokens and requests. Only a hash of a key is stored: the key
itself is printed once. As long as there is no key, the gateway lets in clients on its own machine.

Days and months are in UTC. A cap is checked before a request is sent, with the most that it could cost."""

EXAMPLES = """\
examples:
  ullage keys create laptop
  ullage keys create intern --models 'gpt-4o-mini*' 'claude-haiku-*' --dollars-a-day 2 --requests-a-minute 30
  ullage keys create dashboard --admin
  ullage keys list
  ullage keys rotate laptop --grace 24h
  ullage keys revoke intern"""

PERIODS = {"day": "a day", "month": "a month", "total": "in all"}
"""Field of Limits → its words."""
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
"""Unit of a duration → its seconds."""
LONGEST = 36_500 * SECONDS["d"]
"""Seconds of the longest duration, a century; a date far beyond it could not be shown."""


def _add_options_of_create(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="NAME", help="a name of your choice, for the list and the bill")
    action.add_argument(
        "--models",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help="the models that the key may use, such as 'gpt-4o*' (default: every model)",
    )
    for unit, kind, words in (("dollars", _dollars, "dollars"), ("tokens", positive_number, "tokens")):
        for field, period in PERIODS.items():
            option = f"--{unit}" if field == "total" else f"--{unit}-a-{field}"
            action.add_argument(
                option, type=kind, dest=f"{unit}_{field}", metavar="N", help=f"the most {words} {period}"
            )
    action.add_argument(
        "--requests-a-minute", type=positive_number, metavar="N", help="the most requests a minute"
    )
    action.add_argument(
        "--largest-limit",
        type=positive_number,
        metavar="N",
        help="the most input tokens of a request; longer ones are trimmed (default: the model's window)",
    )
    action.add_argument(
        "--policy-fields",
        nargs="+",
        default=["all"],
        metavar="FIELD",
        help="the rules of a trim that a request may set with x-ullage-policy, or none (default: all)",
    )
    action.add_argument("--expires", type=_lifetime, metavar="TIME", help="ends after this time, such as 30d")
    action.add_argument("--recall", action="store_true", help="the model may search what was left out")
    action.add_argument("--admin", action="store_true", help="the key also opens the page of the gateway")
    _add_output_options(action)


def _add_options_of_rotate(action: ArgumentParser) -> None:
    _add_key(action)
    action.add_argument(
        "--grace",
        type=_duration,
        default=0.0,
        metavar="TIME",
        help="the old secret stays valid for this time, such as 30m, 24h or 7d (default: not at all)",
    )
    _add_output_options(action)


def _add_options_of_revoke(action: ArgumentParser) -> None:
    _add_key(action)
    _add_output_options(action)


def _add_key(action: ArgumentParser) -> None:
    action.add_argument("key", metavar="KEY", help="the name or the id from `ullage keys list`")


def _add_output_options(action: ArgumentParser) -> None:
    json_option(action)
    store_option(action)


def _dollars(text: str) -> Decimal:
    from ullage.errors import ConfigurationError
    from ullage.usage import dollars

    try:
        return dollars(text.removeprefix("$"), "a cap")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _duration(text: str) -> float:
    """Returns seconds, from a number with s, m, h or d."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write 30m, 24h or 7d")
    seconds = float(found[1]) * SECONDS[found[2]]
    if seconds > LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is too long: write at most {LONGEST // SECONDS['d']:,}d")
    return seconds


def _lifetime(text: str) -> float:
    """Returns the seconds for which a key is valid, more than none."""
    seconds = _duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} ends the key at once: write a longer time, such as 30d")
    return seconds


def run(options: Namespace) -> int:
    """Runs the action and returns the exit code."""
    with open_store(options.store, make=options.action == "create") as kept:
        return MISSING if kept is None else ACTIONS[options.action](options, kept)


def _create(options: Namespace, kept: Store) -> int:
    import time

    from ullage.cost.keys import POLICY_FIELDS, Limits

    fields = {"all": POLICY_FIELDS, "none": ()}.get(" ".join(options.policy_fields), options.policy_fields)
    made = kept.keys.create(
        options.name,
        models=options.models,
        dollars=Limits(*(getattr(options, f"dollars_{field}") for field in PERIODS)),
        tokens=Limits(*(getattr(options, f"tokens_{field}") for field in PERIODS)),
        requests_a_minute=options.requests_a_minute,
        largest_limit=options.largest_limit,
        policy_fields=fields,
        may_recall=options.recall,
        is_admin=options.admin,
        expires=None if options.expires is None else time.time() + options.expires,
    )
    _print_secret(options, made.key, made.secret, "This is the new key. It is shown only now:")
    return 0


def _list(options: Namespace, kept: Store) -> int:
    keys = kept.keys.all()
    spent = {
        key.id: (kept.book.used("key", key.id)[0], kept.book.used("key", key.id, "tokens")[0]) for key in keys
    }
    if options.json:
        for key in keys:
            dollars, tokens = spent[key.id]
            _write_json({**_plain(key), "spent": {"dollars": f"{dollars:f}", "tokens": int(tokens)}})
        return 0
    if not keys:
        complain("there are no keys: `ullage keys create NAME` makes one")
    for line in _table([_row(key, *spent[key.id]) for key in keys]):
        sys.stdout.write(f"{line}\n")
    return 0


def _revoke(options: Namespace, kept: Store) -> int:
    key = kept.keys.revoke(options.key)
    if options.json:
        _write_json(_plain(key))
    else:
        complain(f"revoked key {key.name} ({key.id})")
    return 0


def _rotate(options: Namespace, kept: Store) -> int:
    made = kept.keys.rotate(options.key, options.grace)
    until = f"for {options.grace:,.0f} s more" if options.grace else "no longer"
    _print_secret(options, made.key, made.secret, f"The old key is valid {until}. This is the new one:")
    return 0


ACTIONS: dict[str, Callable[[Namespace, Store], int]] = {
    "create": _create,
    "list": _list,
    "revoke": _revoke,
    "rotate": _rotate,
}


# Output -----------------------------------------------------------------------------------------------


def _print_secret(options: Namespace, key: GatewayKey, secret: str, words: str) -> None:
    """Prints a secret alone on standard output, so that a script can read it."""
    if options.json:
        _write_json({**_plain(key), "secret": secret})
        return
    complain(words)
    sys.stdout.write(f"{secret}\n")


def _write_json(value: Any) -> None:
    from ullage.batch.request_text import encode

    sys.stdout.buffer.write(encode(value))


def _plain(key: GatewayKey) -> dict[str, Any]:
    """Returns a key as a JSON value."""
    from dataclasses import asdict

    dollars = {
        name: None if limit is None else f"{limit:f}"
        for name, limit in zip(PERIODS, key.dollars, strict=True)
    }
    tokens = dict(zip(PERIODS, key.tokens, strict=True))
    lists = {"models": list(key.models), "policy_fields": list(key.policy_fields)}
    return {**asdict(key), **lists, "dollars": dollars, "tokens": tokens}


def _row(key: GatewayKey, dollars: Decimal, tokens: Decimal) -> tuple[str, ...]:
    from ullage.cost.keys import POLICY_FIELDS

    caps = [*_caps(key.dollars, "${:f}"), *_caps(key.tokens, "{:,} tokens")]
    if key.requests_a_minute is not None:
        caps.append(f"{key.requests_a_minute:,} requests a minute")
    if key.largest_limit is not None:
        caps.append(f"{key.largest_limit:,} tokens a request")
    if key.policy_fields != POLICY_FIELDS:
        caps.append(f"policy: {' '.join(key.policy_fields) or 'none'}")
    rights = [name for name, has in (("recall", key.may_recall), ("admin", key.is_admin)) if has]
    spent = f"${dollars:f}, {tokens:,f} tokens"
    return key.id, key.name, _state(key), ", ".join(key.models), ", ".join(caps + rights) or "no cap", spent


def _caps(limits: Limits[Any], shown: str) -> list[str]:
    return [
        f"{shown.format(limit)} {words}"
        for words, limit in zip(PERIODS.values(), limits, strict=True)
        if limit is not None
    ]


def _state(key: GatewayKey) -> str:
    from datetime import UTC, datetime
    from time import time

    if key.revoked is not None:
        return "revoked"
    if key.expires is None:
        return "valid"
    if key.expires <= time():
        return "expired"
    return f"until {datetime.fromtimestamp(key.expires, UTC):%Y-%m-%d}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    from ullage.text import one_line

    if not rows:
        return []
    cells = [("id", "name", "state", "models", "allows", "spent"), *([*map(one_line, row)] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


SPEC = CommandSpec(
    name="keys",
    usage="ACTION [options]",
    brief="manage the keys of the gateway, with caps for each",
    description=DESCRIPTION,
    examples=EXAMPLES,
    exit_codes=STORE_EXIT_CODES,
    run=run,
    extra="client",
    actions=(
        ActionSpec(
            name="create",
            usage="NAME [options]",
            brief="make a key and print it, once",
            add_options=_add_options_of_create,
        ),
        ActionSpec(name="list", usage="[options]", brief="print all keys", add_options=_add_output_options),
        ActionSpec(
            name="revoke",
            usage="KEY [options]",
            brief="end a key at once",
            add_options=_add_options_of_revoke,
        ),
        ActionSpec(
            name="rotate",
            usage="KEY [options]",
            brief="replace the secret of a key",
            add_options=_add_options_of_rotate,
        ),
    ),
)
