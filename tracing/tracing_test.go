package tracing_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/tracing"
	"github.com/taskledger/taskledger/workers"
)

// spans are the spans that have ended, by name.
func spans(r *tracetest.SpanRecorder) map[string][]sdk.ReadOnlySpan {
	all := make(map[string][]sdk.ReadOnlySpan)
	for _, s := range r.Ended() {
		all[s.Name()] = append(all[s.Name()], s)
	}
	return all
}

// The spans of one order, from the request to its coupon: the handler of the order enqueues the coupon, whose first
// attempt fails. Each attempt is linked to the enqueue of its task, or its child. The relay's spans are linked to both
// enqueues.
func TestSpansOfAnOrder(t *testing.T) {
	t.Parallel()
	for _, isOneTrace := range []bool{false, true} {
		recorder := tracetest.NewSpanRecorder()
		provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
		spanned := tracing.New(&tracing.Options{Provider: provider, IsOneTrace: isOneTrace})
		order := ledger.MustKind[int]("order.place", spanned.Enqueue())
		coupon := ledger.MustKind[int]("coupon.send", spanned.Enqueue())
		b := servicetest.NewServed(t, outbox.StreamConfig{}, spanned.Relay())
		config := workers.Config{
			Hooks: []workers.Hook{spanned.Workers()}, Middleware: []workers.Middleware{spanned.Handler()},
		}
		b.Work(config, func(p *workers.Pool) error {
			return p.Register(
				workers.Handle(order, func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ int) error {
					_, err := coupon.Enqueue(ctx, tx, job.BizID, 5, nil)
					return err
				}, nil),
				workers.Handle(coupon, func(_ context.Context, _ pgx.Tx, job *workers.Job, _ int) error {
					if job.Attempt == 1 {
						return errors.New("card refused")
					}
					return nil
				}, servicetest.RetryAtOnce(nil)),
			)
		})
		b.Schedule()
		ctx, request := provider.Tracer("shop").Start(b.Context(), "POST /orders")
		if _, err := order.Enqueue(ctx, b.As("producer"), "A-1", 1, nil); err != nil {
			t.Fatal(err)
		}
		request.End()
		b.Await("the spans", func() bool { return len(spans(recorder)["process coupon.send"]) == 2 })

		all := spans(recorder)
		for name, n := range map[string]int{
			"send order.place": 1, "process order.place": 1, "handle order.place": 1,
			"send coupon.send": 1, "process coupon.send": 2, "handle coupon.send": 2,
		} {
			if len(all[name]) != n {
				t.Fatalf("%d spans %s, want %d", len(all[name]), name, n)
			}
		}
		isChild := func(child, parent sdk.ReadOnlySpan) bool {
			return child.Parent().SpanID() == parent.SpanContext().SpanID() &&
				child.SpanContext().TraceID() == parent.SpanContext().TraceID()
		}
		continues := func(attempt, sent sdk.ReadOnlySpan) bool {
			if isOneTrace {
				return isChild(attempt, sent)
			}
			return len(attempt.Links()) == 1 &&
				attempt.Links()[0].SpanContext.SpanID() == sent.SpanContext().SpanID() &&
				attempt.Links()[0].SpanContext.TraceID() == sent.SpanContext().TraceID()
		}
		for _, sent := range []string{"send order.place", "send coupon.send"} {
			b.Await("the relay's span of "+sent, func() bool {
				return slices.ContainsFunc(spans(recorder)["publish LEDGER"], func(s sdk.ReadOnlySpan) bool {
					return !s.Parent().IsValid() && isLinked(s, all[sent][0])
				})
			})
		}
		root := spans(recorder)["POST /orders"][0]
		placed, sent := all["process order.place"][0], all["send coupon.send"][0]
		if !isChild(all["send order.place"][0], root) || !continues(placed, all["send order.place"][0]) ||
			!isChild(all["handle order.place"][0], placed) || !isChild(sent, all["handle order.place"][0]) {
			t.Errorf("one trace %t: the spans of the order do not continue each other", isOneTrace)
		}
		for i, attempt := range all["process coupon.send"] {
			if !continues(attempt, sent) || !isChild(all["handle coupon.send"][i], attempt) ||
				attempt.SpanKind() != trace.SpanKindConsumer ||
				(attempt.Status().Code == codes.Error) != (i == 0) {
				t.Errorf("one trace %t: attempt %d: %v", isOneTrace, i+1, attempt.Status())
			}
		}
	}
}

