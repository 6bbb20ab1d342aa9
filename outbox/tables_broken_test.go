package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/subscribers"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
)

func leaveRowsOpen(ctx context.Context, tx pgx.Tx) {
	_, _ = tx.Query(ctx, "select 1") //nolint:sqlclosecheck // on purpose
}

// An event whose Handle breaks the transaction of its page stops the subscriber, or is parked, and is named.
func TestEventThatBreaksTheTransaction(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		breaks func(context.Context, pgx.Tx)
		err    error // of Apply
		reason string
	}{
		{name: "statement that fails", reason: "returned no error after a statement of it failed",
			breaks: func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "select 1/0") }},
		{name: "rollback", reason: "has ended the transaction",
			breaks: func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Exec(ctx, "rollback") }},
		{name: "rollback and begin", reason: "has ended the transaction",
			breaks: func(ctx context.Context, tx pgx.Tx) { _, _ = tx.Conn().Exec(ctx, "rollback; begin") }},
		{name: "deferred constraint", reason: "violates unique", breaks: func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Exec(ctx, "insert into once values (1), (1)")
		}},
		{name: "connection", reason: "the connection was lost in Handle",
			breaks: func(ctx context.Context, tx pgx.Tx) { _ = tx.Conn().Close(ctx) }},
		{name: "backend", reason: "the connection was lost in Handle", breaks: func(ctx context.Context, tx pgx.Tx) {
			_, _ = tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		}},
		{name: "open rows", reason: "with open rows", breaks: leaveRowsOpen},
		{name: "error beside open rows", reason: "no such coupon", err: errors.New("no such coupon"),
			breaks: leaveRowsOpen},
	} {
		for name, onFailure := range map[string]outbox.OnFailure{"stop": outbox.Stop, "park": outbox.Park} {
			t.Run(test.name+" "+name, func(t *testing.T) {
				t.Parallel()
				pool := tablesPool(t)
				p := coupons()
				p.OnFailure = onFailure
				p.Tables.DDL += "; create table once (n integer unique deferrable initially deferred)"
				apply := p.Handle
				p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
					for _, e := range events {
						if e.BizID == "bad" && e.Version == 1 {
							test.breaks(ctx, tx)
							return test.err
						}
					}
					return apply(ctx, tx, events)
				}
				enqueueCoupons(t, pool, "spring", 0, 5)
				bad := ledgertest.Key(t, "coupon.send/bad")
				ledgertest.Enqueue(t, pool, bad, `{"campaign":"spring"}`)
				enqueueCoupons(t, pool, "spring", 100, 5)
				stop := start(t, quick(pool, p))
				defer stop()
				if onFailure == outbox.Park {
					await(t, "the event is parked", func() bool { return registered(t, pool).Parked == 1 })
					awaitApplied(t, pool)
					all, err := subscribers.ReadParked(t.Context(), pool, "coupons", subscribers.EventName{}, 10)
					if err != nil || len(all) != 1 || all[0].Key != bad ||
						!strings.Contains(all[0].Error, test.reason) {
						t.Errorf("parked: %+v, %v", all, err)
					}
				} else {
					await(t, "the event fails", func() bool { return registered(t, pool).Failing != nil })
					if f := registered(t, pool).Failing; f.Key != bad || !strings.Contains(f.Error, test.reason) {
						t.Errorf("failing: %+v", f)
					}
					_, err := subscribers.DiscardParked(t.Context(), pool, "coupons", bad, "", "")
					if err != nil {
						t.Error(err)
					}
					awaitApplied(t, pool)
				}
				stop()
				if have := campaigns(t, pool); have != "spring 10 10" {
					t.Errorf("campaigns: %s", have)
				}
			})
		}
	}
}

// An Handle that commits a part of its page makes the tables invalid. A corrected program builds them anew.
func TestHandleThatCommits(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	p := coupons()
	apply := p.Handle
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		if err := apply(ctx, tx, events[:1]); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "commit"); err != nil {
			return err
		}
		return apply(ctx, tx, events[1:])
	}
	enqueueCoupons(t, pool, "spring", 0, 30)
	stop := start(t, quick(pool, p))
	defer stop()
	await(t, "the commit is reported, also by the build of new tables", func() bool {
		r := registered(t, pool)
		return r.Version == 0 && r.Failing != nil && r.Work != nil && strings.Contains(r.Work.Failure(), "COMMIT")
	})
	if f := registered(t, pool).Failing; !strings.Contains(f.Error, "has ended the transaction of its page by SQL") {
		t.Errorf("failing: %+v", f)
	}
	stop()
	stop = start(t, quick(pool, coupons()))
	defer stop()
	await(t, "the tables are built", func() bool { return registered(t, pool).Version == 1 })
	awaitApplied(t, pool)
	stop()
	if have := campaigns(t, pool); have != "spring 30 30" {
		t.Errorf("campaigns: %s", have)
	}
	verifyCoupons(t, pool, coupons())
	checkNothingLeft(t, pool)
}
