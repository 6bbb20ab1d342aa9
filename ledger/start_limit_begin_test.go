package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// beginGated takes permits of first attempts at gated tasks for a worker, and returns the tasks that have one.
func beginGated(t testing.TB, db ledger.DB, worker string, tasks ...int) []int {
	t.Helper()
	return beginAfter(t, db, worker, 1, 1, tasks...)
}

// beginAfter is beginGated for attempts with a number, after events with a version.
func beginAfter(
	t testing.TB, db ledger.DB, worker string, version ledger.Version, attempt ledger.Attempt, tasks ...int,
) (begun []int) {
	t.Helper()
	ids := make([]string, len(tasks))
	for i, n := range tasks {
		ids[i] = string(gatedKey(n).BizID)
	}
	const sql = `select unnest(taskledger_internal.begin_attempts(array_fill($1::text, array[$2::integer]), $3,
		array_fill($4::integer, array[$2::integer]), array_fill($5::integer, array[$2::integer]), $6))`
	rows, _ := db.Query(t.Context(), sql, string(gated), len(ids), ids, int(version), int(attempt), worker)
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		begun = append(begun, tasks[n-1])
	}
	slices.Sort(begun)
	return begun
}

// wantBegun fails the test unless exactly these tasks have begun.
func wantBegun(t testing.TB, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("tasks %v have permits, want %v", got, want)
	}
}

// expirePermits makes the permits of attempts without an event as old as they may be.
func expirePermits(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	ledgertest.ExecAsOwner(t, db, `update taskledger.permit
		set taken_at = taken_at - taskledger_internal.permit_lasts() where actor is not null`)
}

// An attempt whose start is not recorded holds its permit until its task has another event or the permit expires.
func TestPermitBeforeAnEvent(t *testing.T) {
	t.Parallel()
	for _, end := range []ledger.EventType{
		ledger.EventSucceeded, ledger.EventInterrupted, ledger.EventCancelled, ledger.EventDiscarded,
	} {
		t.Run(string(end), func(t *testing.T) {
			t.Parallel()
			db := gate(t, 2, 6)
			worker := ledgertest.As(t, db, "worker")
			wantBegun(t, beginGated(t, worker, "w", 0, 1, 2), 0, 1)
			wantBegun(t, beginGated(t, worker, "w", 3))
			mustBeFull(t, db, 3, 1)
			if got := concurrencyOf(t, db); got.Running != 2 {
				t.Errorf("%d tasks run, want 2", got.Running)
			}
			mustAppend(t, db, 0, 1, end)
			wantBegun(t, beginGated(t, worker, "w", 4), 4)
			mustBeFull(t, db, 3, 1)
			expirePermits(t, db)
			mustAppend(t, db, 3, 1, ledger.EventStarted)
			wantBegun(t, beginGated(t, worker, "w", 2, 5), 2)
		})
	}
}

// The start of an attempt keeps the permit that its worker has taken before. Then the permit lasts.
func TestRecordedStartKeepsItsPermit(t *testing.T) {
	t.Parallel()
	for _, first := range []ledger.EventType{ledger.EventStarted, ledger.EventProgressed} {
		t.Run(string(first), func(t *testing.T) {
			t.Parallel()
			db := gate(t, 2, 4)
			wantBegun(t, beginGated(t, db, "w", 0, 1), 0, 1)
			mustAppend(t, db, 0, 1, first)
			if got := concurrencyOf(t, db); got.Running != 2 {
				t.Errorf("%d tasks run, want 2", got.Running)
			}
			expirePermits(t, db)
			wantBegun(t, beginGated(t, db, "w", 2, 3), 2)
			mustAppend(t, db, 0, 2, ledger.EventSucceeded)
			wantBegun(t, beginGated(t, db, "w", 3), 3)
		})
	}
}

// An attempt that is cancelled before its start is recorded, and whose task is released, has the number of the next
// attempt. Only the next one holds a permit, before and after its start is recorded.
func TestPermitOfAnOvertakenAttempt(t *testing.T) {
	t.Parallel()
	db := gate(t, 2, 2)
	wantBegun(t, beginGated(t, db, "a", 0), 0)
	mustAppend(t, db, 0, 1, ledger.EventCancelled)
	mustAppend(t, db, 0, 2, ledger.EventReleased)
	slot := begin(t, ledgertest.As(t, db, ledgertest.Owner), pgx.TxOptions{})
	if _, err := slot.Exec(t.Context(), "select from taskledger.permit where actor = 'a' for update"); err != nil {
		t.Fatal(err)
	}
	wantBegun(t, beginAfter(t, db, "w", 3, 1, 0), 0) // in the other slot
	mustCommit(t, slot)
	mustHold := func(when string, want int) {
		t.Helper()
		if got := concurrencyOf(t, db); got.Running != want {
			t.Errorf("%s, the limit counts %d tasks, want %d", when, got.Running, want)
		}
	}
	mustHold("before the start is recorded", 1)
	mustAppend(t, db, 0, 3, ledger.EventStarted)
	mustHold("after it", 1)
	wantBegun(t, beginGated(t, db, "w", 1), 1)
	mustHold("with the other task", 2)
}

