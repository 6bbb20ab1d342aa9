package workers_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/workertest"
)

// tenant sets the tenant in each attempt's transaction, for row-level security, and prints how attempts end.
var tenant = workers.Hook{
	BeforeAttempt: func(ctx context.Context, tx pgx.Tx, job *workers.Job) (context.Context, error) {
		_, err := tx.Exec(ctx, "select set_config('shop.tenant', $1, true)", "tenant of "+string(job.BizID))
		return ctx, err
	},
	AfterAttempt: func(_ context.Context, job *workers.Job, end workers.AttemptEnd) {
		fmt.Println(job.Key, "attempt", job.Attempt, end.Outcome, end.State, end.Err)
	},
}

// A hook around each attempt: the handler sees the setting of the hook in its transaction.
func ExampleHook() {
	t, done := ledgertest.ExampleTB() // your test has its *testing.T
	defer done()
	db := ledgertest.Pool(t)

	report := ledger.MustKind[string]("report.make")
	kit := workertest.Start(t, db, []workers.Registration{
		workers.Handle(report, func(ctx context.Context, tx pgx.Tx, _ *workers.Job, title string) error {
			var whose string
			if err := tx.QueryRow(ctx, "select current_setting('shop.tenant')").Scan(&whose); err != nil {
				return err
			}
			fmt.Println(title, "for the", whose)
			return workers.Permanent(errors.New("no paper"))
		}, nil),
	}, workers.Config{Hooks: []workers.Hook{tenant}})

	if _, err := report.Enqueue(context.Background(), db, "order-17", "sales", nil); err != nil {
		log.Fatal(err)
	}
	kit.Drain()
	// Output:
	// sales for the tenant of order-17
	// report.make/order-17 attempt 1 buried dead no paper
}

// A handler reads the trace context in which its task was enqueued, to begin a span with a link to it. Tasks that it
// enqueues continue that trace.
func ExampleJob_TraceContext() {
	t, done := ledgertest.ExampleTB()
	defer done()
	db := ledgertest.Pool(t)

	first, second := ledger.MustKind[string]("first"), ledger.MustKind[string]("second")
	kit := workertest.Start(t, db, []workers.Registration{
		workers.Handle(first, func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ string) error {
			_, err := second.Enqueue(ctx, tx, job.BizID, "", nil)
			return err
		}, nil),
		workers.Handle(second, func(_ context.Context, job *workers.Job, _ string) error {
			c, ok := job.TraceContext()
			fmt.Printf("link to span %x of trace %x: %t\n", c.SpanID, c.TraceID, ok)
			return nil
		}, nil),
	})
	producer := ledger.Meta{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if _, err := first.Enqueue(
		context.Background(), db, "order-17", "", &ledger.EnqueueOptions{Meta: producer},
	); err != nil {
		log.Fatal(err)
	}
	kit.Drain()
	// Output:
	// link to span b7ad6b7169203331 of trace 0af7651916cd43dd8448eb211c80319c: true
}
