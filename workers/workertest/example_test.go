package workertest_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers/workertest"
)

// issue is code under test: it enqueues a coupon for an order.
func issue(db *pgxpool.Pool, order ledger.BizID, percent int) ledger.Key {
	_, _ = db.Exec(
		context.Background(), "create table if not exists coupon (order_no text not null, percent integer not null)",
	)
	_, _ = couponSend.Enqueue(context.Background(), db, order, coupon{percent}, nil)
	return ledger.Key{Kind: couponSend.Name(), BizID: order}
}

// One attempt at one task, in a real transaction; then the tasks that it has enqueued.
func ExampleKit_Work() {
	t, done := ledgertest.ExampleTB() // your test has its *testing.T
	defer done()
	db := ledgertest.Pool(t)
	kit := workertest.Start(t, db, kinds())

	task := kit.Work(issue(db, "order-17", 10))

	fmt.Println(task.State)
	fmt.Println(ledgertest.Enqueued(t, db, mailSend))
	// Output:
	// succeeded
	// map[order-17:{10 % off}]
}

// A whole pool, until no task is available: the coupon's task, and the mail's task, which it enqueues.
func ExampleKit_Drain() {
	t, done := ledgertest.ExampleTB()
	defer done()
	db := ledgertest.Pool(t)
	kit := workertest.Start(t, db, kinds())

	issue(db, "order-17", 10)
	kit.Drain()

	for _, kind := range kit.Status().Kinds {
		fmt.Println(kind.Kind, kind.Attempts["succeeded"])
	}
	// Output:
	// coupon.send 1
	// mail.send 1
}

// The worker crashes after the handler and before the commit; its successor leaves one coupon.
func ExampleKit_CrashAt() {
	t, done := ledgertest.ExampleTB()
	defer done()
	db := ledgertest.Pool(t)
	kit := workertest.Start(t, db, kinds())

	kit.CrashAt(workertest.HandlerDone)
	task := kit.Work(issue(db, "order-17", 10))

	var coupons int
	_ = db.QueryRow(t.Context(), "select count(*) from coupon").Scan(&coupons)
	fmt.Println(task.State, coupons)
	// Output: succeeded 1
}
