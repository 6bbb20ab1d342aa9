"""Trace contexts, spans if OpenTelemetry is installed, and the current job."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

try:
    from opentelemetry import propagate, trace
except ImportError:
    propagate = trace = None

if TYPE_CHECKING:
    from ._job import Job

current: contextvars.ContextVar[Job | None] = contextvars.ContextVar("taskledger_job", default=None)


def carrier() -> dict[str, str]:
    """Return the W3C trace context for a new task: of the current span, or of the job that enqueues it."""
    found: dict[str, str] = {}
    if propagate is not None:
        propagate.inject(found)
    job = current.get()
    if "traceparent" not in found and job is not None and job.traceparent:
        found = {"traceparent": job.traceparent, "tracestate": job.tracestate or ""}
    return {name: found[name] for name in ("traceparent", "tracestate") if found.get(name)}


@contextmanager
def attempt(job: Job) -> Iterator[None]:
    """Make job the current one, in a span with a link to its producer."""
    before = current.set(job)
    try:
        if trace is None:
            yield
            return
        links: list[Any] = []
        if job.traceparent:
            producer = propagate.extract({"traceparent": job.traceparent, "tracestate": job.tracestate or ""})
            links.append(trace.Link(trace.get_current_span(producer).get_span_context()))
        attributes = {
            "messaging.system": "taskledger", "messaging.operation.name": "process",
            "messaging.operation.type": "process", "messaging.destination.name": job.kind,
            "messaging.message.id": job.biz_id, "taskledger.attempt": job.attempt}
        with trace.get_tracer("taskledger").start_as_current_span(
                "process " + job.kind, kind=trace.SpanKind.CONSUMER, links=links, attributes=attributes):
            yield
    finally:
        current.reset(before)


class JobFilter(logging.Filter):
    """Adds kind, biz_id, attempt and task, such as mail.send/order-17, to each log record; "" outside of a job."""

    def filter(self, record: logging.LogRecord) -> bool:
        job = current.get()
        record.kind, record.biz_id, record.attempt = (job.kind, job.biz_id, job.attempt) if job else ("", "", 0)
        record.task = f"{job.kind}/{job.biz_id}" if job else ""
        return True
