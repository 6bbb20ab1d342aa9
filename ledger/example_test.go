package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// Enqueue in the transaction of the order: the task exists if and only if the order exists.
func ExampleEnqueue() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()
	if _, err := pool.Exec(ctx, `create table shop_order (id text primary key)`); err != nil {
		log.Fatal(err)
	}

	placeOrder := func(order string, pay func() error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `insert into shop_order (id) values ($1)`, order); err != nil {
				return err
			}
			key := ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(order)}
			if _, err := ledger.Enqueue(ctx, tx, key, json.RawMessage(`{"percent": 10}`), nil); err != nil {
				return err
			}
			return pay()
		})
	}
	fmt.Println(placeOrder("A-1", func() error { return nil }))
	fmt.Println(placeOrder("A-2", func() error { return errors.New("card declined") }))

	for _, order := range []ledger.BizID{"A-1", "A-2"} {
		task, err := ledger.Load(ctx, pool, ledger.Key{Kind: "coupon.send", BizID: order})
		fmt.Println(order, task.State, errors.Is(err, ledger.ErrUnknownTask))
	}
	// Output:
	// <nil>
	// card declined
	// A-1 available false
	// A-2  true
}

// A report is made after the sales and the stock were summed. Until then it is scheduled, without a due time.
func ExampleEnqueue_after() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()
	sum, report := ledger.MustKind[string]("month.sum"), ledger.MustKind[string]("report.make")
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, part := range []ledger.BizID{"sales", "stock"} {
			if _, err := sum.Enqueue(ctx, tx, part, "2026-11", nil); err != nil {
				return err
			}
		}
		o := &ledger.EnqueueOptions{
			After:     []ledger.Key{sum.Key("sales"), sum.Key("stock")},
			Otherwise: ledger.OtherwiseCancel, // if one of them is dead, cancelled, expired or discarded
		}
		enqueued, err := report.Enqueue(ctx, tx, "2026-11", "pdf", o)
		fmt.Println(enqueued.State)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	predecessors, err := ledger.Predecessors(ctx, pool, report.Key("2026-11"))
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range predecessors {
		fmt.Println(p.Key, p.State)
	}
	// Output:
	// scheduled
	// month.sum/sales available
	// month.sum/stock available
}

// The result of a task is what its handler has stored with it.
func ExampleResultOf() {
	task := ledger.Task{
		Key: ledger.Key{Kind: "report.make", BizID: "2026-11"}, State: ledger.StateSucceeded,
		Result: json.RawMessage(`{"pages": 7}`),
	} // from ledger.Wait, ledger.Load or job.Predecessors
	report, err := ledger.ResultOf[struct{ Pages int }](task)
	fmt.Println(report.Pages, err)

	task.State = ledger.StateDead
	_, err = ledger.ResultOf[struct{ Pages int }](task)
	fmt.Println(err)
	// Output:
	// 7 <nil>
	// report.make/2026-11 is dead
}

// An order and its task take two round trips: the transaction begins with its first statement and commits with the
// enqueue.
func ExampleTx_EnqueueAndCommit() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()
	if _, err := pool.Exec(ctx, `create table shop_order (id text primary key)`); err != nil {
		log.Fatal(err)
	}
	coupon := ledger.MustKind[map[string]int]("coupon.send")

	placeOrder := func(order string) error {
		tx, err := ledger.Begin(ctx, pool, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // after the commit it does nothing
		if _, err := tx.Exec(ctx, `insert into shop_order (id) values ($1)`, order); err != nil {
			return err
		}
		_, err = coupon.EnqueueAndCommit(ctx, tx, ledger.BizID(order), map[string]int{"percent": 10}, nil)
		return err
	}
	fmt.Println(placeOrder("A-1"))
	task, err := ledger.Load(ctx, pool, ledger.Key{Kind: coupon.Name(), BizID: "A-1"})
	fmt.Println(task.State, err)
	// Output:
	// <nil>
	// available <nil>
}

// A business row whose result is not needed, its task and the commit take one round trip.
func ExampleTx_AtCommit() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()
	if _, err := pool.Exec(ctx, `create table shop_order (id text primary key)`); err != nil {
		log.Fatal(err)
	}
	coupon := ledger.MustKind[map[string]int]("coupon.send")

	placeOrder := func(order string) error {
		tx, err := ledger.Begin(ctx, pool, nil)
		if err != nil {
			return err
		}
		tx.AtCommit(`insert into shop_order (id) values ($1)`, order)
		_, err = coupon.EnqueueAndCommit(ctx, tx, ledger.BizID(order), map[string]int{"percent": 10}, nil)
		return err
	}
	fmt.Println(placeOrder("A-1"))
	err := placeOrder("A-1") // the order exists, so nothing is committed
	var pg *pgconn.PgError
	fmt.Println(errors.As(err, &pg) && pg.ConstraintName == "shop_order_pkey")
	// Output:
	// <nil>
	// true
}

