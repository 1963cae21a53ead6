"""The public API as a typed program uses it: mypy and pyright check this file, and it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

import ullage
from ullage import Change, FitPolicy, Fitted, FittedRequest, Target, Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Said(TypedDict):
    """A message of a program's own type."""

    role: Literal["system", "user", "assistant"]
    content: str


def main() -> None:
    """Counts, fits and follows a talk, with a type for every result."""
    talk: list[Said] = [{"role": "user", "content": "Where is the harbour?"}]
    counted: ullage.Count = ullage.count(talk, model="gpt-4o")
    tokens: int = counted.ceiling

    fitted: Fitted[Said] = ullage.fit(talk, model="gpt-4o", limit=tokens)
    kept: Sequence[Said] = fitted.messages
    role: Literal["system", "user", "assistant"] = kept[0]["role"]
    sources: Sequence[int | None] = fitted.sources
    changes: tuple[Change, ...] = fitted.changes

    policy = FitPolicy(trim_strategy=("cap", "evict", "recent", "cut"), cut_user=True)
    window = Window(model=Target(model="gpt-4o", api="openai.chat"), limit=1_000, policy=policy)
    window.sync(talk)
    sent: Fitted[Any] = window.fitted()

    body: dict[str, Any] = {"model": "gpt-4o", "messages": talk}
    done: FittedRequest = ullage.fit_request(body, "openai.chat", limit=1_000)
    same: Mapping[str, Any] = done.body
    assert (role, list(sources), changes, sent.messages, same) == ("user", [0], (), talk, body)


if __name__ == "__main__":
    main()
