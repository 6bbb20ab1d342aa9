package ledger_test

import (
	"context"
	"fmt"
	"log"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A task as it was after each of its events.
func ExampleLoadAsOf() {
	db, done := ledgertest.Example(ledgertest.App, "operator")
	defer done()
	ctx := context.Background()
	k := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	if _, err := ledger.Enqueue(ctx, db, k, nil, nil); err != nil {
		log.Fatal(err)
	}
	buried := ledger.AppendRequest{Key: k, Expected: 1, Type: ledger.EventBuried}
	if _, err := ledger.Append(ctx, db, buried); err != nil {
		log.Fatal(err)
	}
	for e, err := range ledger.Events(ctx, db, ledger.Range{Prefix: k.String()}) {
		if err != nil {
			log.Fatal(err)
		}
		moment, err := ledger.MomentOf(ctx, db, e.Position)
		if err != nil {
			log.Fatal(err)
		}
		task, err := ledger.LoadAsOf(ctx, db, k, moment)
		fmt.Println(task, err)
	}
	// Output:
	// coupon.send/A-1 available, version 1, attempt 0 <nil>
	// coupon.send/A-1 dead, version 2, attempt 0 <nil>
}
