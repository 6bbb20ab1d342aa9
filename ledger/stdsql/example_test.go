package stdsql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// A program that uses database/sql enqueues a task in its transaction.
func ExampleWrap() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	if _, err := db.ExecContext(ctx, `create table shop_order (id text primary key)`); err != nil {
		log.Fatal(err)
	}

	placeOrder := func(order string) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{})
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, `insert into shop_order (id) values ($1)`, order); err != nil {
			return err
		}
		key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(order)}
		if _, err := ledger.Enqueue(ctx, stdsql.Wrap(tx), key, json.RawMessage(`{"percent": 10}`), nil); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(placeOrder("A-1"))

	task, err := ledger.Load(ctx, stdsql.Wrap(db), ledger.Key{Kind: "coupon.send", BizID: "A-1"})
	fmt.Println(task.State, err)
	// Output:
	// <nil>
	// available <nil>
}