// A worker that was suspended until its permit expired, and whose slot another task has, cannot record its start.
func TestLateStartWithoutItsPermit(t *testing.T) {
	t.Parallel()
	db := gate(t, 1, 2)
	wantBegun(t, beginGated(t, db, "w", 0), 0)
	expirePermits(t, db)
	wantBegun(t, beginGated(t, db, "w", 1), 1)
	mustBeFull(t, db, 0, 1)
	mustAppend(t, db, 1, 1, ledger.EventSucceeded)
	mustAppend(t, db, 0, 1, ledger.EventStarted)
}

// Of two workers that begin a task one is refused, whether it takes a permit or records the start.
func TestTwoWorkersBeginATask(t *testing.T) {
	t.Parallel()
	db := gate(t, 5, 2)
	wantBegun(t, beginGated(t, db, "a", 0), 0)
	wantBegun(t, beginGated(t, db, "b", 0))
	wantBegun(t, beginGated(t, db, "a", 0), 0) // the same attempt again
	mustBeFull(t, db, 0, 1)                    // by worker w
	if got := concurrencyOf(t, db); got.Running != 1 {
		t.Errorf("%d tasks run, want 1", got.Running)
	}
	expirePermits(t, db)
	wantBegun(t, beginGated(t, db, "b", 0), 0)
	wantBegun(t, beginGated(t, db, "a", 0, 1), 1)
	expirePermits(t, db)
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	wantBegun(t, beginGated(t, db, "b", 0))
	if got := concurrencyOf(t, db); got.Running != 1 {
		t.Errorf("%d tasks run, want 1", got.Running)
	}
}

// While a worker's transaction is open, the start of the same task waits for it and is refused.
func TestTwoWorkersBeginATaskAtOnce(t *testing.T) {
	t.Parallel()
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			db := gate(t, 5, 1)
			tx := begin(t, db, pgx.TxOptions{})
			other := begin(t, db, pgx.TxOptions{IsoLevel: isolation})
			pid := ledgertest.BackendPID(t, other)
			wantBegun(t, beginGated(t, tx, "a", 0), 0)
			var refused error
			var second sync.WaitGroup
			second.Go(func() { refused = appendGated(t, other, 0, 1, ledger.EventStarted) })
			ledgertest.AwaitBlocked(t, db, pid)
			mustCommit(t, tx)
			if second.Wait(); !errors.Is(refused, ledger.ErrStartLimit) {
				t.Errorf("second: %v, want it refused", refused)
			}
		})
	}
}

// A transaction that has begun a task and stays open delays no other task of the worker.
func TestBeginWaitsForNoOpenTransaction(t *testing.T) {
	t.Parallel()
	for _, byStart := range []bool{true, false} {
		t.Run(fmt.Sprint(byStart), func(t *testing.T) {
			t.Parallel()
			db := gate(t, 5, 3)
			tx := begin(t, db, pgx.TxOptions{})
			if byStart {
				mustAppend(t, tx, 0, 1, ledger.EventStarted)
			} else {
				wantBegun(t, beginGated(t, tx, "a", 0), 0)
			}
			other := begin(t, db, pgx.TxOptions{})
			if _, err := other.Exec(t.Context(), "set local statement_timeout = '10s'"); err != nil {
				t.Fatal(err)
			}
			wantBegun(t, beginGated(t, other, "b", 1, 0, 2), 1, 2)
		})
	}
}

