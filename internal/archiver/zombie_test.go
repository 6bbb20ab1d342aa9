package archiver_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A snapshot that was taken during a run sees a task that the run removes, also an event of it that a worker has read
// before another worker finished the task. The worker cannot append to that event.
func TestZombieWithSnapshotFromDuringTheRun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		append func(t *testing.T, f *fixture, tx pgx.Tx) error
	}{
		{"Append", func(t *testing.T, _ *fixture, tx pgx.Tx) error {
			t.Helper()
			_, err := ledger.Append(t.Context(), tx, ledgertest.Request(key("1"), 2, ledger.EventSucceeded))
			return err
		}},
		{"AppendEach", func(t *testing.T, _ *fixture, tx pgx.Tx) error {
			t.Helper()
			return ledger.AppendEach(t.Context(), tx, []ledger.AppendRequest{
				ledgertest.Request(key("1"), 2, ledger.EventSucceeded),
			})[0].Err
		}},
		{"SQL", func(t *testing.T, _ *fixture, tx pgx.Tx) error {
			t.Helper()
			_, err := tx.Exec(t.Context(), `select taskledger.finish('coupon.send', '1', 2)`)
			return err
		}},
		{"append_event", func(t *testing.T, _ *fixture, tx pgx.Tx) error {
			t.Helper()
			_, err := tx.Exec(t.Context(),
				`select taskledger_internal.append_event('coupon.send', '1', 2, 'succeeded', 'w', null)`)
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
			ledgertest.Append(t, f.DB, key("1"), ledger.EventStarted, ledger.EventSucceeded)
			f.Project()
			db := f.As("archiver")
			run := f.begin(db)
			stale := servicetest.Try(f.DB.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
			defer func() { _ = stale.Rollback(context.WithoutCancel(t.Context())) }()
			var n int
			if err := stale.QueryRow(t.Context(), `select count(*) from taskledger.event`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			f.removeOne(db, run, "1", 3)
			err := test.append(t, f, stale)
			if err == nil {
				err = stale.Commit(t.Context())
			}
			f.want("events after "+errorText(err), f.events("1"), "")
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// rower is a pool or a transaction.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// begin begins a run that waits for nothing anymore.
func (f *fixture) begin(db rower) (run int64) {
	f.T.Helper()
	err := db.QueryRow(f.Context(), `select run::bigint from taskledger_internal.begin_archive('0', null)`).Scan(&run)
	if err != nil {
		f.T.Fatal(err)
	}
	f.Await("older transactions", func() bool {
		var n int
		err := db.QueryRow(f.Context(), `select count(*) from taskledger_internal.archive_waits($1::bigint::integer)`,
			run).Scan(&n)
		return err == nil && n == 0
	})
	return run
}

// removeOne removes a task of kind coupon.send.
func (f *fixture) removeOne(db rower, run int64, id string, version int) {
	f.T.Helper()
	var n int
	err := db.QueryRow(f.Context(), `select tasks from taskledger_internal.remove_tasks($1::bigint::integer,
		'{coupon.send}', array[$2], array[$3::bigint::integer], null, null, null)`, run, id, version).Scan(&n)
	if err != nil || n != 1 {
		f.T.Fatal(n, err)
	}
}

// A statement of a zombie waits for the removal of the event after the one that it has read, and appends nothing then.
func TestZombieWaitsForTheRemoval(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	zombies := map[string]ledger.AppendRequest{}
	for _, id := range []string{"1", "2", "3"} {
		ledgertest.Enqueue(t, f.DB, key(id), `{}`)
		ledgertest.Append(t, f.DB, key(id), ledger.EventStarted)
		zombies[id] = f.read(id)
		ledgertest.Append(t, f.DB, key(id), ledger.EventSucceeded)
	}
	f.Project()
	db := f.As("archiver")
	run := f.begin(db)
	for id, appends := range map[string]func(*pgxpool.Pool) error{
		"1": func(db *pgxpool.Pool) error {
			_, err := ledger.Append(t.Context(), db, ledgertest.Request(key("1"), 2, ledger.EventSucceeded))
			return err
		},
		"2": func(db *pgxpool.Pool) error {
			tx, err := ledger.Begin(t.Context(), db, &ledger.TxOptions{Guard: true})
			if err == nil {
				_, err = tx.AppendAndCommit(t.Context(), zombies["2"])
			}
			return err
		},
		"3": func(db *pgxpool.Pool) error {
			tx, err := ledger.Begin(t.Context(), db, &ledger.TxOptions{Guard: true})
			if err == nil {
				_, err = tx.AppendAndCommit(t.Context(), ledgertest.Request(key("3"), 2, ledger.EventSucceeded))
			}
			return err
		},
	} {
		removal := servicetest.Try(db.Begin(t.Context()))(t)
		f.removeOne(removal, run, id, 3)
		ended := make(chan error, 1)
		go func() { ended <- appends(f.DB) }()
		time.Sleep(2 * time.Second)
		if err := removal.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		f.want("events of "+id+" after "+errorText(err), f.events(id), "")
	}
}
