package workers_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// answer is what a partner says, as far as its caller must know.
type answer struct {
	status     int
	retryAfter time.Duration
}

// ask asks the partner.
func ask(context.Context, coupon) (answer, error) { return answer{status: 200}, nil }

// A handler that knows more than "it failed" says so by the error that it returns.
func ExampleRetryIn() {
	handler := func(ctx context.Context, job *workers.Job, c coupon) error {
		a, err := ask(ctx, c)
		switch {
		case err != nil:
			return err // when its kind's policy says
		case a.status == 429:
			return workers.RetryIn(a.retryAfter, fmt.Errorf("partner: too many requests"))
		case a.status == 202:
			return workers.SnoozeFor(time.Minute) // not done yet, and no failure
		case a.status == 410:
			return workers.Discard("the order was withdrawn")
		case a.status >= 400:
			return workers.Permanent(fmt.Errorf("partner: status %d", a.status))
		}
		return nil
	}
	var p *workers.Pool // from workers.New
	err := workers.RegisterAtLeastOnce(p, couponSend, handler, &workers.KindConfig{
		Retry: ledger.RetryPolicy{Ladder: []time.Duration{time.Minute, 5 * time.Minute, 20 * time.Minute}},
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Cancel a task; what was cancelled is no more to be cancelled.
func ExampleOperator_Cancel() {
	db, done := ledgertest.Example()
	defer done()
	ctx := context.Background()
	if _, err := couponSend.Enqueue(ctx, db, "order-17", coupon{Percent: 10}, nil); err != nil {
		log.Fatal(err)
	}
	operator, err := workers.NewOperator(workers.OperatorConfig{DB: db}) // with NATS, handlers are told at once
	if err != nil {
		log.Fatal(err)
	}
	k := ledger.Key{Kind: couponSend.Name(), BizID: "order-17"}
	e, err := operator.Cancel(ctx, k, workers.By{Actor: "alice", Reason: "order withdrawn"})
	fmt.Println(e.Type, e.Actor, string(e.Data), err)
	_, err = operator.Cancel(ctx, k, workers.By{Actor: "bob"})
	fmt.Println(err)
	// Output:
	// cancelled alice {"reason":"order withdrawn"} <nil>
	// coupon.send/order-17 cannot be cancelled: it is cancelled
}

// Release what is dead of one error, after its cause was repaired.
func ExampleOperator_ReleaseAll() {
	var operator *workers.Operator // from workers.NewOperator
	ctx := context.Background()
	groups, err := operator.Dead(ctx, "coupon.send")
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range groups {
		fmt.Println(g.Tasks, "tasks are dead of", g.Error)
	}
	tally, err := operator.ReleaseAll(ctx, workers.Filter{Fingerprint: groups[0].Fingerprint},
		workers.By{Actor: "alice", Reason: "the partner is back"},
		&workers.BulkOptions{Progress: func(t workers.Tally) { fmt.Println(t.Done, "so far") }})
	fmt.Println(tally.Done, "released,", tally.Skipped, "had moved on:", err)
}
