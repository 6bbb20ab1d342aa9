package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// contender writes an event that another transaction may write as well. write reports whether this call inserted
// the event.
type contender struct {
	name string
	// prepare writes the events before the race.
	prepare func(*testing.T, ledger.DB)
	write   func(context.Context, ledger.DB) (wrote bool, err error)
	// lost checks the result of a write after another transaction has inserted the event.
	lost func(*testing.T, bool, error)
}

// contested is the key of the task that contenders write to.
var contested = ledger.Key{Kind: "race", BizID: "contested"}

func contenders() []contender {
	nothing := func(*testing.T, ledger.DB) {}
	existing := func(t *testing.T, wrote bool, err error) {
		t.Helper()
		if wrote || err != nil {
			t.Errorf("wrote %v, %v; want the existing task", wrote, err)
		}
	}
	answer := func(answers []ledger.Enqueued, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		want := ledger.Enqueued{
			Key: contested, New: answers[0].New, State: ledger.StateAvailable, Version: 1, SameArgs: true,
			Position: answers[0].Position,
		}
		if diff := difference.Of(want, answers[0]); diff != "" {
			return false, errors.New(diff)
		}
		return answers[0].New, nil
	}
	entries := []ledger.Entry{{Key: contested}}
	conflict := func(t *testing.T, wrote bool, err error) {
		t.Helper()
		got := wantErrorAs[*ledger.ConflictError](t, err)
		want := &ledger.ConflictError{Key: contested, Expected: 1, Found: 2, State: ledger.StateRunning}
		if diff := difference.Of(want, got); diff != "" || wrote {
			t.Errorf("wrote %v, conflict (-want +got):\n%s", wrote, diff)
		}
	}
	by := func(enqueue func(ledger.DB) enqueuer) func(context.Context, ledger.DB) (bool, error) {
		return func(ctx context.Context, db ledger.DB) (bool, error) { return answer(enqueue(db)(ctx, entries)) }
	}
	started := ledger.AppendRequest{Key: contested, Expected: 1, Type: ledger.EventStarted}
	return []contender{
		{name: "Enqueue", prepare: nothing, write: by(oneByOne), lost: existing},
		{name: "EnqueueMany", prepare: nothing, write: by(together), lost: existing},
		{name: "taskledger.enqueue", prepare: nothing, write: by(bySQLFunction), lost: existing},
		{name: "taskledger.enqueue_many", prepare: nothing, write: by(bySQLFunctionMany), lost: existing},
		{
			name:    "Append",
			prepare: func(t *testing.T, db ledger.DB) { ledgertest.Enqueue(t, db, contested, "") },
			write: func(ctx context.Context, db ledger.DB) (bool, error) {
				_, err := ledger.Append(ctx, db, started)
				return err == nil, err
			},
			lost: conflict,
		},
	}
}

// enqueuersOfMany enqueue all entries in one statement.
var enqueuersOfMany = map[string]func(ledger.DB) enqueuer{
	"EnqueueMany": together, "taskledger.enqueue_many": bySQLFunctionMany,
}

var isolations = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// race is a transaction of a caller, with an isolation level, and an open transaction of a rival that has written the
// event.
type race struct {
	contender
	pool          *pgxpool.Pool
	rival, caller pgx.Tx
	pid           int // of the caller's connection
}

func newRace(t *testing.T, c contender, isolation pgx.TxIsoLevel) *race {
	t.Helper()
	r := &race{contender: c, pool: ledgertest.Pool(t)}
	c.prepare(t, r.pool)
	r.rival, r.caller = beginTx(t, r.pool, pgx.ReadCommitted), beginTx(t, r.pool, isolation)
	r.pid = ledgertest.BackendPID(t, r.caller) // also takes the snapshot
	if wrote, err := c.write(t.Context(), r.rival); !wrote || err != nil {
		t.Fatalf("the rival: wrote %v, %v", wrote, err)
	}
	return r
}

// write writes as the caller, and calls then while the caller waits for the rival.
func (r *race) write(t *testing.T, ctx context.Context, then func()) (wrote bool, err error) {
	t.Helper()
	var group sync.WaitGroup
	group.Go(func() { wrote, err = r.contender.write(ctx, r.caller) })
	ledgertest.AwaitBlocked(t, r.pool, r.pid)
	then()
	group.Wait()
	return wrote, err
}

func beginTx(t *testing.T, pool *pgxpool.Pool, isolation pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := tx.Rollback(context.Background())
		if err != nil && !errors.Is(err, pgx.ErrTxClosed) && !tx.Conn().IsClosed() {
			t.Error(err)
		}
	})
	return tx
}

// eachRace runs a test for every contender and every isolation level of the caller.
func eachRace(t *testing.T, test func(*testing.T, *race, pgx.TxIsoLevel)) {
	t.Parallel()
	for _, c := range contenders() {
		for _, isolation := range isolations {
			t.Run(fmt.Sprintf("%s/%s", c.name, isolation), func(t *testing.T) {
				t.Parallel()
				r := newRace(t, c, isolation)
				test(t, r, isolation)
				ledgertest.Check(t, r.pool)
			})
		}
	}
}

