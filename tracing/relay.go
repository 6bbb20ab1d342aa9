package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
)

// maxLinks is the number of links of a span. The SDK drops further ones by default.
const maxLinks = 128

// Relay returns a hook for [outbox.Config], which makes a span for each group of messages that a relay sends to the
// stream, from the first message to the last answer. The span is a separate trace, with a link to each sampled trace of
// the messages. A group with more than 128 sampled traces gets several spans; a group without any gets none.
func (t *Tracing) Relay() outbox.Hook { return outbox.Hook{MessagesSent: t.messagesSent} }

// messagesSent makes the spans.
func (t *Tracing) messagesSent(ctx context.Context, g outbox.Group) {
	var links []trace.Link
	for c := range g.Traces() {
		if !trace.TraceFlags(c.Flags).IsSampled() {
			continue
		}
		if len(links) == maxLinks {
			t.publishSpan(ctx, g, links)
			links = nil
		}
		links = append(links, trace.Link{SpanContext: spanContext(c)})
	}
	if len(links) > 0 {
		t.publishSpan(ctx, g, links)
	}
}

// publishSpan makes a span of a group.
func (t *Tracing) publishSpan(ctx context.Context, g outbox.Group, links []trace.Link) {
	_, span := t.tracer.Start(ctx, "publish LEDGER", trace.WithSpanKind(trace.SpanKindClient), trace.WithNewRoot(),
		trace.WithTimestamp(g.SentAt), trace.WithLinks(links...))
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("messaging.system", "taskledger"),
		attribute.String("messaging.operation.name", "publish"),
		attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", "LEDGER"),
		attribute.Int("messaging.batch.message_count", g.Messages),
	)
	if g.Err != nil {
		span.RecordError(g.Err)
		span.SetStatus(codes.Error, "the stream has not stored all messages")
	}
}

// spanContext returns the span of another process.
func spanContext(c ledger.TraceContext) trace.SpanContext {
	state, _ := trace.ParseTraceState(c.State) // a malformed one is left out
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: c.TraceID, SpanID: c.SpanID, TraceFlags: trace.TraceFlags(c.Flags), TraceState: state, Remote: true,
	})
}
