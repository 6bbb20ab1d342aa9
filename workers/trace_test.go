package workers_test

import (
	"context"
	"testing"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Every attempt receives the trace context of its task's producer, even after a release.
func TestTraceContextOfEveryAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	producer := ledger.TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1, State: "vendor=1"}
	got := make(chan ledger.TraceContext, 2)
	b.Work(workers.Config{}, b.atLeast(func(_ context.Context, job *workers.Job, _ orderArgs) error {
		c, ok := job.TraceContext()
		if !ok {
			t.Errorf("attempt %d has no trace context", job.Attempt)
		}
		got <- c
		if job.Attempt == 1 {
			return errBoom
		}
		return nil
	}, nil))
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	meta := ledger.Meta{Traceparent: producer.String(), Tracestate: producer.State}
	try(order.Enqueue(b.Context(), b.DB, k.BizID, orderArgs{}, &ledger.EnqueueOptions{Meta: meta}))(t)
	b.AwaitState(k, ledger.StateSucceeded)
	close(got)
	n := 0
	for c := range got {
		n++
		if diff := difference.Of(producer, c); diff != "" {
			t.Errorf("attempt %d (-want +got):\n%s", n, diff)
		}
	}
	if n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}
