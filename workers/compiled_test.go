package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// PostgreSQL compiles no plan of a statement that is executed repeatedly, on a ledger with a long history.
func TestNoPlanIsCompiled(t *testing.T) {
	t.Parallel()
	plain := ledgertest.Pool(t, ledgertest.Owner)
	plantest.Enlarge(t, plain)
	db := plantest.Pool(t, plain, "")
	b := setupOn(t, db)
	b.AllAsOwner = true // plantest sets what only a superuser may set
	b.Dispatch()
	b.Schedule()
	const tasks = 100
	b.EnqueueMany(tasks)
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if args.Amount%10 == 1 && job.Attempt == 1 {
			return errBoom
		}
		return insertEffect(ctx, tx, job, args)
	}, &workers.KindConfig{Retry: ledger.RetryPolicy{Ladder: []time.Duration{time.Millisecond}}}))
	b.Await("all tasks to succeed", func() bool {
		var done int
		err := plain.QueryRow(t.Context(), "select count(*) from taskledger.event where type = 'succeeded'").Scan(&done)
		return err == nil && done == tasks
	})
}