// Only a task that waits and has not moved on begins, and only by the limits that give permits without an event.
func TestBeginOfTasksThatMovedOn(t *testing.T) {
	t.Parallel()
	db := gate(t, 5, 4)
	mustAppend(t, db, 0, 1, ledger.EventCancelled)
	mustAppend(t, db, 1, 1, ledger.EventStarted)
	mustAppend(t, db, 2, 1, ledger.EventInterrupted)
	wantBegun(t, beginGated(t, db, "w", 0, 1, 2, 3), 3)
	wantBegun(t, beginAfter(t, db, "w", 2, 2, 0, 1, 2), 2)
	tx := begin(t, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	wantBegun(t, beginGated(t, tx, "w", 3))
	rate := ledger.StartLimit{Name: "rate", Kinds: map[ledger.Kind]int{gated: 1},
		Rate: &ledger.StartRate{Starts: 10, Period: time.Second}}
	if err := ledger.SetStartLimit(t.Context(), db, rate, "alice"); err != nil {
		t.Fatal(err)
	}
	wantBegun(t, beginGated(t, db, "w", 3))
}

// A kind with two limits gets the permits of both or none.
func TestBeginWithTwoLimits(t *testing.T) {
	t.Parallel()
	db := gate(t, 5, 6)
	two := 2
	shared := ledger.StartLimit{Name: "shared", Kinds: map[ledger.Kind]int{gated: 1, "test.other": 1}, MaxRunning: &two}
	if err := ledger.SetStartLimit(t.Context(), db, shared, "alice"); err != nil {
		t.Fatal(err)
	}
	wantBegun(t, beginGated(t, db, "w", 0, 1, 2, 3), 0, 1)
	var used [2]int
	const sql = `select count(*) filter (where name = 'shared'), count(*) filter (where name <> 'shared')
		from taskledger.permits`
	if err := db.QueryRow(t.Context(), sql).Scan(&used[0], &used[1]); err != nil || used != [2]int{2, 2} {
		t.Errorf("permits in use: %v, %v, want 2 of each limit", used, err)
	}
}

// A permit that was taken when the limit was higher counts until it ends, and its start can be recorded.
func TestLoweredLimitCountsPermitsBeforeAnEvent(t *testing.T) {
	t.Parallel()
	db := gate(t, 3, 8)
	wantBegun(t, beginGated(t, db, "w", 0, 1, 2), 0, 1, 2)
	limitConcurrency(t, db, 1)
	wantBegun(t, beginGated(t, db, "w", 3))
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	mustAppend(t, db, 1, 1, ledger.EventSucceeded)
	wantBegun(t, beginGated(t, db, "w", 3))
	mustBeFull(t, db, 3, 1)
	mustAppend(t, db, 0, 2, ledger.EventSucceeded)
	mustAppend(t, db, 2, 1, ledger.EventSucceeded)
	wantBegun(t, beginGated(t, db, "w", 3, 4), 3)
}

// Permits that were taken before the clock was set back expire like others.
func TestPermitsFromTheFuture(t *testing.T) {
	t.Parallel()
	db := gate(t, 1, 2)
	wantBegun(t, beginGated(t, db, "w", 0), 0)
	ledgertest.ExecAsOwner(t, db, "update taskledger.permit set taken_at = taken_at + interval '1 hour'")
	count(t, db, "select taskledger_internal.remove_permits(100)")
	expirePermits(t, db)
	wantBegun(t, beginGated(t, db, "w", 1), 1)
}

// A role may take permits only for the kinds on which it may work.
func TestBeginNeedsTheRightToWork(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	limitConcurrency(t, owner, 1)
	ledgertest.Enqueue(t, owner, gatedKey(0), "")
	limited, _ := poolOf(t, owner, "grant "+limitedWorker(t, owner, "other")+" to $1")
	for role, pool := range map[string]*pgxpool.Pool{
		"producer": ledgertest.As(t, owner, "producer"), "relay": ledgertest.As(t, owner, "relay"),
		"worker of another kind": limited,
	} {
		const sql = "select taskledger_internal.begin_attempts(array[$1], array['g-0'], array[1], array[1], 'w')"
		_, err := pool.Exec(t.Context(), sql, string(gated))
		if !pgerr.Is(err, pgerr.InsufficientPrivilege) {
			t.Errorf("%s: %v, want insufficient_privilege", role, err)
		}
	}
	if n := count(t, owner, "select count(*) from taskledger.permit where version > 0"); n != 0 {
		t.Errorf("%d permits are taken", n)
	}
}

// Workers that take permits, record some starts, and end attempts, never hold more than the limit.
func TestBeginsRace(t *testing.T) {
	t.Parallel()
	const limit, tasks, workers = 3, 60, 4
	db := gate(t, limit, tasks)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	most := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			var n int
			const sql = "select running from taskledger.limit_use where name = $1"
			if err := db.QueryRow(ctx, sql, string(gated)).Scan(&n); err == nil {
				most = max(most, n)
			}
		}
	})
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			name := fmt.Sprint("worker-", w)
			for i := w; i < tasks; i += workers {
				for len(beginGated(t, db, name, i)) == 0 {
					time.Sleep(time.Millisecond)
				}
				version := ledger.Version(1)
				if i%3 == 0 {
					r := ledger.AppendRequest{Key: gatedKey(i), Expected: 1, Type: ledger.EventStarted, Actor: name}
					if _, err := ledger.Append(t.Context(), db, r); err != nil {
						t.Error(err)
						return
					}
					version++
				}
				mustAppend(t, db, i, version, ledger.EventSucceeded)
			}
		})
	}
	all.Wait()
	cancel()
	wg.Wait()
	if most > limit || most == 0 {
		t.Errorf("at most %d permits were in use at a time, want at most %d", most, limit)
	}
}