// A task is enqueued once. A second enqueue of its key returns the existing task; with other args, in an error.
func ExampleEnqueue_again() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	for _, args := range []string{`{"percent": 10}`, `{"percent": 10}`, `{"percent": 90}`} {
		answer, err := ledger.Enqueue(ctx, pool, key, json.RawMessage(args), nil)
		var other *ledger.OtherArgsError
		switch {
		case errors.As(err, &other):
			fmt.Println("error:", other)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("new: %v, state: %s\n", answer.New, answer.State)
		}
	}
	// Output:
	// new: true, state: available
	// new: false, state: available
	// error: coupon.send/A-1 exists with other args: args.percent was 10, is 90; it is available, at version 1
}

// EnqueueMany enqueues tasks in one statement. Results are in the order of the entries.
func ExampleEnqueueMany() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	answers, err := ledger.EnqueueMany(ctx, pool, []ledger.Entry{
		{Key: ledger.Key{Kind: "invoice.print", BizID: "A-2"}},
		{Key: ledger.Key{Kind: "coupon.send", BizID: "A-1"}, Args: json.RawMessage(`{"percent": 10}`)},
		{Key: ledger.Key{Kind: "invoice.print", BizID: "A-2"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, answer := range answers {
		fmt.Println(answer.Key, answer.New)
	}
	// Output:
	// invoice.print/A-2 true
	// coupon.send/A-1 true
	// invoice.print/A-2 false
}

// Producers and workers share a kind and the type of its args.
func ExampleNewKind() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	type coupon struct {
		Percent int `json:"percent"`
	}
	sendCoupon, err := ledger.NewKind[coupon]("coupon.send")
	if err != nil {
		log.Fatal(err)
	}
	answer, err := sendCoupon.Enqueue(ctx, pool, "A-1", coupon{Percent: 10}, nil)
	if err != nil {
		log.Fatal(err)
	}
	task, err := ledger.Load(ctx, pool, answer.Key)
	if err != nil {
		log.Fatal(err)
	}
	args, err := sendCoupon.Decode(task.Args)
	fmt.Println(args.Percent, err)

	_, err = ledger.NewKind[coupon]("coupon/send")
	fmt.Println(err)
	// Output:
	// 10 <nil>
	// invalid kind "coupon/send": must contain only A-Z a-z 0-9 _ - and dots
}

// Of two appends with the same expected version only one succeeds.
func ExampleAppend() {
	ctx := context.Background()
	pool, done := ledgertest.Example(ledgertest.App, "operator")
	defer done()

	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	if _, err := ledger.Enqueue(ctx, pool, key, nil, nil); err != nil {
		log.Fatal(err)
	}
	cancel := ledger.AppendRequest{
		Key: key, Expected: 1, Type: ledger.EventCancelled,
		Actor: "alice", Data: json.RawMessage(`{"reason": "order returned"}`),
	}
	e, err := ledger.Append(ctx, pool, cancel)
	fmt.Println(e.Version, e.Type, e.Actor, err)

	_, err = ledger.Append(ctx, pool, cancel)
	fmt.Println(err)
	cancel.Expected = 2
	_, err = ledger.Append(ctx, pool, cancel)
	fmt.Println(err)
	// Output:
	// 2 cancelled alice <nil>
	// append to coupon.send/A-1: conflict on coupon.send/A-1: expected version 1, found 2 (cancelled)
	// append to coupon.send/A-1: coupon.send/A-1 cannot be cancelled: it is cancelled
}

// AppendEach appends to many tasks in one statement. A request that fails does not affect the others.
func ExampleAppendEach() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	var requests []ledger.AppendRequest
	for _, id := range []ledger.BizID{"A-1", "A-2"} {
		key := ledger.Key{Kind: "coupon.send", BizID: id}
		if _, err := ledger.Enqueue(ctx, pool, key, nil, nil); err != nil {
			log.Fatal(err)
		}
		requests = append(requests, ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded})
	}
	requests[1].Key.BizID = "A-3"
	for i, result := range ledger.AppendEach(ctx, pool, requests) {
		fmt.Println(requests[i].Key, result.Err == nil, errors.Is(result.Err, ledger.ErrUnknownTask))
	}
	// Output:
	// coupon.send/A-1 true false
	// coupon.send/A-3 false true
}

