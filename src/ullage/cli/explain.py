"""What fit would do to a request and why: the reasons as data, then as a table for people."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ullage.cli.batch import complaint
from ullage.cli.fitting import fit_body
from ullage.cli.reading import check_files, encode, parse, read
from ullage.cli.work import Job, Outcome, failure
from ullage.errors import ConfigurationError, ContextOverflowError, UllageError
from ullage.fitting import FitPolicy
from ullage.messages import SYSTEM_ROLES, arguments_text, calls_of, split_digest, text_of
from ullage.tokens import counter_for
from ullage.tokens.counting import message_costs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.cli.fitting import FittedRequest
    from ullage.cli.reading import Line
    from ullage.fitting import Change
    from ullage.messages import Message


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one message."""

    index: int
    role: str
    start: str
    """How the message begins."""
    tokens_before: int
    tokens_after: int
    what: str
    """kept, essential, capped, placeholder, errors kept, cut or evicted."""
    why: str
    handle: str | None = None
    """Names what was taken out, for recall."""


WHAT = {
    "cap": "capped",
    "age": "placeholder",
    "placeholder": "placeholder",
    "errors": "errors kept",
    "cut": "cut",
    "evict": "evicted",
}
"""The kinds of change, in the words of the table."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands in its conversation; exchanges and steps are counted from 1, 0 is none."""

    exchange: int
    step: int
    exchanges: int
    steps: int
    newest: bool
    """Whether it belongs to the newest step."""


def run(job: Job, name: str, line: int | None) -> int:
    """Explains one request of a file and returns the exit code."""
    found = _find(name, line)
    try:
        done = fit_body(job, parse(found.data))
    except (UllageError, RecursionError) as error:
        return _refuse(job, found, error)
    told = list(verdicts(done, job.policy or FitPolicy()))
    if job.json:
        sys.stdout.buffer.write(encode(_as_json(done, told)))
    else:
        from ullage.cli.telling import tell  # noqa: PLC0415 - only people need the drawing

        tell(found.source, done, told, digest_of(done.fitted.messages))
    return 0


def _refuse(job: Job, found: Line, error: Exception) -> int:
    """Says why a request cannot be explained; of one that cannot fit, what is in the way."""
    code, problem = failure(error)
    number = found.number + problem.pop("line", 1) - 1
    if job.json:
        sys.stdout.buffer.write(encode({"line": number, "error": problem}))
    elif isinstance(error, ContextOverflowError):
        from ullage.cli.telling import tell_overflow  # noqa: PLC0415 - only people need the drawing

        tell_overflow(error)
    sys.stdout.flush()
    sys.stderr.write(f"ullage: {complaint(Outcome(found.source, number, '', '', problem, code, b'', 0))}\n")
    return code


def _find(name: str, line: int | None) -> Line:
    """The first request of a file, or the one on this line."""
    for found in read(check_files([name])):
        if line is None or found.number == line:
            return found
    raise ConfigurationError(f"{name}: there is no request on line {line}")


def digest_of(messages: Sequence[Message]) -> str:
    """The digest as it would be sent; empty where there is none."""
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            content = message["content"]
            parts = [content] if isinstance(content, str) else [text_of([part]) for part in content]
            return next((block for _, block in map(split_digest, parts) if block), "")
    return ""


def _as_json(done: FittedRequest, told: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "model": done.model,
        "limit": done.limit,
        "tokens_before": done.before.tokens,
        "tokens_after": done.after.tokens,
        "before": dict(done.before.breakdown),
        "after": dict(done.after.breakdown),
        "messages": [asdict(each) for each in told],
        "digest": digest_of(done.fitted.messages) or None,
    }


# Reasons ---------------------------------------------------------------------------------------------


