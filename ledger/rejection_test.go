package ledger_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/stdsql"
)

// readRejected returns the number of rejected calls.
func readRejected(t *testing.T, db ledger.DB) int64 {
	t.Helper()
	n, err := ledger.ReadRejected(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// isRejection reports whether err is an OverloadError or the error of a SQL function that rejects.
func isRejection(err error) bool {
	var overload *ledger.OverloadError
	return errors.As(err, &overload) || sqlState(err) == "53400"
}

// Each rejected call is counted once, in Go and in SQL, even if the transaction is rolled back.
func TestRejectionsAreCounted(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	standard, err := sql.Open("pgx", db.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer standard.Close()
	key := func(id ledger.BizID) ledger.Key { return ledger.Key{Kind: flooded, BizID: id} }
	deadline := &ledger.EnqueueOptions{StartBy: time.Now().Add(time.Hour)}
	counted := readRejected(t, db)
	for _, test := range []struct {
		name    string
		enqueue func(context.Context, pgx.Tx) error
	}{
		{name: "one", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			return errorOf(ledger.Enqueue(ctx, tx, key("x"), nil, nil))
		}},
		{name: "one with a deadline", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			return errorOf(ledger.Enqueue(ctx, tx, key("x"), nil, deadline))
		}},
		{name: "one of a kind", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			return errorOf(ledger.MustKind[int](flooded).Enqueue(ctx, tx, "x", 1, nil))
		}},
		{name: "many", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			entries := []ledger.Entry{{Key: key("x")}, {Key: key("w-0")}, {Key: key("y")}}
			return errorOf(ledger.EnqueueMany(ctx, tx, entries))
		}},
		{name: "many in order", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			entries := []ledger.Entry{{Key: key("x"), Options: deadline}, {Key: key("y")}}
			return errorOf(ledger.EnqueueInOrder(ctx, tx, entries))
		}},
		{name: "no transaction", enqueue: func(ctx context.Context, _ pgx.Tx) error {
			return errorOf(ledger.Enqueue(ctx, db, key("x"), nil, nil))
		}},
		{name: "database/sql", enqueue: func(ctx context.Context, _ pgx.Tx) error {
			return errorOf(ledger.Enqueue(ctx, stdsql.Wrap(standard), key("x"), nil, nil))
		}},
		{name: "the end of a transaction", enqueue: func(ctx context.Context, _ pgx.Tx) error {
			return enqueueAndCommit(ctx, db, key("x"), nil)
		}},
		{name: "the end of a transaction, with a deadline", enqueue: func(ctx context.Context, _ pgx.Tx) error {
			return enqueueAndCommit(ctx, db, key("x"), deadline)
		}},
		{name: "SQL", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			return errorOf(tx.Exec(ctx, "select * from taskledger.enqueue('test.flooded', 'x')"))
		}},
		{name: "SQL, many", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			return errorOf(tx.Exec(ctx, `select * from taskledger.enqueue_many(
				'[{"kind":"test.flooded","biz_id":"x"},{"kind":"test.flooded","biz_id":"y"}]')`))
		}},
		{name: "SQL, many with a deadline", enqueue: func(ctx context.Context, tx pgx.Tx) error {
			return errorOf(tx.Exec(ctx, `select * from taskledger.enqueue_many(
				'[{"kind":"test.flooded","biz_id":"x","start_by":"2100-01-01"}]')`))
		}},
	} {
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { // rolls back
			return test.enqueue(t.Context(), tx)
		})
		if !isRejection(err) {
			t.Errorf("%s: %v", test.name, err)
		}
		counted++
		if n := readRejected(t, db); n != counted {
			t.Errorf("%s: %d are counted, want %d", test.name, n, counted)
			counted = n
		}
	}

	// A SQL block catches the error and continues.
	if _, err := db.Exec(t.Context(), `do $$
		begin
		  perform taskledger.enqueue('test.flooded', 'x');
		exception when configuration_limit_exceeded then
		end $$`); err != nil {
		t.Error(err)
	}
	if n := readRejected(t, db); n != counted+1 {
		t.Errorf("caught in SQL: %d are counted, want %d", n, counted+1)
	}
}

// enqueueAndCommit enqueues k at the end of a transaction.
func enqueueAndCommit(ctx context.Context, db *pgxpool.Pool, k ledger.Key, o *ledger.EnqueueOptions) error {
	tx, err := ledger.Begin(ctx, db, nil)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select $1::integer", 1); err != nil {
		return err
	}
	return errorOf(tx.EnqueueAndCommit(ctx, k, nil, o))
}

