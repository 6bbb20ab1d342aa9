package workertest_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/workertest"
)

// A handler adds the results of the tasks after which its own became available.
func ExampleKit_Work_predecessors() {
	t, done := ledgertest.ExampleTB()
	defer done()
	db := ledgertest.Pool(t, ledgertest.App, "operator")
	part, all := ledger.MustKind[int]("month.part"), ledger.MustKind[string]("month.all")
	kit := workertest.Start(t, db, []workers.Registration{
		workers.Handle(part, func(_ context.Context, _ pgx.Tx, job *workers.Job, cents int) error {
			return job.Result(cents)
		}, nil),
		workers.Handle(all, func(ctx context.Context, _ pgx.Tx, job *workers.Job, _ string) error {
			parts, err := job.Predecessors(ctx)
			total := 0
			for _, p := range parts {
				cents, err := ledger.ResultOf[int](p)
				if err != nil {
					return err
				}
				total += cents
			}
			fmt.Println(len(parts), "parts,", total, "cents")
			return err
		}, nil),
	})
	ctx := context.Background()
	for order, cents := range map[ledger.BizID]int{"A-1": 500, "A-2": 250} {
		if _, err := part.Enqueue(ctx, db, order, cents, nil); err != nil {
			panic(err)
		}
	}
	o := &ledger.EnqueueOptions{After: []ledger.Key{part.Key("A-1"), part.Key("A-2")}}
	if _, err := all.Enqueue(ctx, db, "2026-11", "", o); err != nil {
		panic(err)
	}
	kit.Work(part.Key("A-1"))
	kit.Work(part.Key("A-2"))

	ledgertest.Append(t, db, all.Key("2026-11"), ledger.EventReleased) // as a scheduler (taskledger serve) does
	fmt.Println(kit.Work(all.Key("2026-11")).State)
	// Output:
	// 2 parts, 750 cents
	// succeeded
}