def verdicts(done: FittedRequest, policy: FitPolicy) -> Iterator[Verdict]:
    """What becomes of each message, in their order."""
    messages = done.request.messages
    changes = {change.index: change for change in done.fitted.changes}
    costs = message_costs(counter_for(done.model), messages)
    places = list(_places(messages))
    sent = _sent_system(done)
    task = next((i for i, m in enumerate(messages) if m["role"] == "user"), None)
    for index, (message, cost, place) in enumerate(zip(messages, costs, places, strict=True)):
        change = changes.get(index)
        after = cost.tokens
        if change is not None:
            what, after = WHAT[change.kind], change.tokens_after
            why = _reason(change, place, policy)
            if index == task and change.kind == "evict" and policy.keep_first_user:
                why = "the task: now heads the digest"
        else:
            what, why = _kept(index, message, place, policy, last=index == len(messages) - 1)
            if index in sent:
                after = sent[index]
                why += ", with the digest"
        handle = change.handle if change is not None else None
        yield Verdict(index, message["role"], _start(message), cost.tokens, after, what, why, handle)


def _places(messages: Sequence[Message]) -> Iterator[Place]:
    exchanges = sum(1 for message in messages if message["role"] == "user")
    steps = sum(1 for message in messages if calls_of(message))
    exchange = step = last_step = 0
    for message in messages:
        role = message["role"]
        if role == "user":
            exchange += 1
        if calls_of(message):
            last_step += 1
        step = last_step if role == "tool" or calls_of(message) else 0
        newest = step == steps > 0 and exchange == exchanges
        yield Place(exchange, step, exchanges, steps, newest)


def _sent_system(done: FittedRequest) -> dict[int, int]:
    """The first system message, where it changed, with what it costs as it is sent."""
    given, counter = done.request.messages, counter_for(done.model)
    first = next((i for i, m in enumerate(given) if m["role"] in SYSTEM_ROLES), None)
    sent = next((m for m in done.fitted.messages if m["role"] in SYSTEM_ROLES), None)
    if first is None or sent is None or sent == given[first]:
        return {}
    return {first: counter.message(sent).tokens}


def _kept(index: int, message: Message, place: Place, policy: FitPolicy, *, last: bool) -> tuple[str, str]:
    """Whether a message that is as it was had to stay, and why: the first reason that holds."""
    role = message["role"]
    in_last_exchange = place.exchange == place.exchanges
    reasons = (
        (role in SYSTEM_ROLES, "essential", "system prompt"),
        (index in policy.pins, "essential", "pinned"),
        (role == "user" and in_last_exchange, "essential", "the last user message"),
        (place.newest, "essential", "the newest step"),
        (last, "essential", "the last message"),
        (role == "user" and place.exchange == 1 and policy.keep_first_user, "kept", "the task"),
        (_recent(place, policy), "kept", "in a recent exchange"),
    )
    return next(((what, why) for holds, what, why in reasons if holds), ("kept", "there was room"))


def _reason(change: Change, place: Place, policy: FitPolicy) -> str:
    """Why fit changed a message."""
    age = place.steps - place.step
    old = f"{age} step{'s' if age != 1 else ''} old"
    recent = _recent(place, policy)
    reasons = {
        "cap": f"{old} and over {policy.max_tokens_per_output:,} tokens: head and tail stay",
        "age": f"{old}, more than {policy.max_age}",
        "errors": f"{old}, an error: only the lines that tell it stay",
        "placeholder": f"{old}, " + ("no room left" if recent else "not recent"),
        "cut": "longest output left: head and tail stay",
        "evict": "recent, but no room left" if recent else _oldness(place),
    }
    return reasons[change.kind]


def _recent(place: Place, policy: FitPolicy) -> bool:
    return place.exchange > place.exchanges - policy.preserve_recent_turns


def _oldness(place: Place) -> str:
    return (
        "oldest exchange" if place.exchange <= 1 else f"old exchange, {place.exchange} of {place.exchanges}"
    )


def _start(message: Message) -> str:
    """The first words of a message, or the calls that it makes."""
    text = text_of(message.get("content"))[:400]
    calls = ", ".join(f"{call['function']['name']} {arguments_text(call)}" for call in calls_of(message))
    return " ".join(" → ".join(filter(None, (text, calls))).split())[:200]
