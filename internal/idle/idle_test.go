package idle_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/idle"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A transaction in progress is a reason even if none that began later has ended, as in a database that is otherwise
// quiet: a snapshot does not name it then.
func TestNewestTransactionIsSeen(t *testing.T) {
	t.Parallel()
	postgres := ledgertest.Cluster(t, nil)
	address := postgres.URL(ledgertest.Database)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	db, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	reason := func() string {
		t.Helper()
		state, err := idle.Look(t.Context(), db, idle.Readers{})
		if err != nil {
			t.Fatal(err)
		}
		return state.Reason
	}
	if got := reason(); got == "" {
		t.Error("the transaction is not seen")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := reason(); got != "" {
		t.Errorf("after its end: %s", got)
	}
}
