"""Metrics, spans and logs of the gateway: complete, and without bodies and keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gateway import MODEL, chat, serving
from tests.player import Script, answered, playing
from tests.test_gateway_policy import requests
from tests.world import until
from ullage.errors import MissingExtra
from ullage.gateway.metrics import METRICS, Metrics
from ullage.gateway.telemetry import Telemetry, telemetry_for

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.enable_socket

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
AHOY = Script(body=answered("Ahoy there", 10, 4))


class Watched:
    """OpenTelemetry's own SDK, which keeps in memory what it would send."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.telemetry = Telemetry(tracers, MeterProvider([self.reader]))

    def points(self, name: str) -> list[Any]:
        """The data points of one instrument."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def test_a_call_has_a_span_with_the_names_of_the_conventions() -> None:
    watched = Watched()
    with playing(AHOY) as player, serving(player.url, telemetry=watched.telemetry) as gateway:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "authorization": "Bearer sk-own"}
        asked = chat("Where is the harbour?", stream=True)
        assert gateway.ask("/v1/chat/completions", asked, headers=headers).status == 200
        assert until(lambda: len(watched.spans.get_finished_spans()) == 1)
        (sent,) = player.requests
        tokens = {
            point.attributes["gen_ai.token.type"]: point.sum
            for point in watched.points("gen_ai.client.token.usage")
        }
        (duration,) = watched.points("gen_ai.server.request.duration")
        (first,) = watched.points("gen_ai.server.time_to_first_token")
    (span,) = watched.spans.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert sent.headers["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
    told = dict(span.attributes)
    assert span.name == f"chat {MODEL}"
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", MODEL)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (10, 4)
    assert "gen_ai.conversation.compacted" not in told
    assert tokens == {"input": 10, "output": 4}
    assert (duration.count, first.count) == (1, 1)
    assert "harbour" not in str(told)
    assert "sk-own" not in str(told)


def test_a_trim_is_a_compaction_and_a_refusal_is_an_error() -> None:
    watched = Watched()
    with playing(AHOY) as player, serving(player.url, window=14_000, telemetry=watched.telemetry) as gateway:
        for body in requests(16):
            assert gateway.ask("/v1/chat/completions", body).status == 200
        assert gateway.ask("/v1/chat/completions", chat("harbour " * 40_000)).status == 400
        assert until(lambda: len(watched.spans.get_finished_spans()) == 18)
        metrics = gateway.ask("/metrics").body.decode()
    *_, trimmed, refused = watched.spans.get_finished_spans()
    assert trimmed.attributes["gen_ai.conversation.compacted"] is True
    assert refused.attributes["error.type"] == "ContextOverflowError"
    assert re.search(r'ullage_fits_total\{api="openai.chat",pass="steps"\} [1-9]', metrics)
    assert 'ullage_refused_total{api="openai.chat",reason="overflow"} 1' in metrics
    assert 'ullage_prefix_reuse_count{api="openai.chat"} 16' in metrics
    assert re.search(r'ullage_removed_tokens_total\{api="openai.chat"\} [1-9]', metrics)


def test_without_a_collector_there_is_no_telemetry() -> None:
    assert telemetry_for({}) is None


def test_a_collector_turns_telemetry_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with playing(Script(status=200)) as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "harbour"}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        made = telemetry_for(environ)
        assert made is not None
        made.start("openai.chat", {}).end("")
        made.close()
        sent = {request.path for request in collector.requests}
        assert {"/v1/traces"} <= sent
        assert any(b"harbour" in request.body for request in collector.requests)


def test_a_missing_extra_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ullage.extras.is_there", lambda _: False)
    with pytest.raises(MissingExtra, match=r"ullage\[otel\]"):
        telemetry_for({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})


def test_a_trace_passes_unchanged_if_telemetry_is_off() -> None:
    with playing(AHOY) as player, serving(player.url) as gateway:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
        gateway.ask("/v1/chat/completions", chat("Hi"), headers=headers)
        (sent,) = player.requests
        assert {name: sent.headers[name] for name in headers} == headers


def samples(text: str) -> Mapping[str, float]:
    """The values of an answer to Prometheus, by name and labels."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_every_metric_has_help_and_a_type_and_histograms_add_up() -> None:
    metrics = Metrics()
    for name, metric in METRICS.items():
        labels = ["x"] * len(metric.labels)
        if metric.buckets:
            for value in (metric.buckets[0], metric.buckets[-1], metric.buckets[-1] * 2):
                metrics.observe(name, *labels, value=value)
        else:
            metrics.add(name, *labels, by=3)
    text = metrics.text({})
    found = samples(text)
    for name, metric in METRICS.items():
        kind = "histogram" if metric.buckets else "counter"
        assert f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n" in text
        assert name.endswith("_total") != bool(metric.buckets)
        labels = ",".join(f'{label}="x"' for label in metric.labels)
        if metric.buckets:
            first, last = f"{metric.buckets[0]:g}", f"{metric.buckets[-1]:g}"
            assert found[f'{name}_bucket{{{labels},le="{first}"}}'] == 1
            assert found[f'{name}_bucket{{{labels},le="{last}"}}'] == 2
            assert found[f'{name}_bucket{{{labels},le="+Inf"}}'] == found[f"{name}_count{{{labels}}}"] == 3
        else:
            assert found[f"{name}{{{labels}}}"] == 3


def test_times_and_counts_of_a_call_are_measured() -> None:
    with playing(AHOY) as player, serving(player.url) as gateway:
        for _ in range(2):
            assert gateway.ask("/v1/chat/completions", chat("Where is the harbour?")).status == 200
        found = samples(gateway.ask("/metrics").body.decode())
    for name in ("overhead_seconds", "first_token_seconds", "request_seconds", "count_ratio"):
        assert found[f'ullage_{name}_count{{api="openai.chat"}}'] == 2, name
    assert found['ullage_prefix_reuse_sum{api="openai.chat"}'] == 1  # the same request twice


def test_neither_bodies_nor_keys_are_written_to_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    broken = Script(body=answered("Ahoy there")[:40])
    with (
        playing(broken, Script(status=500, body=b"secret-answer"), AHOY) as player,
        serving(player.url) as gateway,
    ):
        for _ in range(3):
            headers = {"authorization": "Bearer sk-secret-key"}
            gateway.ask("/v1/chat/completions", chat("secret-question"), headers=headers)
        gateway.ask("/v1/chat/completions", b'{"secret-question', headers=headers)
    written = "".join(capfd.readouterr())
    assert "secret" not in written
