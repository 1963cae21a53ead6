"""Our fit and search as `memory.py` of ULLAGE_BENCH asks for them: `memory.py LOCOMO bench.memory:fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ullage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ullage.messages import Message


MOST = 10
"""How many texts a search gives; the scorer looks at the first of them."""


def fit(messages: list[dict[str, Any]], limit: int, tools: object = None) -> Sequence[Message]:  # noqa: ARG001
    """The messages to send, with the default policy."""
    return ullage.fit(messages, model="gpt-4o", limit=limit).messages


def digest(messages: list[dict[str, Any]], limit: int, tools: object = None) -> Sequence[Message]:  # noqa: ARG001
    """The same without recall: what the digest alone keeps."""
    policy = ullage.FitPolicy(recall_share=0)
    return ullage.fit(messages, model="gpt-4o", limit=limit, policy=policy).messages


def search(turns: list[dict[str, Any]], limit: int, questions: list[str]) -> list[list[str]]:
    """The texts that each question finds, the best first, in a conversation that was fed turn by turn."""
    context = ullage.Context(
        model="gpt-4o", system_prompt=turns[0]["content"], token_budget=limit, max_turns=None
    )
    for turn in turns[1:]:
        context.append(turn)
        if turn["role"] == "user":
            context.fitted()  # as if a model answered
    return [[hit.text for hit in context.search(question, MOST)] for question in questions]
