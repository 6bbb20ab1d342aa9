package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// begin begins a transaction that is rolled back at the end of the test, unless it was committed.
func begin(t *testing.T, db *pgxpool.Pool, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func mustCommit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Starts that are not committed when a limit is lowered count, in whichever slots they are.
func TestLoweredConcurrencyLimitCountsStartsInFlight(t *testing.T) {
	t.Parallel()
	for _, committed := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint(committed), func(t *testing.T) {
			t.Parallel()
			db := gate(t, 6, 20)
			for i := range committed {
				mustAppend(t, db, i, 1, ledger.EventStarted)
			}
			tx := begin(t, db, pgx.TxOptions{})
			for i := committed; i < 4; i++ {
				mustAppend(t, tx, i, 1, ledger.EventStarted)
			}
			limitConcurrency(t, db, 4)
			var started []int
			for i := 10; i < 15; i++ {
				if err := appendGated(t, db, i, 1, ledger.EventStarted); err == nil {
					started = append(started, i)
				} else if !errors.Is(err, ledger.ErrStartLimit) {
					t.Fatal(err)
				}
			}
			if len(started) > 0 {
				t.Errorf("tasks %v have started while 4 run", started)
			}
			mustCommit(t, tx)
			mustAppend(t, db, 3, 2, ledger.EventSucceeded)
			mustAppend(t, db, 15, 1, ledger.EventStarted)
			mustBeFull(t, db, 16, 1)
		})
	}
}

// A start that has read a limit before it is lowered, and takes its permit afterwards, is under the new limit.
func TestStartWhileAConcurrencyLimitIsLowered(t *testing.T) {
	t.Parallel()
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			db := gate(t, 3, 10)
			late := begin(t, db, pgx.TxOptions{IsoLevel: isolation})
			pid := ledgertest.BackendPID(t, late)
			operator := begin(t, ledgertest.As(t, db, ledgertest.Owner), pgx.TxOptions{})
			if _, err := operator.Exec(t.Context(), "lock table taskledger.permit"); err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			go func() { result <- appendGated(t, late, 0, 1, ledger.EventStarted) }()
			ledgertest.AwaitBlocked(t, db, pid) // it has read the limit
			limitConcurrency(t, operator, 1)
			mustAppend(t, operator, 1, 1, ledger.EventStarted)
			mustCommit(t, operator)
			err := <-result
			if !errors.Is(err, ledger.ErrStartLimit) && !errors.Is(err, ledger.ErrRetryTransaction) {
				t.Errorf("a second start: %v, want a refusal", err)
			}
		})
	}
}

// A limit that is lowered and raised in transactions with an old snapshot has all of its slots.
func TestRaisedConcurrencyLimitHasItsSlots(t *testing.T) {
	t.Parallel()
	db := gate(t, 3, 10)
	limitConcurrency(t, db, 1)
	tx := begin(t, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if n := count(t, tx, "select count(*) from taskledger.permit"); n != 3 {
		t.Fatalf("%d slots", n)
	}
	for count(t, db, "select taskledger_internal.remove_permits(100)") > 0 {
	}
	limitConcurrency(t, tx, 3)
	mustCommit(t, tx)
	for i := range 3 {
		mustAppend(t, db, i, 1, ledger.EventStarted)
	}
	mustBeFull(t, db, 3, 1)
}

// The starts of a value do not wait for each other's transactions, though they make its slots and tokens.
func TestStartsOfAValueBesideAnOpenOne(t *testing.T) {
	t.Parallel()
	db := ordered(t, 12)
	setLimit(t, db, ledger.StartLimit{
		Per: ledger.PerOrderKey, MaxRunning: new(2), Rate: &ledger.StartRate{Starts: 3, Period: time.Hour}})
	open := begin(t, db, pgx.TxOptions{})
	mustAppend(t, open, 0, 1, ledger.EventStarted)
	mustAppend(t, db, 2, 1, ledger.EventStarted)
	mustBeFull(t, db, 4, 1)
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, db, 4, 1, ledger.EventStarted) // the slot that was not made
	mustBeFull(t, db, 6, 1)
	mustAppend(t, db, 2, 2, ledger.EventSucceeded)
	mustAppend(t, db, 6, 1, ledger.EventStarted) // the token that was not made
	mustAppend(t, db, 4, 2, ledger.EventSucceeded)
	mustBeFull(t, db, 8, 1)
}