// failedTwice enqueues a task and appends the events of two failed attempts.
func failedTwice(ctx context.Context, db ledger.DB) ledger.Key {
	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	if _, err := ledger.Enqueue(ctx, db, key, json.RawMessage(`{"percent": 10}`), nil); err != nil {
		log.Fatal(err)
	}
	for i, eventType := range []ledger.EventType{
		ledger.EventStarted, ledger.EventFailed, ledger.EventReleased, ledger.EventFailed,
	} {
		r := ledger.AppendRequest{Key: key, Expected: ledger.Version(i + 1), Type: eventType}
		if eventType == ledger.EventFailed {
			r.Data = json.RawMessage(fmt.Sprintf(`{"error": {"message": "mail server refused at version %d"}}`, i+2))
		}
		if _, err := ledger.Append(ctx, db, r); err != nil {
			log.Fatal(err)
		}
	}
	return key
}

func ExampleLoad() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	task, err := ledger.Load(ctx, pool, failedTwice(ctx, pool))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.State, "after attempt", task.Attempt, "with", task.Failures, "failures:", task.Error)
	// Output:
	// retrying after attempt 2 with 2 failures: mail server refused at version 5
}

func ExampleHistory() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	events, err := ledger.History(ctx, pool, failedTwice(ctx, pool))
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range events {
		fmt.Println(e.Version, e.Type, e.Attempt)
	}
	// Output:
	// 1 enqueued 0
	// 2 started 1
	// 3 failed 1
	// 4 released 1
	// 5 failed 2
}

func ExampleRead() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	failedTwice(ctx, pool)
	for e, err := range ledger.Read(ctx, pool, 1, 3) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Position, e.Key, e.Type)
	}
	// Output:
	// 2 coupon.send/A-1 started
	// 3 coupon.send/A-1 failed
	// 4 coupon.send/A-1 released
}

// The writes of a handler and the succeeded event of its task are committed together.
func ExampleTx_AppendAndCommit() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	if _, err := ledger.Enqueue(ctx, pool, key, nil, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `create table coupon (shop_order text)`); err != nil {
		log.Fatal(err)
	}
	handle := func() error {
		tx, err := ledger.Begin(ctx, pool, &ledger.TxOptions{Guard: true})
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) // after the end it does nothing
		if _, err := tx.Exec(ctx, `insert into coupon values ($1)`, key.BizID); err != nil {
			return err
		}
		_, err = tx.AppendAndCommit(ctx, ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded})
		return err
	}
	for range 2 { // the second time nothing is committed, because the task is at version 2
		fmt.Println(handle())
	}
	var coupons int
	if err := pool.QueryRow(ctx, `select count(*) from coupon`).Scan(&coupons); err != nil {
		log.Fatal(err)
	}
	fmt.Println("coupons:", coupons)
	// Output:
	// <nil>
	// append to coupon.send/A-1: conflict on coupon.send/A-1: expected version 1, found 2 (succeeded)
	// coupons: 1
}

// A hook of a kind may reject its tasks and add to their meta.
func ExampleEnqueueHook() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	remaining := 1
	quota := func(_ context.Context, _ ledger.Key, _ json.RawMessage, o *ledger.EnqueueOptions) error {
		if remaining--; remaining < 0 {
			return errors.New("the quota is used up")
		}
		o.Meta.Tags = append(o.Meta.Tags, "quota")
		return nil
	}
	coupons := ledger.MustKind[int]("coupon.send", ledger.EnqueueHook{BeforeEnqueue: quota})
	for _, order := range []ledger.BizID{"A-1", "A-2"} {
		answer, err := coupons.Enqueue(ctx, pool, order, 10, nil)
		fmt.Println(answer.New, err)
	}
	// Output:
	// true <nil>
	// false enqueue coupon.send/A-2: hook: the quota is used up
}

// Withdraw an order and cancel its task in one transaction: both happen, or neither.
func ExampleCancel() {
	db, done := ledgertest.Example("producer", "reader")
	defer done()
	ctx := context.Background()
	k := ledger.Key{Kind: "coupon.send", BizID: "order-17"}
	if _, err := ledger.Enqueue(ctx, db, k, nil, nil); err != nil {
		log.Fatal(err)
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// … update orders set state = 'withdrawn' where id = 17
		_, err := ledger.Cancel(ctx, tx, k, &ledger.ChangeOptions{Actor: "shop", Reason: "order withdrawn"})
		return err
	})
	fmt.Println(err)
	task, err := ledger.Load(ctx, db, k)
	fmt.Println(task.State, err)
	// Output:
	// <nil>
	// cancelled <nil>
}
