package workers_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// Too many tasks wait, and the limit's policy is that callers run the excess.
func ExampleCaller() {
	ctx := context.Background()
	db, done := ledgertest.Example(ledgertest.App, "operator")
	defer done()
	resize := ledger.MustKind[string]("picture.resize")
	limit := ledger.Limit{Kind: resize.Name(), MaxWaiting: 0, Policy: ledger.CallerRuns}
	if err := ledger.SetLimit(ctx, db, limit, "ops"); err != nil {
		panic(err)
	}

	handler := func(_ context.Context, _ pgx.Tx, job *workers.Job, size string) error {
		fmt.Println("resizing", job.BizID, "to", size)
		return nil
	}
	resizing := workers.Handle(resize, handler, nil)        // the workers have the same registration
	caller, err := workers.NewCaller(resize, resizing, nil) // create it once
	if err != nil {
		panic(err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// … your own writes …
		answer, err := caller.Enqueue(ctx, tx, "cat.jpg", "64x64", nil)
		fmt.Println(answer.State)
		return err
	})
	fmt.Println(err)
	// Output:
	// resizing cat.jpg to 64x64
	// succeeded
	// <nil>
}
