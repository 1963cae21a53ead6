"""OpenTelemetry: a span and the GenAI metrics of each call, sent where the `OTEL_…` variables say.

The extra `ullage[otel]` brings it. Names are those of the conventions for generative AI. Neither a body nor a
key is part of a span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ullage import __version__
from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ullage.gateway.bill import BookedCall
    from ullage.gateway.preparation import Outgoing
    from ullage.target import ApiName

SWITCHES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
"""Telemetry is on if one of these variables is set; the exporters read these and related variables."""
PROVIDERS: Mapping[ApiName, str] = {
    "openai.chat": "openai",
    "openai.responses": "openai",
    "anthropic.messages": "anthropic",
}
TOKENS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)
DURATIONS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Telemetry:
    """Makes the spans and the instruments of the gateway."""

    def __init__(self, tracers: Any, meters: Any) -> None:
        """Takes a tracer provider and a meter provider of OpenTelemetry's SDK."""
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - an extra
            TraceContextTextMapPropagator,
        )

        self._providers = (tracers, meters)
        self.propagator = TraceContextTextMapPropagator()
        self.tracer = tracers.get_tracer("ullage", __version__)
        meter = meters.get_meter("ullage", __version__)

        def histogram(name: str, unit: str, description: str, bounds: tuple[float, ...]) -> Any:
            return meter.create_histogram(
                name, unit, description, explicit_bucket_boundaries_advisory=[float(each) for each in bounds]
            )

        self.tokens = histogram("gen_ai.client.token.usage", "{token}", "Tokens of a call.", TOKENS)
        self.duration = histogram("gen_ai.server.request.duration", "s", "Time of a whole call.", DURATIONS)
        self.first = histogram(
            "gen_ai.server.time_to_first_token", "s", "Time to the first bytes of an answer.", DURATIONS
        )

    def start(self, api: ApiName, headers: Mapping[str, str]) -> CallSpan:
        """Returns the span of a new call, a child of the span that the client's `traceparent` names."""
        return CallSpan(self, api, headers)

    def close(self) -> None:
        """Sends the rest and ends the exporters."""
        for each in self._providers:
            each.shutdown()


class CallSpan:
    """The span of one call."""

    def __init__(self, telemetry: Telemetry, api: ApiName, headers: Mapping[str, str]) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - an extra

        self._telemetry = telemetry
        self._known = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": PROVIDERS.get(api, api)}
        self._span = telemetry.tracer.start_span(
            "chat",
            context=telemetry.propagator.extract(headers),
            kind=SpanKind.CLIENT,
            attributes=self._known,
        )
        self.headers: dict[str, str] = {}
        telemetry.propagator.inject(self.headers, set_span_in_context(self._span))

    def finish(
        self,
        outgoing: Outgoing,
        settled: BookedCall | None,
        status: int,
        seconds: float,
        first: float | None,
    ) -> None:
        """Adds the figures of a call to its span and to the instruments."""
        known: dict[str, Any] = {**self._known, "gen_ai.request.model": outgoing.model}
        attributes: dict[str, Any] = {
            **known,
            "gen_ai.conversation.id": outgoing.identity.name,
            "gen_ai.request.stream": outgoing.is_streamed,
            "http.response.status_code": status,
        }
        fitted = outgoing.fitted
        if fitted is not None and fitted.changed:
            attributes["gen_ai.conversation.compacted"] = True
            attributes["ullage.tokens_before"] = fitted.tokens_before
        if settled is not None:
            usage = settled.usage
            attributes["gen_ai.usage.input_tokens"] = usage.prompt
            attributes["gen_ai.usage.output_tokens"] = usage.completion
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_read
            for kind, number in (("input", usage.prompt), ("output", usage.completion)):
                self._telemetry.tokens.record(number, {**known, "gen_ai.token.type": kind})
        failed = {"error.type": str(status)} if status >= 400 else {}
        self._telemetry.duration.record(seconds, known | failed)
        if first is not None:
            self._telemetry.first.record(first, known)
            attributes["gen_ai.response.time_to_first_chunk"] = first
        self._span.update_name(f"chat {outgoing.model}")
        self._span.set_attributes(attributes | failed)

    def end(self, error: str) -> None:
        """Ends the span; `error` is the name of the exception that ended the call, if one did."""
        if error:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def telemetry_for(environ: Mapping[str, str]) -> Telemetry | None:
    """Returns the telemetry that the environment asks for; None if it asks for none."""
    if not any(environ.get(name) for name in SWITCHES):
        return None
    require("otel")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - an extra
        OTLPMetricExporter,
    )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create({"service.name": environ.get("OTEL_SERVICE_NAME") or "ullage"})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    return Telemetry(tracers, MeterProvider([reader], resource=resource))
