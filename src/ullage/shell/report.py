"""Reports of a session: the status line, the warnings after a turn, and the turns that are no longer sent."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from ullage.errors import StoreError
from ullage.shell.cap_usage import describe_cap, list_spending
from ullage.shell.spinner import frames_for
from ullage.shell.status import UNKNOWN, Figure, draw_gauge, git_branch, render_within, share_of
from ullage.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from ullage.session.chat import ChatSession
    from ullage.shell.answer import AnswerProgress
    from ullage.shell.screen import Screen
    from ullage.terminal import Runner
    from ullage.tokens import Count
    from ullage.turn import Settled


TURN = 0.25
"""Seconds of one frame of the spinner."""


class SessionReport:
    """Prints the reports of a session, each notice only once."""

    def __init__(self, chat: ChatSession, screen: Screen, runner: Runner) -> None:
        self._chat = chat
        self._screen = screen
        self._runner = runner
        self._cost: Decimal | None = None
        self._has_answered = False
        self._failure = ""
        self._cap = ""
        self.goal: Callable[[], str] | None = None
        """Describes the use of a goal's bounds while the shell works on the goal."""

    def forget(self) -> None:
        """Forgets the last cost and failure, because another conversation has begun."""
        self._cost, self._failure, self._has_answered = None, "", False

    def tell(self, settled: Settled) -> None:
        """Prints the new warnings, and the number of turns that are no longer sent or are now shortened."""
        self._cost, self._has_answered = settled.cost, True
        self._read_cap()
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
        self._read_cap()
        waiting = self._chat.context.printed_tokens
        figures = self._figures(self._chat.count(), waiting, is_estimate=waiting > 0)
        return render_within(self._screen.width, self._chat.settings.shell.status, figures)

    def gauge(self, answer: AnswerProgress) -> str:
        """Returns the status line while an answer arrives; its tokens so far count as used."""
        template = self._chat.settings.shell.status
        if "{output_tokens}" not in template:
            template += " · {output_tokens}"
        sent = self._chat.context.rendered
        count = self._chat.count() if sent is None else sent.count
        figures = self._figures(count, answer.written, is_estimate=True)
        figures["output_tokens"] = Figure(answer.written, estimate=True)
        before, after = self._spinner(answer), f" · {answer.seconds} s"
        width = self._screen.width - len(before) - len(after)
        return f"{before}{render_within(width, template, figures)}{after}"

    def _spinner(self, answer: AnswerProgress) -> str:
        """Returns a frame of the spinner, and what is waited for, while nothing of the answer has come."""
        if answer.waiting:
            waiting = one_line(answer.waiting)
        elif answer.written or answer.calls:
            return ""
        else:
            waiting = "waiting"
        frames = frames_for(getattr(self._screen.console.file, "encoding", None))
        return f"{frames[int(time.monotonic() / TURN) % len(frames)]} {waiting} · "

    def _figures(self, count: Count, more: int, *, is_estimate: bool) -> dict[str, object]:
        context = self._chat.context
        used = count.ceiling + more  # the ceiling decides if a request is refused
        estimate = is_estimate or not count.exact
        figures: dict[str, object] = {
            "model": self._chat.model.name,
            "gauge": draw_gauge(share_of(count.ceiling, context.limit), share_of(more, context.limit)),
            "ctx_used": Figure(used, estimate),
            "ctx_pending": Figure(context.printed_tokens or None, estimate=True),
            "ctx_max": context.limit,
            "ctx_free": Figure(max(0, context.limit - used), estimate),
            "ctx_percent": Figure(100 * used / context.limit, estimate),
            "session": context.session[:8],
            "cwd": self._runner.cwd,
            "git": git_branch(self._runner.cwd),
        }
        is_free = self._chat.client.local  # a local model has no bill, so that no price is missing
        if self._has_answered and not (is_free and self._cost is None):
            figures["cost"] = Figure(self._cost)
        if context.meter.slots and not (is_free and context.total_cost() is None):
            figures["session_cost"] = Figure(context.total_cost())
        if self._cap:
            figures["cap"] = self._cap
        if context.in_goal_mode:
            figures["mode"] = "goal" if self.goal is None else f"goal: {self.goal()}"
        return figures

    def _read_cap(self) -> None:
        """Reads the spending against the fullest cap from the store; the next question reports its errors."""
        if self._chat.client.local:
            self._cap = ""
            return
        try:
            spent = list_spending(self._chat.client.ledger)
        except StoreError:
            self._cap = UNKNOWN
            return
        self._cap = describe_cap(spent[0]) if spent else ""


def describe_changes(changes: Counter[str]) -> str:
    """Returns the numbers of evicted turns and of other changes in words; empty if there are none."""
    evicted, shortened = changes["evict"], changes.total() - changes["evict"]
    turns = "1 older turn is" if evicted == 1 else f"{evicted:,} older turns are"
    outputs = "1 output is" if shortened == 1 else f"{shortened:,} outputs are"
    return ", ".join(
        [f"{turns} no longer sent"] * bool(evicted) + [f"{outputs} sent shortened"] * bool(shortened)
    )
