package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
)

// Settings that Handle makes for its session end with the transaction of its page, whether it commits or fails: the
// connection is used for other pages and subscribers.
func TestSessionOfHandleWithTablesEndsWithIt(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	found := make(chan string, 100)
	failed := false
	p := coupons()
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		var state string
		err := tx.QueryRow(ctx, `select concat_ws(' ', current_setting('work_mem'), current_setting('role'),
			(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
			to_regclass('pg_temp.text') is not null)`).Scan(&state)
		if err != nil {
			return err
		}
		found <- state
		for _, sql := range []string{
			"set work_mem = '123kB'", "select pg_advisory_lock(7)", "create temp table text ()", "set role none",
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if !failed {
			failed = true
			return errors.New("the first attempt")
		}
		return nil
	}
	c := quick(pool, p)
	c[0].PageSize = 1
	stop := start(t, c)
	defer stop()
	enqueueCoupons(t, pool, "spring", 0, 3)
	awaitApplied(t, pool)
	stop()
	close(found)
	first, n := "", 0
	for state := range found {
		if first == "" {
			first = state
		}
		if state != first {
			t.Errorf("a page begins with %s, the first one with %s", state, first)
		}
		n++
	}
	if n < 7 {
		t.Errorf("%d calls: this proves nothing", n)
	}
}

// Subscribe ends although Handle ignores its context and does not return, and its pool can be closed. The events are
// applied again.
func TestSubscriberStopsBesideAHandleThatHangs(t *testing.T) {
	t.Parallel()
	pool := tablesPool(t)
	own, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	if err != nil {
		t.Fatal(err)
	}
	applying, hang := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(hang) })
	p := coupons()
	p.Handle = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		if err := applyCoupons(ctx, tx, events); err != nil {
			return err
		}
		close(applying)
		<-hang
		return nil
	}
	enqueueCoupons(t, pool, "spring", 0, 1)
	stop := start(t, quick(own, p))
	<-applying
	ended := make(chan struct{})
	go func() {
		stop()
		own.Close()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it does not stop")
	}
	stop = start(t, quick(pool, coupons()))
	defer stop()
	awaitApplied(t, pool)
	if got, want := campaigns(t, pool), "spring 1 1"; got != want {
		t.Errorf("applied %q, want %q", got, want)
	}
}
