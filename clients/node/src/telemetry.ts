/** Trace contexts, and spans if @opentelemetry/api is installed. */

import { current } from "./log.js";
import type { Job } from "./job.js";

/** The part of @opentelemetry/api that is used. */
interface OpenTelemetry {
  context: { active(): unknown; with<T>(context: unknown, run: () => T): T };
  propagation: { inject(context: unknown, carrier: object): void; extract(context: unknown, carrier: object): unknown };
  trace: {
    getSpanContext(context: unknown): unknown;
    getTracer(name: string): {
      startActiveSpan<T>(name: string, options: object, run: (span: Span) => T): T;
    };
  };
  ROOT_CONTEXT: unknown;
  SpanKind: { CONSUMER: number };
  SpanStatusCode: { ERROR: number };
}
interface Span {
  setStatus(status: object): void;
  recordException(error: unknown): void;
  end(): void;
}

const module = "@opentelemetry/api";
const otel: OpenTelemetry | undefined = await import(module).catch(() => undefined);

/** The W3C trace context for a new task: of the current span, or of the job that enqueues it. */
export function carrier(): Record<string, string> {
  const found: Record<string, string | undefined> = {};
  otel?.propagation.inject(otel.context.active(), found);
  const job = current.getStore();
  const { traceparent, tracestate } = found.traceparent ? found : { ...job };
  return { ...(traceparent && { traceparent }), ...(traceparent && tracestate && { tracestate }) };
}

/** Makes job the current one, in a span with a link to its producer. */
export function inAttempt<T>(job: Job, run: () => Promise<T>): Promise<T> {
  return current.run(job, () => {
    if (!otel) return run();
    const producer = job.traceparent && otel.trace.getSpanContext(otel.propagation.extract(
      otel.ROOT_CONTEXT, { traceparent: job.traceparent, tracestate: job.tracestate }));
    const attributes = {
      "messaging.system": "taskledger", "messaging.operation.name": "process", "messaging.operation.type": "process",
      "messaging.destination.name": job.kind, "messaging.message.id": job.bizId, "taskledger.attempt": job.attempt,
    };
    return otel.trace.getTracer("taskledger").startActiveSpan(`process ${job.kind}`, {
      kind: otel.SpanKind.CONSUMER, attributes, links: producer ? [{ context: producer }] : [],
    }, async (span) => {
      try {
        return await run();
      } catch (error) {
        span.recordException(error);
        span.setStatus({ code: otel.SpanStatusCode.ERROR });
        throw error;
      } finally {
        span.end();
      }
    });
  });
}