// A task that is accepted, discarded, existing or invalid is not counted as rejected.
func TestWhatIsNoRejection(t *testing.T) {
	t.Parallel()
	const ordinary = "ordinary"
	later := &ledger.EnqueueOptions{RunIn: time.Hour}
	deadline := &ledger.EnqueueOptions{StartBy: time.Now().Add(time.Hour)}
	const manySQL = `select * from taskledger.enqueue_many('[{"kind":"test.flooded","biz_id":"w-0"}]')`
	const laterSQL = "select * from taskledger.enqueue('test.flooded', 'later in SQL', run_in => '1 hour')"
	for _, policy := range []ledger.OverloadPolicy{
		ledger.Reject, ledger.CallerRuns, ledger.Discard, ledger.DiscardOldest,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			db := flood(t, policy)
			ctx := t.Context()
			key := func(id ledger.BizID) ledger.Key { return ledger.Key{Kind: flooded, BizID: id} }
			var faults []error
			for range 2 {
				faults = append(faults,
					errorOf(ledger.Enqueue(ctx, db, key("w-0"), nil, nil)),
					errorOf(ledger.Enqueue(ctx, db, key("w-0"), nil, deadline)),
					errorOf(ledger.EnqueueMany(ctx, db, []ledger.Entry{{Key: key("w-0")}, {Key: key("w-1")}})),
					enqueueAndCommit(ctx, db, key("w-0"), nil),
					errorOf(db.Exec(ctx, "select * from taskledger.enqueue('test.flooded', 'w-0')")),
					errorOf(db.Exec(ctx, manySQL)),
					errorOf(ledger.Enqueue(ctx, db, ledger.Key{Kind: ordinary, BizID: "1"}, nil, nil)))
			}
			if policy == ledger.Discard || policy == ledger.DiscardOldest {
				faults = append(faults,
					errorOf(ledger.Enqueue(ctx, db, key("later"), nil, later)),
					errorOf(db.Exec(ctx, laterSQL)),
					errorOf(ledger.Enqueue(ctx, db, key("more"), nil, nil)),
					errorOf(ledger.EnqueueMany(ctx, db, []ledger.Entry{{Key: key("more")}, {Key: key("still more")}})),
					errorOf(db.Exec(ctx, "select * from taskledger.enqueue('test.flooded', 'more in SQL')")))
			}
			if policy == ledger.CallerRuns {
				tx := beginLedgerTx(t, db, nil)
				answer, err := ledger.Enqueue(ctx, tx, key("run"), nil, &ledger.EnqueueOptions{CanRun: true})
				if faults = append(faults, err); !answer.MustRun {
					t.Error("MustRun is false")
				}
				ledgertest.Append(t, tx, key("run"), ledger.EventSucceeded)
				faults = append(faults, tx.Commit(ctx))
			}
			if err := errors.Join(faults...); err != nil {
				t.Error(err)
			}
			var invalid *ledger.InvalidError
			large := json.RawMessage(`"` + strings.Repeat("x", 256<<10) + `"`)
			if _, err := ledger.Enqueue(ctx, db, key("large"), large, nil); !errors.As(err, &invalid) {
				t.Errorf("args over the limit: %v", err)
			}
			if n := readRejected(t, db); n != 0 {
				t.Errorf("%d are counted", n)
			}
		})
	}
}

// EnqueueAndCommit rejects a task that Enqueue would discard.
func TestRejectedAtTheCommit(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Discard)
	if err := enqueueAndCommit(t.Context(), db, ledger.Key{Kind: flooded, BizID: "x"}, nil); !isRejection(err) {
		t.Error(err)
	}
	if n := readRejected(t, db); n != 1 {
		t.Errorf("%d are counted, want 1", n)
	}
}

// Concurrent rejections are counted exactly, and none waits for an open transaction with a rejection.
func TestRejectionsAtOnce(t *testing.T) {
	t.Parallel()
	db := flood(t, ledger.Reject)
	open, err := db.Begin(t.Context()) // contains a rejection
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(context.Background()) }()
	_, err = ledger.Enqueue(t.Context(), open, ledger.Key{Kind: flooded, BizID: "open"}, nil, nil)
	if !isRejection(err) {
		t.Fatal(err)
	}
	const enqueueSQL = "select * from taskledger.enqueue($1, $2)"
	var rejections atomic.Int64
	var callers sync.WaitGroup
	for c := range 6 {
		callers.Go(func() {
			for i := range 50 {
				var err error
				if k := (ledger.Key{Kind: flooded, BizID: ledger.BizID(fmt.Sprint(c, "-", i))}); c%2 == 0 {
					_, err = ledger.Enqueue(t.Context(), db, k, nil, nil)
				} else {
					_, err = db.Exec(t.Context(), enqueueSQL, string(k.Kind), string(k.BizID))
				}
				if !isRejection(err) {
					t.Error(err)
				} else {
					rejections.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := readRejected(t, db); n != rejections.Load()+1 {
		t.Errorf("%d are counted, %d were rejected", n, rejections.Load()+1)
	}
}

// A crash of the database loses no rejection that is on disk, and adds at most 32: the sequence logs its values
// that far ahead.
func TestRejectionsOverACrash(t *testing.T) {
	t.Parallel()
	server := ledgertest.Cluster(t, map[string]string{"autovacuum": "off"})
	pool, err := pgxpool.New(t.Context(), server.URL(ledgertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := ledger.SetLimit(t.Context(), pool, ledger.Limit{Kind: flooded}, ""); err != nil {
		t.Fatal(err)
	}
	reject := func() {
		_, err := ledger.Enqueue(t.Context(), pool, ledger.Key{Kind: flooded, BizID: "x"}, nil, nil)
		if !isRejection(err) {
			t.Error(err)
		}
	}
	const calls, ahead = 40, 32
	for range calls {
		reject()
	}
	if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	await(t, "the server", func() bool { return pool.Ping(t.Context()) == nil })
	after := readRejected(t, pool)
	t.Logf("%d are counted after the crash, %d before", after, calls)
	if after < calls || after > calls+ahead {
		t.Errorf("%d are counted, want %d to %d", after, calls, calls+ahead)
	}
	reject()
	if n := readRejected(t, pool); n != after+1 {
		t.Errorf("%d are counted after one more, want %d", n, after+1)
	}
}
