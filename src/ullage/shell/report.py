"""Reports of a session: the status line, the warnings after a turn, and the turns that are no longer sent."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ullage.shell.status import Figure, git_branch, render

if TYPE_CHECKING:
    from decimal import Decimal

    from ullage.session.chat import ChatSession
    from ullage.shell.answer import AnswerProgress
    from ullage.shell.screen import Screen
    from ullage.terminal import Runner
    from ullage.tokens import Count
    from ullage.turn import Settled


class SessionReport:
    """Prints the reports of a session, each notice only once."""

    def __init__(self, chat: ChatSession, screen: Screen, runner: Runner) -> None:
        self._chat = chat
        self._screen = screen
        self._runner = runner
        self._cost: Decimal | None = None
        self._failure = ""

    def forget(self) -> None:
        """Forgets the last cost and failure, because another conversation has begun."""
        self._cost, self._failure = None, ""

    def tell(self, settled: Settled) -> None:
        """Prints the new warnings, and the number of turns that are no longer sent or are now shortened."""
        self._cost = settled.cost
        context = self._chat.context
        for warning in context.meter.pop_warnings():
            self._screen.error(warning.text)
        notice = describe_changes(Counter(context.pop_changes()))
        if notice:
            self._screen.dim(f"{notice}; :history marks them, :recall shows them")
        failure = context.summary_failure
        if failure is not None and str(failure) != self._failure:  # a repeated failure is reported once
            self._failure = str(failure)
            self._screen.dim(f"no summary of the removed turns was written: {failure}")

    def status(self) -> str:
        """Returns the current status line."""
        waiting = self._chat.context.printed_tokens
        figures = self._figures(self._chat.count(), waiting, is_estimate=waiting > 0)
        return render(self._chat.settings.shell.status, figures)

    def gauge(self, answer: AnswerProgress) -> str:
        """Returns the status line while an answer arrives; its tokens so far count as used."""
        template = self._chat.settings.shell.status
        if "{output_tokens}" not in template:
            template += " · {output_tokens}"
        sent = self._chat.context.rendered
        count = self._chat.count() if sent is None else sent.count
        figures = self._figures(count, answer.written, is_estimate=True)
        figures["output_tokens"] = Figure(answer.written, estimate=True)
        return render(template, figures) + f" · {answer.seconds} s"

    def _figures(self, count: Count, more: int, *, is_estimate: bool) -> dict[str, object]:
        context = self._chat.context
        used = count.tokens + more
        estimate = is_estimate or not count.exact
        figures: dict[str, object] = {
            "model": self._chat.model.name,
            "ctx_used": Figure(used, estimate),
            "ctx_max": context.limit,
            "ctx_free": Figure(max(0, context.limit - used), estimate),
            "ctx_percent": Figure(100 * used / context.limit, estimate),
            "cost": Figure(self._cost),
            "session_cost": Figure(context.total_cost()),
            "session": context.session[:8],
            "cwd": self._runner.cwd,
            "git": git_branch(self._runner.cwd),
        }
        if context.in_goal_mode:
            figures["mode"] = "goal"
        return figures


def describe_changes(changes: Counter[str]) -> str:
    """Returns the numbers of evicted turns and of other changes in words; empty if there are none."""
    evicted, shortened = changes["evict"], changes.total() - changes["evict"]
    turns = "1 older turn is" if evicted == 1 else f"{evicted:,} older turns are"
    outputs = "1 output is" if shortened == 1 else f"{shortened:,} outputs are"
    return ", ".join(
        [f"{turns} no longer sent"] * bool(evicted) + [f"{outputs} sent shortened"] * bool(shortened)
    )
