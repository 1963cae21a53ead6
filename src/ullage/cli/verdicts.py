"""Finds the reason why fit keeps or changes each message of a request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ullage.messages import RESULT_ROLES, SYSTEM_ROLES, arguments_text, calls_of, split_digest, text_of
from ullage.tokens import counter_for
from ullage.tokens.request_count import message_costs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ullage.batch.fitted_request import LineFit
    from ullage.fitting import Change, FitPolicy, Fitted
    from ullage.messages import Message
    from ullage.tokens import Counter


@dataclass(frozen=True, slots=True)
class MessageVerdict:
    """The change that fit makes to one message, and its reason."""

    index: int
    role: str
    start: str
    """The first words of the message."""
    tokens_before: int
    tokens_after: int
    what: str
    """kept, essential, capped, placeholder, errors kept, cut, evicted, or the kind of a caller's own pass."""
    why: str
    handle: str | None = None
    """The handle of the removed text, for recall; None if nothing was removed."""


WHAT = {
    "cap": "capped",
    "age": "placeholder",
    "placeholder": "placeholder",
    "errors": "errors kept",
    "cut": "cut",
    "evict": "evicted",
}
"""Words for the kinds of change; a change by a caller's own pass is shown with its own kind."""


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """The position of a message: its exchange and its step, counted from 1; 0 if it belongs to none."""

    exchange: int
    step: int
    exchanges: int
    steps: int
    newest: bool
    """True if it belongs to the newest step."""


def digest_of(messages: Sequence[Message]) -> str:
    """Returns the digest in the messages; empty if they have none."""
    for message in messages:
        if message["role"] in SYSTEM_ROLES:
            content = message["content"]
            parts = [content] if isinstance(content, str) else [text_of([part]) for part in content]
            return next((block for _, block in map(split_digest, parts) if block), "")
    return ""


def conclude(line: LineFit, reasons: Sequence[MessageVerdict]) -> str:
    """Returns the explanation in one sentence."""
    done = line.done
    if not done.changed:
        return f"Fits unchanged: {line.before.ceiling:,} of {done.limit:,} tokens."
    same = sum(1 for each in reasons if each.handle is None)
    messages = "message" if len(reasons) == 1 else "messages"
    return (
        f"{line.before.tokens:,} → {done.tokens_after:,} tokens. {len(reasons):,} {messages}: "
        f"{done.dropped:,} evicted, {done.truncated:,} shortened, {same:,} unchanged."
    )


def as_json(line: LineFit, reasons: Sequence[MessageVerdict]) -> dict[str, Any]:
    """Returns the explanation as one JSON object."""
    return {
        "model": line.model,
        "limit": line.done.limit,
        "tokens_before": line.before.tokens,
        "tokens_after": line.done.tokens_after,
        "before": dict(line.before.breakdown),
        "after": dict(line.done.count.breakdown),
        "messages": [asdict(each) for each in reasons],
        "recalled": list(line.done.recalled),
        "digest": digest_of(line.done.fitted.messages) or None,
    }


# Reasons ---------------------------------------------------------------------------------------------


def verdicts(line: LineFit, policy: FitPolicy) -> Iterator[MessageVerdict]:
    """Yields the change and its reason for each message, in order."""
    fitted, counter = line.done.fitted, counter_for(line.model)
    messages = fitted.record.history
    changes = {change.index: change for change in fitted.changes}
    costs = message_costs(counter, messages)
    places = list(_places(messages))
    recalled = frozenset(fitted.recalled)
    sent = _count_sent_system(fitted, counter) | _count_sent_question(fitted, counter)
    task = next((i for i, m in enumerate(messages) if m["role"] == "user"), None)
    for index, (message, cost, place) in enumerate(zip(messages, costs, places, strict=True)):
        change = changes.get(index)
        after = cost.tokens
        if change is not None:
            what, after = WHAT.get(change.kind, change.kind), change.tokens_after
            why = _reason(change, place, policy)
            if index == task and change.evicted and policy.keep_first_user:
                why = "the task: now above the digest"
            if index in recalled:
                why += "; quoted before the question"
        else:
            what, why = _explain_unchanged(index, message, place, policy, last=index == len(messages) - 1)
            if index in sent:
                after = sent[index]
                why += ", with the digest" if message["role"] in SYSTEM_ROLES else ", with recalled passages"
        handle = change.handle if change is not None else None
        yield MessageVerdict(index, message["role"], _start(message), cost.tokens, after, what, why, handle)


def _places(messages: Sequence[Message]) -> Iterator[MessagePlace]:
    exchanges = sum(1 for message in messages if message["role"] == "user")
    steps = sum(1 for message in messages if calls_of(message))
    exchange = step = last_step = 0
    for message in messages:
        role = message["role"]
        if role == "user":
            exchange += 1
        if calls_of(message):
            last_step += 1
        step = last_step if role in RESULT_ROLES or calls_of(message) else 0
        newest = step == steps > 0 and exchange == exchanges
        yield MessagePlace(exchange, step, exchanges, steps, newest)


def _count_sent_system(fitted: Fitted[Message], counter: Counter) -> dict[int, int]:
    """Returns the index and the sent tokens of the first system message, if fit changed it."""
    given = fitted.record.history
    first = next((i for i, m in enumerate(given) if m["role"] in SYSTEM_ROLES), None)
    sent = next((m for m in fitted.messages if m["role"] in SYSTEM_ROLES), None)
    if first is None or sent is None or sent == given[first]:
        return {}
    return {first: counter.message(sent).tokens}


def _count_sent_question(fitted: Fitted[Message], counter: Counter) -> dict[int, int]:
    """Returns the index and the sent tokens of the newest question, if passages are quoted before it."""
    if not fitted.recalled:
        return {}
    given = fitted.record.history
    asked = max(i for i, message in enumerate(given) if message["role"] == "user")
    sent = next(message for message in reversed(fitted.messages) if message["role"] == "user")
    return {asked: counter.message(sent).tokens}


def _explain_unchanged(
    index: int, message: Message, place: MessagePlace, policy: FitPolicy, *, last: bool
) -> tuple[str, str]:
    """Returns "essential" or "kept" for an unchanged message, with the first reason that applies."""
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


def _reason(change: Change, place: MessagePlace, policy: FitPolicy) -> str:
    """Returns the reason why fit changed a message."""
    age = place.steps - place.step
    old = f"{age} step{'s' if age != 1 else ''} old"
    recent = _recent(place, policy)
    reasons = {
        "cap": f"{old} and over {policy.max_tokens_per_output:,} tokens: start and end kept",
        "age": f"{old}, more than {policy.max_age}",
        "errors": f"{old}, an error: only its error lines kept",
        "placeholder": f"{old}, " + ("no room left" if recent else "not recent"),
        "cut": "the longest remaining output: start and end kept",
        "evict": "recent, but no room left" if recent else _oldness(place),
    }
    own = f"{'evicted' if change.evicted else 'changed'} by the pass {change.kind!r}"
    return reasons.get(change.kind, own)


def _recent(place: MessagePlace, policy: FitPolicy) -> bool:
    return place.exchange > place.exchanges - policy.preserve_recent_turns


def _oldness(place: MessagePlace) -> str:
    return (
        "oldest exchange" if place.exchange <= 1 else f"old exchange, {place.exchange} of {place.exchanges}"
    )


def _start(message: Message) -> str:
    """Returns the first words of a message, or its tool calls."""
    text = text_of(message.get("content"))[:400]
    calls = ", ".join(f"{call['function']['name']} {arguments_text(call)}" for call in calls_of(message))
    return " ".join(" → ".join(filter(None, (text, calls))).split())[:200]