// A caller that waits for a rival gets the result of the rival when it commits. Its transaction cannot see that
// result under REPEATABLE READ and SERIALIZABLE, so it must be retried.
func TestRaceWithARivalThatCommits(t *testing.T) {
	eachRace(t, func(t *testing.T, r *race, isolation pgx.TxIsoLevel) {
		wrote, err := r.write(t, t.Context(), func() {
			if err := r.rival.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if isolation == pgx.ReadCommitted {
			r.lost(t, wrote, err)
			wantUsable(t, r.caller)
			return
		}
		wantRetry(t, r.contender, err)
		r.again(t, isolation)
	})
}

// The same holds if the rival commits after the caller's snapshot and before the caller writes.
func TestRaceWithARivalOutOfSight(t *testing.T) {
	eachRace(t, func(t *testing.T, r *race, isolation pgx.TxIsoLevel) {
		if err := r.rival.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wrote, err := r.contender.write(t.Context(), r.caller)
		if isolation == pgx.ReadCommitted {
			r.lost(t, wrote, err)
			wantUsable(t, r.caller)
			return
		}
		wantRetry(t, r.contender, err)
		r.again(t, isolation)
	})
}

// again runs the caller's transaction once more, as ErrRetryTransaction requires.
func (r *race) again(t *testing.T, isolation pgx.TxIsoLevel) {
	t.Helper()
	if err := r.caller.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, r.pool, isolation)
	wrote, err := r.contender.write(t.Context(), tx)
	r.lost(t, wrote, err)
	wantUsable(t, tx)
}

// If the rival rolls back, the caller inserts the event.
func TestRaceWithARivalThatRollsBack(t *testing.T) {
	eachRace(t, func(t *testing.T, r *race, _ pgx.TxIsoLevel) {
		wrote, err := r.write(t, t.Context(), func() {
			if err := r.rival.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if !wrote || err != nil {
			t.Errorf("wrote %v, %v", wrote, err)
		}
		wantUsable(t, r.caller)
		wrote, err = r.contender.write(t.Context(), r.pool)
		r.lost(t, wrote, err)
	})
}

// The caller waits for an open rival until its context is cancelled. The rival can then commit.
func TestRaceWithARivalThatStaysOpen(t *testing.T) {
	eachRace(t, func(t *testing.T, r *race, _ pgx.TxIsoLevel) {
		ctx, cancel := context.WithCancel(t.Context())
		wrote, err := r.write(t, ctx, cancel)
		if wrote {
			t.Error("wrote")
		}
		wantError(t, err, context.Canceled)
		if err := r.rival.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wrote, err = r.contender.write(t.Context(), r.pool)
		r.lost(t, wrote, err)
	})
}

// A caller in a savepoint waits no longer than its lock_timeout, and its transaction stays usable.
func TestRaceGivenUpInASavepoint(t *testing.T) {
	eachRace(t, func(t *testing.T, r *race, _ pgx.TxIsoLevel) {
		savepoint, err := r.caller.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := savepoint.Exec(t.Context(), "set local lock_timeout = '1ms'"); err != nil {
			t.Fatal(err)
		}
		wrote, err := r.contender.write(t.Context(), savepoint)
		if code := wantErrorAs[*pgconn.PgError](t, err).Code; wrote || code != "55P03" || !ledger.Retryable(err) {
			t.Errorf("wrote %v, %v; want a retryable lock_not_available", wrote, err)
		}
		if err := savepoint.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantUsable(t, r.caller)
	})
}

// wantRetry checks the error of a write that conflicts with a transaction outside of its snapshot.
func wantRetry(t *testing.T, c contender, err error) {
	t.Helper()
	if !ledger.Retryable(err) {
		t.Errorf("%v is not retryable", err)
	}
	if code := wantErrorAs[*pgconn.PgError](t, err).Code; code != "40001" {
		t.Errorf("SQLSTATE %s, want 40001", code)
	}
	if c.name == "Enqueue" || c.name == "EnqueueMany" || c.name == "Append" { // not the SQL functions
		wantError(t, err, ledger.ErrRetryTransaction)
	}
}

// wantUsable writes in a transaction and commits it.
func wantUsable(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), "create table if not exists business (id int)"); err != nil {
		t.Errorf("the transaction is not usable: %v", err)
	} else if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("the transaction cannot commit: %v", err)
	}
}

