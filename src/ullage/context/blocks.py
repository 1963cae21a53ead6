"""The system message of a conversation: the prompt, and the blocks behind it in one order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ullage.messages import DIGEST_CLOSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ullage.context.journal import Item
    from ullage.messages import Message
    from ullage.tokens import Count, Counter

DEFAULT_PROMPT = """\
You are an assistant inside a shell, at the side of someone who works there. Be concise, and prefer doing \
to explaining.

When you suggest a command, put it on a line of its own that begins with exactly "CMD: ", followed by the \
command and nothing else. The user is asked before it runs, and you are shown what it printed.

You may have tools. Use them for structured operations; for everything else suggest a "CMD: " line."""

GOAL = """\
[goal]
{goal}

Work towards this goal on your own, step by step. Begin with a short plan. After each result look at \
the plan again and change it where the result says so. Avoid destructive operations unless the goal itself \
needs them; a command that the user skipped was skipped for a reason. When the goal is reached, write \
"GOAL: complete" on a line of its own, with a summary after it; when you cannot go on, write "GOAL: blocked" \
and the reason in one line."""


class Blocks(NamedTuple):
    """The texts of the system message, in the order in which they stand; empty ones are left out."""

    prompt: str
    memory: str = ""
    project: str = ""
    summary: str = ""
    goal: str = ""


HEADINGS: Mapping[str, str] = {
    "memory": "[background]",
    "project": "[project]",
    "summary": "[earlier conversation summary]",
}
"""The first lines of the blocks that goal mode leaves out."""


def system_texts(blocks: Blocks) -> list[tuple[str, str]]:
    """The name and text of each block that is sent."""
    texts = [("prompt", blocks.prompt)]
    if blocks.goal:
        texts.append(("goal", GOAL.format(goal=_quoted(blocks.goal))))
    else:
        texts += [
            (name, f"{heading}\n{_quoted(text)}")
            for name, heading in HEADINGS.items()
            if (text := getattr(blocks, name))
        ]
    return [(name, text) for name, text in texts if text]


def system_messages(blocks: Blocks) -> list[Message]:
    """The system message; none where there is nothing to say in it."""
    texts = system_texts(blocks)
    return [_message("\n\n".join(text for _, text in texts))] if texts else []


def _message(text: str) -> Message:
    return {"role": "system", "content": text}


def _quoted(text: str) -> str:
    """A text that cannot be taken for the end of the digest."""
    return text.replace(DIGEST_CLOSE, DIGEST_CLOSE.strip("[]"))


def memory_text(items: Iterable[Item], most: int) -> str:
    """One line for each item, the newest where not all are within `most` characters."""
    lines: list[str] = []
    left = most
    for item in reversed(list(items)):
        line = f"{item.kind or '?'}: {item.content}"
        line = " ".join(line.splitlines())[:most]
        left -= len(line) + bool(lines)
        if left < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def shares(counter: Counter, blocks: Blocks) -> Mapping[str, float]:
    """Which share of the system message's tokens each block is, the prompt and the goal left out."""
    found: dict[str, float] = {}
    text, before = "", 0
    for name, more in system_texts(blocks):
        text = f"{text}\n\n{more}" if text else more
        tokens = counter.message(_message(text)).tokens
        if name in HEADINGS:
            found[name] = tokens - before
        before = tokens
    return {name: tokens / before for name, tokens in found.items()} if before else {}


def split(breakdown: Mapping[str, int], parts: Mapping[str, float]) -> dict[str, int]:
    """A breakdown with the blocks told apart that the system message is made of."""
    blocks = dict(breakdown)
    whole = blocks["system"]
    for name, share in parts.items():
        tokens = min(round(whole * share), blocks["system"])
        blocks["system"] -= tokens
        blocks[name] += tokens
    return blocks


def with_blocks(count: Count, parts: Mapping[str, float]) -> Count:
    """A count whose breakdown tells the blocks apart."""
    return replace(count, breakdown=split(count.breakdown, parts)) if parts else count