// A slot that is removed while a start makes a higher one is made again.
func TestSlotRemovedBelowAnother(t *testing.T) {
	t.Parallel()
	db := ordered(t, 12)
	setLimit(t, db, ledger.StartLimit{Per: ledger.PerOrderKey, MaxRunning: new(3)})
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	mustAppend(t, db, 2, 1, ledger.EventStarted)
	mustAppend(t, db, 2, 2, ledger.EventSucceeded)
	ledgertest.ExecAsOwner(t, db, "update taskledger.permit set taken_at = taken_at - interval '1 minute'")
	open := begin(t, db, pgx.TxOptions{})
	if n := count(t, open, "select taskledger_internal.remove_permits(10)"); n != 2 {
		t.Fatalf("%d rows removed, want both of the free slot", n)
	}
	mustAppend(t, db, 4, 1, ledger.EventStarted)
	mustCommit(t, open)
	mustAppend(t, db, 6, 1, ledger.EventStarted)
	mustBeFull(t, db, 8, 1)
}

// A transaction whose snapshot lacks a limit of the kind starts no task.
func TestStartWithASnapshotFromBeforeALimit(t *testing.T) {
	t.Parallel()
	shared := ledger.StartLimit{Kinds: map[ledger.Kind]int{"test.other": 1}, MaxRunning: new(1)}
	with := ledger.StartLimit{Kinds: map[ledger.Kind]int{"test.other": 1, gated: 1}, MaxRunning: new(1)}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db := gate(t, 5, 3)
			setLimit(t, db, shared)
			tx := begin(t, db, pgx.TxOptions{IsoLevel: level})
			count(t, tx, "select count(*) from taskledger.event")
			setLimit(t, db, with)
			err := appendGated(t, tx, 0, 1, ledger.EventStarted)
			if code := wantErrorAs[*pgconn.PgError](t, err).Code; code != "40001" {
				t.Errorf("SQLSTATE %s, want 40001", code)
			}
			_ = tx.Rollback(t.Context())
			tx = begin(t, db, pgx.TxOptions{IsoLevel: level})
			mustAppend(t, tx, 0, 1, ledger.EventStarted)
			mustCommit(t, tx)
			mustBeFull(t, db, 1, 1)
		})
	}
}

// buffers returns how many buffers a statement reads.
func buffers(t *testing.T, conn *pgxpool.Conn, statement string) (n int) {
	t.Helper()
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	err := conn.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+statement).Scan(&plan)
	if err != nil || len(plan) != 1 {
		t.Fatal(plan, err)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// A transaction that stays open keeps removed rows from being vacuumed. They are not read repeatedly, and not at all to
// find the permits in use.
func TestPermitsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	db := gate(t, 1, 1)
	mustAppend(t, db, 0, 1, ledger.EventStarted)
	mustAppend(t, db, 0, 2, ledger.EventSucceeded)
	old := begin(t, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	count(t, old, "select count(*) from taskledger.permit")
	const rows, batch = 5000, 1000
	ledgertest.ExecAsOwner(t, db, `
		insert into taskledger.permit (name, value, slot, n, kind, biz_id, version, attempt)
		select 'test.gated', '', 1, g, 'test.gated', 'g-0', g + 1, 1 from generate_series(2, $1::integer) g`, rows)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	const free = "select running from taskledger.limit_use"
	remove := fmt.Sprintf("select taskledger_internal.remove_permits(%d)", batch)
	for range rows / batch {
		if n := buffers(t, conn, remove); n > 50*batch { // a quadratic search reads thousands for each row
			t.Errorf("%d buffers were read to remove %d rows", n, batch)
		}
	}
	if n := count(t, db, "select count(*) from taskledger.permit"); n != 1 {
		t.Errorf("%d rows of a slot are left", n)
	}
	// A plan is made anew after the table was analyzed, which reads the catalogue.
	if n := min(buffers(t, conn, free), buffers(t, conn, free), buffers(t, conn, free)); n > 500 {
		t.Errorf("%d buffers were read to count free permits", n)
	}
}
