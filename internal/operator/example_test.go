package operator_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Cancel a task. A task that is cancelled cannot be cancelled again.
func ExampleOperator_Cancel() {
	db, done := ledgertest.Example("producer", "operator")
	defer done()
	ctx := context.Background()
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	if _, err := ledger.Enqueue(ctx, db, k, nil, nil); err != nil {
		log.Fatal(err)
	}
	o := operator.New(db)
	e, err := o.Cancel(ctx, k, operator.Audit{Actor: "alice", Reason: "order withdrawn"})
	fmt.Println(e.Type, e.Actor, string(e.Data), err)
	_, err = o.Cancel(ctx, k, operator.Audit{Actor: "bob"})
	fmt.Println(err)
	// Output:
	// cancelled alice {"reason":"order withdrawn"} <nil>
	// coupon.send/order-17 cannot be cancelled: it is cancelled
}

// Release the tasks that are dead because of one error, after its cause was repaired.
func ExampleOperator_ReleaseAll() {
	var db *pgxpool.Pool     // to the primary
	var o *operator.Operator // from operator.New
	ctx := context.Background()
	groups, err := operator.ReadDead(ctx, db, "coupon.send")
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range groups {
		fmt.Println(g.Tasks, "tasks are dead because of", g.Error)
	}
	result, err := o.ReleaseAll(ctx, operator.Filter{Fingerprint: groups[0].Fingerprint},
		operator.Audit{Actor: "alice", Reason: "the partner is back"},
		&operator.BulkOptions{Progress: func(r operator.BulkResult) { fmt.Println(r.Done, "so far") }})
	fmt.Println(result.Done, "released,", result.Skipped, "had moved on:", err)
}
