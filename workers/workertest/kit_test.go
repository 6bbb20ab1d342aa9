package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/workertest"
)

type coupon struct {
	Percent int `json:"percent"`
}

type mail struct {
	Subject string `json:"subject"`
}

var (
	couponSend = ledger.MustKind[coupon]("coupon.send")
	mailSend   = ledger.MustKind[mail]("mail.send")
	errTooMuch = errors.New("a coupon must not exceed half")
)

// sendCoupon is a handler like a user's: it inserts a row, and enqueues a mail about it.
func sendCoupon(ctx context.Context, tx pgx.Tx, job *workers.Job, c coupon) error {
	if _, err := tx.Exec(
		ctx, "insert into coupon (order_no, percent) values ($1, $2)", string(job.BizID), c.Percent,
	); err != nil {
		return err
	}
	if c.Percent > 50 {
		return workers.Permanent(errTooMuch)
	}
	_, err := mailSend.Enqueue(ctx, tx, job.BizID, mail{fmt.Sprintf("%d %% off", c.Percent)}, nil)
	return err
}

func sendMail(context.Context, *workers.Job, mail) error { return nil }

func kinds() []workers.Registration {
	return []workers.Registration{
		workers.Handle(couponSend, sendCoupon, nil),
		workers.Handle(mailSend, sendMail, nil),
	}
}

// shop returns a database with a table for coupons.
func shop(t testing.TB) *pgxpool.Pool {
	t.Helper()
	db := ledgertest.Pool(t)
	if _, err := db.Exec(
		t.Context(), "create table coupon (order_no text not null, percent integer not null)",
	); err != nil {
		t.Fatal(err)
	}
	return db
}

func coupons(t testing.TB, db *pgxpool.Pool) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "select count(*) from coupon").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func enqueue(t testing.TB, db *pgxpool.Pool, id ledger.BizID, percent int) ledger.Key {
	t.Helper()
	if _, err := couponSend.Enqueue(t.Context(), db, id, coupon{percent}, nil); err != nil {
		t.Fatal(err)
	}
	return ledger.Key{Kind: couponSend.Name(), BizID: id}
}

// Work runs one task and no other.
func TestWork(t *testing.T) {
	db := shop(t)
	kit := workertest.Start(t, db, kinds())
	enqueue(t, db, "order-1", 10)
	key := enqueue(t, db, "order-2", 20)
	if task := kit.Work(key); task.State != ledger.StateSucceeded || task.Attempt != 1 {
		t.Errorf("%+v", task)
	}
	if diff := difference.Of(
		map[ledger.BizID]mail{"order-2": {"20 % off"}}, ledgertest.Enqueued(t, db, mailSend),
	); diff != "" {
		t.Errorf("mails (-want +got):\n%s", diff)
	}
	if n := coupons(t, db); n != 1 {
		t.Errorf("%d coupons", n)
	}
}

// A handler that fails leaves only its failure.
func TestWorkThatFails(t *testing.T) {
	db := shop(t)
	kit := workertest.Start(t, db, kinds())
	task := kit.Work(enqueue(t, db, "order-1", 80))
	if task.State != ledger.StateDead || task.Error != errTooMuch.Error() {
		t.Errorf("%+v", task)
	}
	if n := coupons(t, db) + len(ledgertest.Enqueued(t, db, mailSend)); n != 0 {
		t.Errorf("%d effects of a failure", n)
	}
}

// Drain runs all tasks, including those that tasks enqueue.
func TestDrain(t *testing.T) {
	db := shop(t)
	kit := workertest.Start(t, db, kinds())
	for i := range 50 {
		enqueue(t, db, ledger.BizID(fmt.Sprint("order-", i)), 10)
	}
	kit.Drain()
	succeeded := int64(0)
	for _, kind := range kit.Status().Kinds {
		succeeded += kind.Attempts[workers.OutcomeSucceeded]
	}
	if n := coupons(t, db); n != 50 || succeeded != 100 {
		t.Errorf("%d coupons, %d tasks succeeded; want 50 and 100", n, succeeded)
	}
	ledgertest.Check(t, db)
}

// Wherever the worker crashes, an ExactlyOnce handler has one effect.
func TestCrash(t *testing.T) {
	for _, point := range []workertest.Point{workertest.HandlerDone, workertest.OutcomeCommitted} {
		t.Run(string(point), func(t *testing.T) {
			db := shop(t)
			kit := workertest.Start(t, db, kinds())
			key := enqueue(t, db, "order-1", 10)
			first := kit.Status().ID
			kit.CrashAt(point)
			task := kit.Work(key)
			if kit.Status().ID == first {
				t.Fatal("the worker did not crash")
			}
			if task.State != ledger.StateSucceeded {
				t.Errorf("%+v", task)
			}
			kit.Drain()
			if n := coupons(t, db); n != 1 {
				t.Errorf("%d coupons, want one", n)
			}
		})
	}
}