// isLinked reports whether a span has a link to another one.
func isLinked(s, to sdk.ReadOnlySpan) bool {
	return slices.ContainsFunc(s.Links(), func(l sdk.Link) bool {
		return l.SpanContext.SpanID() == to.SpanContext().SpanID() &&
			l.SpanContext.TraceID() == to.SpanContext().TraceID()
	})
}

// Each message of a group is linked, also if there are more than a span may have links. Messages of traces that are not
// sampled make no spans, and one task has no trace.
func TestSpansOfTheRelay(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	spanned := tracing.New(&tracing.Options{Provider: provider})
	unsampled := tracing.New(&tracing.Options{Provider: sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))})
	b := servicetest.NewServed(t, outbox.StreamConfig{}, spanned.Relay())
	const n = 300
	entries := make([]ledger.Entry, 0, 2*n+1)
	for i := range n {
		for _, k := range []ledger.TypedKind[int]{
			ledger.MustKind[int]("sampled", spanned.Enqueue()), ledger.MustKind[int]("unsampled", unsampled.Enqueue()),
		} {
			entry, err := k.Entry(ledger.BizID(strconv.Itoa(i)), i, nil)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, entry)
		}
	}
	entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: "untraced", BizID: "1"}})
	if _, err := ledger.EnqueueMany(b.Context(), b.As("producer"), entries); err != nil {
		t.Fatal(err)
	}
	linked := func() map[trace.SpanID]int {
		found := make(map[trace.SpanID]int)
		for _, s := range spans(recorder)["publish LEDGER"] {
			for _, l := range s.Links() {
				found[l.SpanContext.SpanID()]++
			}
			if s.DroppedLinks() > 0 || s.SpanKind() != trace.SpanKindClient || s.EndTime().Before(s.StartTime()) {
				t.Errorf("%d links dropped, a %v, %v", s.DroppedLinks(), s.SpanKind(), s.EndTime().Sub(s.StartTime()))
			}
		}
		return found
	}
	b.Await("links of all messages", func() bool { return len(linked()) >= n })
	found := linked()
	for _, s := range spans(recorder)["send sampled"] {
		if found[s.SpanContext().SpanID()] == 0 {
			t.Errorf("no span is linked to %s", s.SpanContext().SpanID())
		}
	}
	if len(found) != n {
		t.Errorf("%d links, want %d", len(found), n)
	}
}

// Without an SDK, and for messages without traces, the hook of the relay allocates nothing.
func BenchmarkRelayHookWithoutSDK(b *testing.B) {
	hook := tracing.New(nil).Relay()
	b.ReportAllocs()
	for b.Loop() {
		hook.MessagesSent(b.Context(), outbox.Group{Messages: 100})
	}
}

// Without an SDK the hook of the producer costs next to nothing; without the hook there is nothing.
func BenchmarkEnqueueHookWithoutSDK(b *testing.B) {
	hook := tracing.New(nil).Enqueue()
	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	b.ReportAllocs()
	for b.Loop() {
		var o ledger.EnqueueOptions
		if err := hook.BeforeEnqueue(b.Context(), key, json.RawMessage("{}"), &o); err != nil {
			b.Fatal(err)
		}
	}
}

// A hook without an SDK leaves the trace of the caller's own, and makes none.
func TestWithoutSDK(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of the process
	var o ledger.EnqueueOptions
	hook := tracing.New(nil).Enqueue()
	err := hook.BeforeEnqueue(t.Context(), ledger.Key{Kind: "a", BizID: "1"}, nil, &o)
	if err != nil || o.Meta.Traceparent != "" {
		t.Errorf("%v, trace %q", err, o.Meta.Traceparent)
	}
	relay := tracing.New(nil).Relay()
	if n := testing.AllocsPerRun(100, func() { relay.MessagesSent(t.Context(), outbox.Group{Messages: 100}) }); n != 0 {
		t.Errorf("the hook of the relay allocates %v times", n)
	}
}
