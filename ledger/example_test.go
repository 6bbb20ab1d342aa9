package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The task exists if and only if the order does.
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

// An order and its task in two round trips: the transaction begins with its first statement, and
// commits with the enqueue.
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
		defer func() { _ = tx.Rollback(ctx) }() // unless it was committed
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

// A task is enqueued once; whoever does it again is told how it stands.
func ExampleEnqueue_again() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	key := ledger.Key{Kind: "coupon.send", BizID: "A-1"}
	for _, args := range []string{`{"percent": 10}`, `{"percent": 10}`, `{"percent": 90}`} {
		answer, err := ledger.Enqueue(ctx, pool, key, json.RawMessage(args), nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("new: %v, same args: %v, state: %s\n", answer.New, answer.SameArgs, answer.State)
	}
	// Output:
	// new: true, same args: true, state: available
	// new: false, same args: true, state: available
	// new: false, same args: false, state: available
}

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

// A kind with a type of its own for the args, shared by producers and workers.
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

// An append names the version it builds on, so that of two only one succeeds.
func ExampleAppend() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
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

// The outcomes of many tasks in one statement, each in its own right.
func ExampleAppendEach() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	var finished []ledger.AppendRequest
	for _, id := range []ledger.BizID{"A-1", "A-2"} {
		key := ledger.Key{Kind: "coupon.send", BizID: id}
		if _, err := ledger.Enqueue(ctx, pool, key, nil, nil); err != nil {
			log.Fatal(err)
		}
		finished = append(finished, ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventSucceeded})
	}
	finished[1].Key.BizID = "A-3"
	for i, result := range ledger.AppendEach(ctx, pool, finished) {
		fmt.Println(finished[i].Key, result.Err == nil, errors.Is(result.Err, ledger.ErrUnknownTask))
	}
	// Output:
	// coupon.send/A-1 true false
	// coupon.send/A-3 false true
}

// failedTwice is a task with a past, for the examples that read.
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
			r.Data = json.RawMessage(fmt.Sprintf(`{"error": {"message": "mail server said no at version %d"}}`, i+2))
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
	// retrying after attempt 2 with 2 failures: mail server said no at version 5
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

// What a handler writes and the event that says so are committed together, in one round trip.
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
	for range 2 { // the second time the task is at version 2, and nothing is committed
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

// quota is a hook that lets a customer have so many coupons, and tags those that are enqueued.
type quota struct {
	ledger.EnqueueHookDefaults
	left int
}

func (q *quota) BeforeEnqueue(_ context.Context, _ ledger.Key, _ json.RawMessage, o *ledger.EnqueueOptions) error {
	if q.left--; q.left < 0 {
		return errors.New("the quota is used up")
	}
	o.Meta.Tags = append(o.Meta.Tags, "quota")
	return nil
}

// A hook of a kind may refuse its tasks, and add to their meta.
func ExampleEnqueueHook() {
	ctx := context.Background()
	pool, done := ledgertest.Example()
	defer done()

	coupons := ledger.MustKind[int]("coupon.send", &quota{left: 1})
	for _, order := range []ledger.BizID{"A-1", "A-2"} {
		answer, err := coupons.Enqueue(ctx, pool, order, 10, nil)
		fmt.Println(answer.New, err)
	}
	// Output:
	// true <nil>
	// false enqueue coupon.send/A-2: hook *ledger_test.quota: the quota is used up
}
