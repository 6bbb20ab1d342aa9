package workers_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// historyTracer counts the whole histories that are read.
type historyTracer struct{ read atomic.Int32 }

func (h *historyTracer) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData,
) context.Context {
	if strings.HasPrefix(data.SQL, "-- Reads all events of a task") {
		h.read.Add(1)
	}
	return ctx
}

func (*historyTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A failure reads what decides the task and not its history, which is read once for the errors of a dead task. The
// policy is that of the producer.
func TestFailureReadsNoHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	histories := &historyTracer{}
	config := b.DB.Config()
	config.ConnConfig.Tracer = histories
	db := try(pgxpool.NewWithConfig(b.Context(), config))(t)
	t.Cleanup(db.Close)
	b.Relay()
	var readBefore atomic.Int32
	b.Work(workers.Config{DB: db}, atLeast(func(_ context.Context, job *workers.Job, _ orderArgs) error {
		if job.Attempt == 4 {
			readBefore.Store(histories.read.Load())
		}
		return errBoom
	}, &workers.KindConfig{}))
	k := ledger.Key{Kind: order.Name(), BizID: "o-1"}
	policy := ledger.RetryPolicy{Attempts: 4, Ladder: make([]time.Duration, 1), Jitter: -1}
	try(ledger.Enqueue(b.Context(), b.DB, k, nil, &ledger.EnqueueOptions{Retry: &policy}))(t)
	b.AwaitState(k, ledger.StateDead)
	if before, all := readBefore.Load(), histories.read.Load(); before != 0 || all != 1 {
		t.Errorf("%d histories were read for three failures, and %d in all", before, all)
	}
	if n := len(b.History(k)); n != 1+3*2+2 {
		t.Errorf("%d events: %v", n, b.EventTypes(k))
	}
}
