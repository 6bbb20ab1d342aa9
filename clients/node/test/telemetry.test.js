// Spans, with OpenTelemetry installed.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { trace } from "@opentelemetry/api";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { Permanent } from "taskledger";
import { client, newKind, newWorker, pool, running } from "./base.js";

const exporter = new InMemorySpanExporter();
new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();
after(() => pool.end());

test("an attempt is a span with a link to its producer, and the origin of tasks that it enqueues", async () => {
  const kind = newKind();
  let producer;
  await running(newWorker().handle(kind, async (job) => {
    if (job.bizId === "child") throw new Permanent("never");
    await client.enqueue(kind, "child");
    return trace.getActiveSpan().spanContext().traceId;
  }), async () => {
    await trace.getTracer("test").startActiveSpan("order", async (span) => {
      producer = span.spanContext();
      await client.enqueue(kind, "A");
      span.end();
    });
    const traceOfA = await client.wait(kind, "A", { timeout: 120 });
    await assert.rejects(client.wait(kind, "child", { timeout: 120 }), /never/);
    const [a, child] = ["A", "child"].map((id) =>
      exporter.getFinishedSpans().find((s) => s.attributes["messaging.message.id"] === id));
    assert.equal(a.name, `process ${kind}`);
    assert.equal(a.spanContext().traceId, traceOfA);
    assert.deepEqual(a.links.map((l) => [l.context.traceId, l.context.spanId]), [[producer.traceId, producer.spanId]]);
    assert.deepEqual(child.links.map((l) => l.context.traceId), [traceOfA]);
    assert.equal(child.status.code, 2);
  });
});
