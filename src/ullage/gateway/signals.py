"""The signals of one call: metrics for Prometheus, and spans and metrics for OpenTelemetry if that is on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ullage.fitting.result import EVICT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from ullage.gateway.bill import BookedCall
    from ullage.gateway.metrics import Metrics
    from ullage.gateway.preparation import Outgoing
    from ullage.gateway.request import Received
    from ullage.gateway.telemetry import CallSpan, Telemetry
    from ullage.target import ApiName


class CallEnd(NamedTuple):
    """The end of an answer."""

    status: int
    begun: float | None
    """The time at which its first bytes came, by `time.perf_counter`; None if none came."""
    is_broken: bool


@dataclass(frozen=True, slots=True)
class Signals:
    """The places where the signals of all calls go."""

    metrics: Metrics
    telemetry: Telemetry | None = None

    def call(self, api: ApiName, request: Received) -> CallSignals:
        """Returns the signals of a new call; they end with the `with` block."""
        return CallSignals(self, api, request)


class CallSignals:
    """The signals of one call."""

    def __init__(self, signals: Signals, api: ApiName, request: Received) -> None:
        self._metrics = signals.metrics
        self._api = api
        self._begun = self._sent = time.perf_counter()
        self._span: CallSpan | None = None
        if signals.telemetry is not None:
            self._span = signals.telemetry.start(api, request.headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the span; an exception is its error."""
        if self._span is not None:
            self._span.end("" if kind is None else kind.__name__)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that tell the upstream of the span."""
        return {} if self._span is None else self._span.headers

    def note_received(self) -> None:
        """Notes that the request has come as a whole."""
        self._begun = time.perf_counter()

    def note_prepared(self) -> None:
        """Notes that the request is ready to be sent."""
        self._sent = time.perf_counter()
        self._metrics.observe("ullage_overhead_seconds", self._api, value=self._sent - self._begun)

    def measure_call(self, outgoing: Outgoing, settled: BookedCall | None, end: CallEnd) -> None:
        """Measures a call whose answer has been relayed or read."""
        add, observe, api = self._metrics.add, self._metrics.observe, self._api
        seconds = time.perf_counter() - self._begun
        first = None if end.begun is None else end.begun - self._sent
        add("ullage_requests_total", api, str(end.status))
        observe("ullage_request_seconds", api, value=seconds)
        if first is not None:
            observe("ullage_first_token_seconds", api, value=first)
        if end.is_broken:
            add("ullage_broken_streams_total", api)
        if outgoing.unread:
            add("ullage_unread_total", api)
        if outgoing.is_lowered:
            add("ullage_lowered_outputs_total", api)
        if settled is not None:
            self._measure_usage(outgoing, settled)
        self._measure_fit(outgoing)
        if self._span is not None:
            self._span.finish(outgoing, settled, end.status, seconds, first)

    def _measure_usage(self, outgoing: Outgoing, settled: BookedCall) -> None:
        add, api, usage = self._metrics.add, self._api, settled.usage
        add("ullage_prompt_tokens_total", api, by=usage.prompt)
        add("ullage_completion_tokens_total", api, by=usage.completion)
        if usage.cached_read:
            add("ullage_cached_tokens_total", api, by=usage.cached_read)
        if settled.estimated:
            add("ullage_estimated_total", api)
        if "prompt" not in settled.estimated and outgoing.count.tokens:
            ratio = usage.prompt / outgoing.count.tokens
            self._metrics.observe("ullage_count_ratio", api, value=ratio)

    def _measure_fit(self, outgoing: Outgoing) -> None:
        add, api, fitted = self._metrics.add, self._api, outgoing.fitted
        if fitted is None:
            return
        if outgoing.reused is not None:
            self._metrics.observe("ullage_prefix_reuse", api, value=outgoing.reused)
        if not fitted.changed:
            return
        for each in sorted({kind.removeprefix(f"{EVICT}:") for kind, *_ in fitted.fitted.record.pending}):
            add("ullage_fits_total", api, each)
        add("ullage_removed_tokens_total", api, by=max(0, fitted.tokens_before - fitted.tokens_after))
        add("ullage_dropped_messages_total", api, by=fitted.dropped)
        add("ullage_truncated_messages_total", api, by=fitted.truncated)
        add("ullage_recalled_total", api, by=len(fitted.recalled))
        add("ullage_recalled_tokens_total", api, by=fitted.count.breakdown.get("recalled", 0))
