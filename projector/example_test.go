package projector_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// A projector runs in any process, beside others, until its context is done.
func ExampleRunner_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	pool, done := ledgertest.Example(ledgertest.App, "relay", "operator")
	defer done()

	p, err := projector.New(projector.Config{DB: pool})
	if err != nil {
		log.Fatal(err)
	}
	running := make(chan error)
	go func() { running <- p.Run(ctx) }()

	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	if _, err := ledger.Enqueue(ctx, pool, key, nil, nil); err != nil {
		log.Fatal(err)
	}
	for behind := true; behind; {
		lag, err := projection.ReadLag(ctx, pool)
		if err != nil {
			log.Fatal(err)
		}
		behind = lag.Events > 0
	}
	counts, err := projector.ReadCounts(ctx, pool, "", lists.All)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range counts {
		fmt.Println(c.Kind, c.State, c.Tasks)
	}
	cancel()
	fmt.Println(<-running)
	// Output:
	// coupon.send available 1
	// <nil>
}

// A list of the dead tasks, newest first.
func ExampleReadTasks() {
	ctx := context.Background()
	pool, done := ledgertest.Example(ledgertest.App, "relay", "operator")
	defer done()
	for _, id := range []ledger.BizID{"A-1", "A-2", "A-3"} {
		key := ledger.Key{Kind: "coupon.send", BizID: id}
		if _, err := ledger.Enqueue(ctx, pool, key, nil, nil); err != nil {
			log.Fatal(err)
		}
		bury := ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventBuried,
			Data: []byte(`{"reason":"no such customer"}`)}
		if _, err := ledger.Append(ctx, pool, bury); err != nil {
			log.Fatal(err)
		}
	}
	catchUp(pool)

	filter := projector.TaskFilter{State: ledger.StateDead, Limit: 2}
	for {
		tasks, next, err := projector.ReadTasks(ctx, pool, filter)
		if err != nil {
			log.Fatal(err)
		}
		for _, t := range tasks {
			fmt.Println(t.Key, t.State, t.Error)
		}
		if next == 0 {
			break
		}
		filter.StartAfter = next
	}
	// Output:
	// coupon.send/A-3 dead no such customer
	// coupon.send/A-2 dead no such customer
	// coupon.send/A-1 dead no such customer
}

// Verify reports each place where the tables and the events differ.
func ExampleVerify() {
	ctx := context.Background()
	pool, done := ledgertest.Example(ledgertest.App, "relay", "operator")
	defer done()
	if _, err := ledger.Enqueue(ctx, pool, ledger.Key{Kind: "coupon.send", BizID: "A-1"}, nil, nil); err != nil {
		log.Fatal(err)
	}
	catchUp(pool)
	report, err := projector.Verify(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Events, report.Tasks, report.Equal())

	if _, err := pool.Exec(ctx, `update taskledger.task set state = 'succeeded'`); err != nil {
		log.Fatal(err)
	}
	if report, err = projector.Verify(ctx, pool, nil); err != nil {
		log.Fatal(err)
	}
	for _, d := range report.Differences {
		fmt.Println(d)
	}
	// Output:
	// 1 1 true
	// coupon.send/A-1 state: table has "succeeded", events have "available"
}

// catchUp runs a projector until it has applied every event.
func catchUp(pool *pgxpool.Pool) {
	ctx, cancel := context.WithCancel(context.Background())
	p, err := projector.New(projector.Config{DB: pool})
	if err != nil {
		log.Fatal(err)
	}
	running := make(chan error)
	go func() { running <- p.Run(ctx) }()
	for behind := true; behind; {
		lag, err := projection.ReadLag(ctx, pool)
		if err != nil {
			log.Fatal(err)
		}
		behind = lag.Events > 0
	}
	cancel()
	if err := <-running; err != nil {
		log.Fatal(err)
	}
}
