// Package tracing makes spans of OpenTelemetry for tasks: for each enqueue, each group of messages of a relay, each
// attempt and each call of a handler. They are linked across processes by the trace context that a task carries in the
// ledger and on the stream.
//
//	send <kind>      a producer's span around the enqueue, child of the span in its ctx
//	publish LEDGER   a relay's span for messages that it sends to the stream together; linked to the enqueues' spans
//	process <kind>   a worker's span for an attempt, with the recording of its outcome; linked to the enqueue's span
//	handle <kind>    its child around the handler, in the handler's ctx: enqueues of the handler continue from there
//
// An attempt may run hours after the enqueue and more than once, so it begins a separate trace with a link. With
// [Options].IsOneTrace it is a child instead, and a task's whole life is one trace.
//
// The package imports only the API of OpenTelemetry. A program without an SDK records nothing. A kind, a relay and a
// pool without these hooks pay nothing.
package tracing

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// name is the name of the instrumentation.
const name = "github.com/taskledger/taskledger/tracing"

// Options are the options of [New].
type Options struct {
	// Provider makes the spans. Default: [otel.GetTracerProvider].
	Provider trace.TracerProvider
	// IsOneTrace makes an attempt a child of the enqueue. Default: it begins a trace with a link.
	IsOneTrace bool
}

// Tracing makes spans. It is safe for concurrent use.
type Tracing struct {
	tracer     trace.Tracer
	isOneTrace bool
}

// New returns a Tracing; nil options are the defaults.
func New(o *Options) *Tracing {
	var options Options
	if o != nil {
		options = *o
	}
	if options.Provider == nil {
		options.Provider = otel.GetTracerProvider()
	}
	return &Tracing{options.Provider.Tracer(name), options.IsOneTrace}
}

// Attributes, by the semantic conventions of messaging where these have one.
func attributes(operation string, k ledger.Key) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "taskledger"),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation),
		attribute.String("messaging.destination.name", string(k.Kind)),
		attribute.String("messaging.message.id", string(k.BizID)),
	}
}

// Enqueue returns a hook for [ledger.NewKind], which makes a span for each enqueue, and records it in the task.
func (t *Tracing) Enqueue() ledger.EnqueueHook {
	return ledger.EnqueueHook{BeforeEnqueue: t.beforeEnqueue}
}

// beforeEnqueue makes the span. It ends at once: the hook that is called after the enqueue has another ctx.
func (t *Tracing) beforeEnqueue(
	ctx context.Context, k ledger.Key, _ json.RawMessage, o *ledger.EnqueueOptions,
) error {
	_, span := t.tracer.Start(ctx, "send "+string(k.Kind), trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	if c := span.SpanContext(); c.IsValid() {
		o.Meta.Traceparent = ledger.TraceContext{
			TraceID: c.TraceID(), SpanID: c.SpanID(), Flags: byte(c.TraceFlags()),
		}.String()
		o.Meta.Tracestate = c.TraceState().String()
	}
	if span.IsRecording() {
		span.SetAttributes(attributes("send", k)...)
	}
	return nil
}

// Workers returns a hook for [workers.Config], which makes a span for each attempt.
func (t *Tracing) Workers() workers.Hook {
	return workers.Hook{BeforeAttempt: t.beforeAttempt, AfterAttempt: afterAttempt}
}

// beforeAttempt begins the span of an attempt.
func (t *Tracing) beforeAttempt(ctx context.Context, _ pgx.Tx, job *workers.Job) (context.Context, error) {
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	if c, found := job.TraceContext(); found {
		producer := spanContext(c)
		if t.isOneTrace {
			ctx = trace.ContextWithRemoteSpanContext(ctx, producer)
		} else {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: producer}))
		}
	}
	ctx, span := t.tracer.Start(ctx, "process "+string(job.Kind), options...)
	if span.IsRecording() {
		span.SetAttributes(append(attributes("process", job.Key),
			attribute.Int("taskledger.attempt", int(job.Attempt)))...)
	}
	return ctx, nil
}

// afterAttempt ends the span with the outcome, as it was recorded.
func afterAttempt(ctx context.Context, _ *workers.Job, end workers.AttemptEnd) {
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("taskledger.outcome", string(end.Outcome)),
			attribute.String("taskledger.state", string(end.State)))
		if end.Err != nil {
			span.RecordError(end.Err)
			span.SetStatus(codes.Error, string(end.Outcome))
		}
	}
	span.End()
}

// Handler returns a middleware for [workers.Config], which makes a span for each call of the handler.
func (t *Tracing) Handler() workers.Middleware {
	return func(next workers.Handler) workers.Handler {
		return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) error {
			ctx, span := t.tracer.Start(ctx, "handle "+string(job.Kind))
			defer span.End()
			err := next(ctx, tx, job, args)
			if err != nil && span.IsRecording() {
				span.RecordError(err)
				span.SetStatus(codes.Error, "the handler returned an error")
			}
			return err
		}
	}
}
