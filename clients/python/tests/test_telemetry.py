"""Spans, with OpenTelemetry installed."""

from __future__ import annotations

import unittest

import taskledger
from taskledger import Job

from .base import PATIENCE, Case

try:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ImportError:
    raise unittest.SkipTest("opentelemetry-sdk is not installed: .ci/otel-debian fetches it") from None


class TestTelemetry(Case):
    def test_spans(self) -> None:
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        worker = self.worker()

        @worker.handle(self.kind)
        def handler(job: Job) -> str:
            if job.biz_id == "child":
                raise taskledger.Permanent("never")
            self.client.enqueue(self.kind, "child")
            return format(trace.get_current_span().get_span_context().trace_id, "032x")
        with self.running(worker):
            with trace.get_tracer("test").start_as_current_span("order") as producer:
                self.client.enqueue(self.kind, "A")
            trace_of_a = self.client.wait(self.kind, "A", PATIENCE)
            with self.assertRaisesRegex(taskledger.TaskFailed, "never"):
                self.client.wait(self.kind, "child", PATIENCE)
        spans = {(s.attributes or {}).get("messaging.message.id"): s for s in exporter.get_finished_spans()}
        self.assertEqual([link.context.span_id for link in spans["A"].links], [producer.get_span_context().span_id])
        self.assertEqual([format(link.context.trace_id, "032x") for link in spans["child"].links], [trace_of_a])
        self.assertFalse(spans["child"].status.is_ok)