// EnqueueMany locks the keys in their order, whatever the order of the entries, so that two calls cannot deadlock:
// a call that waits for a key has locked the keys before it and none of the keys after it.
func TestKeysAreTakenInTheirOrder(t *testing.T) {
	t.Parallel()
	entry := func(id ledger.BizID) ledger.Entry { return ledger.Entry{Key: ledger.Key{Kind: "race", BizID: id}} }
	for name, newEnqueuer := range enqueuersOfMany {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			rival, caller := beginTx(t, pool, pgx.ReadCommitted), beginTx(t, pool, pgx.ReadCommitted)
			other := beginTx(t, pool, pgx.ReadCommitted)
			ledgertest.Enqueue(t, rival, entry("M").Key, "")
			pid := ledgertest.BackendPID(t, caller)
			var group sync.WaitGroup
			group.Go(func() {
				entries := []ledger.Entry{entry("a"), entry("Z"), entry("M"), entry("B")}
				if _, err := newEnqueuer(caller)(t.Context(), entries); err != nil {
					t.Error(err)
				}
			})
			ledgertest.AwaitBlocked(t, pool, pid)
			if _, err := other.Exec(t.Context(), "set local lock_timeout = '50ms'"); err != nil {
				t.Error(err)
			}
			for _, after := range []ledger.BizID{"Z", "a"} {
				if _, err := ledger.Enqueue(t.Context(), other, entry(after).Key, nil, nil); err != nil {
					t.Errorf("%s was locked before M: %v", after, err)
				}
			}
			if _, err := ledger.Enqueue(t.Context(), other, entry("B").Key, nil, nil); sqlState(err) != "55P03" {
				t.Errorf("B was not locked before M: %v", err)
			}
			for _, tx := range []pgx.Tx{other, rival} {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			}
			group.Wait()
		})
	}
}

// Each task that a crowd of transactions enqueues is new for exactly one of them, and none deadlocks.
func TestCrowdEnqueuesEachTaskOnce(t *testing.T) {
	t.Parallel()
	for name, newEnqueuer := range enqueuersOfMany {
		for _, isolation := range isolations {
			t.Run(fmt.Sprintf("%s/%s", name, isolation), func(t *testing.T) {
				t.Parallel()
				testCrowd(t, newEnqueuer, isolation)
			})
		}
	}
}

func testCrowd(t *testing.T, newEnqueuer func(ledger.DB) enqueuer, isolation pgx.TxIsoLevel) {
	t.Helper()
	const members, tasks = 8, 40
	pool := ledgertest.Pool(t)
	var mu sync.Mutex
	news := map[ledger.Key]int{}
	var group sync.WaitGroup
	for member := range members {
		group.Go(func() {
			for i := range tasks {
				answers, err := enqueueRetrying(t.Context(), pool, newEnqueuer, isolation, crowdEntries(member, i))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, e := range answers {
					if e.New {
						news[e.Key]++
					}
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for k, n := range news {
		if n != 1 {
			t.Errorf("%s was new %d times", k, n)
		}
	}
	if len(news) != 2*tasks {
		t.Errorf("%d tasks were new, want %d", len(news), 2*tasks)
	}
	ledgertest.Check(t, pool)
}

// crowdEntries returns the same two tasks for all members, in an order that differs.
func crowdEntries(member, i int) []ledger.Entry {
	a := ledger.Entry{Key: ledger.Key{Kind: "crowd.a", BizID: ledger.BizID(fmt.Sprint(i))}}
	b := ledger.Entry{Key: ledger.Key{Kind: "crowd.b", BizID: ledger.BizID(fmt.Sprint(i))}}
	if member%2 == 0 {
		return []ledger.Entry{a, b}
	}
	return []ledger.Entry{b, a}
}

// enqueueRetrying runs the transaction again while the error is retryable and not a deadlock.
func enqueueRetrying(
	ctx context.Context, pool *pgxpool.Pool, newEnqueuer func(ledger.DB) enqueuer,
	isolation pgx.TxIsoLevel, entries []ledger.Entry,
) ([]ledger.Enqueued, error) {
	for {
		var answers []ledger.Enqueued
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: isolation}, func(tx pgx.Tx) (err error) {
			answers, err = newEnqueuer(tx)(ctx, entries)
			return err
		})
		if err == nil || !ledger.Retryable(err) || sqlState(err) == "40P01" {
			return answers, err
		}
	}
}

// A duplicate leaves no dead tuple. A dead tuple keeps its line pointer until the next vacuum, so the test compares
// the number of rows with the number of line pointers.
func TestDuplicatesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for _, c := range contenders() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool := ledgertest.Pool(t)
			c.prepare(t, pool)
			if wrote, err := c.write(t.Context(), pool); !wrote || err != nil {
				t.Fatalf("wrote %v, %v", wrote, err)
			}
			for range 20 {
				wrote, err := c.write(t.Context(), pool)
				c.lost(t, wrote, err)
			}
			ledgertest.Enqueue(t, pool, ledger.Key{Kind: "race", BizID: "after"}, "")
			var rows, pointers int
			const count = `select count(*), max((ctid::text::point)[1]) from taskledger.event`
			if err := pool.QueryRow(t.Context(), count).Scan(&rows, &pointers); err != nil {
				t.Fatal(err)
			}
			if rows != pointers {
				t.Errorf("%d rows on %d line pointers", rows, pointers)
			}
		})
	}
}
