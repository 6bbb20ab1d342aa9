package ledger_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// claimed is a task that claim_next has returned.
type claimed struct {
	id      string
	version int
}

// claimGated claims at most n tasks by claim_next.
func claimGated(t *testing.T, db ledger.DB, worker string, n int) []claimed {
	t.Helper()
	rows, _ := db.Query(t.Context(),
		"select biz_id, version from taskledger.claim_next('test.gated', $1, $2)", worker, n)
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c claimed, err error) {
		return c, r.Scan(&c.id, &c.version)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// gatedWorker returns a pool with the rights of a worker, after a heartbeat of each worker.
func gatedWorker(t *testing.T, owner *pgxpool.Pool, workers ...string) *pgxpool.Pool {
	t.Helper()
	db := ledgertest.As(t, owner, "worker")
	for _, w := range workers {
		call(t, db, "select taskledger.heartbeat($1, '{test.gated}', '10 minutes')", w)
	}
	return db
}

func finishGated(t *testing.T, db ledger.DB, c claimed) {
	t.Helper()
	call(t, db, "select taskledger.finish('test.gated', $1, $2)", c.id, c.version)
}

// Workers in SQL claim as many tasks as the limit allows, and get the task of a lost worker with its permit.
func TestClaimWithinAConcurrencyLimit(t *testing.T) {
	t.Parallel()
	owner := gate(t, 2, 6)
	db := gatedWorker(t, owner, "a", "b")
	first := claimGated(t, db, "a", 5)
	if len(first) != 2 {
		t.Fatalf("claimed %v, want two tasks", first)
	}
	if more := claimGated(t, db, "b", 5); len(more) > 0 {
		t.Fatalf("claimed %v above the limit", more)
	}
	const one = "select count(*) from taskledger.claim('test.gated', 'g-5', 'b')"
	if n := count(t, db, one); n != 0 {
		t.Error("claimed a task above the limit")
	}
	finishGated(t, db, first[0])
	if n := count(t, db, one); n != 1 {
		t.Error("a free permit is not used")
	}
	ledgertest.ExecAsOwner(t, owner, `
		update taskledger.lease set alive_until = clock_timestamp() - interval '1 s' where name = 'worker/a'`)
	again := claimGated(t, db, "b", 5)
	if len(again) != 1 || again[0].id != first[1].id {
		t.Fatalf("claimed %v, want the lost worker's %v", again, first[1])
	}
	if more := claimGated(t, db, "b", 5); len(more) > 0 {
		t.Fatalf("claimed %v above the limit", more)
	}
}

// Workers in SQL together do not exceed the limit. One of them claims in a transaction that lasts.
func TestClaimersWithinAConcurrencyLimit(t *testing.T) {
	t.Parallel()
	const tasks, limit = 40, 3
	owner := gate(t, limit, tasks)
	removing(t, owner)
	names := []string{"a", "b", "c", "d"}
	db := gatedWorker(t, owner, names...)
	var running, most, finished atomic.Int64
	var done sync.WaitGroup
	for i, name := range names {
		done.Go(func() {
			for finished.Load() < tasks && !t.Failed() {
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					var all []claimed
					if i == 0 { // the claim is not committed while its tasks run
						all = claimGated(t, tx, name, 2)
					} else {
						all = claimGated(t, db, name, 2)
					}
					now := running.Add(int64(len(all)))
					for {
						before := most.Load()
						if now <= before || most.CompareAndSwap(before, now) {
							break
						}
					}
					time.Sleep(time.Millisecond) // the work
					running.Add(-int64(len(all)))
					for _, c := range all {
						finishGated(t, tx, c)
						finished.Add(1)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	if n := most.Load(); n > limit || n < 2 {
		t.Errorf("%d tasks ran at a time, want 2 to %d", n, limit)
	}
	if n := count(t, owner, "select count(*) from taskledger.event where type = 'started'"); n != tasks {
		t.Errorf("%d starts, want %d", n, tasks)
	}
	if got := concurrencyOf(t, owner); got.Running != 0 {
		t.Errorf("%+v after the end", got)
	}
	if ids := fmt.Sprint(claimGated(t, db, "a", 5)); ids != "[]" {
		t.Errorf("claimed %s after the end", ids)
	}
}
