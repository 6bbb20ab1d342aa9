package workers_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// The connection of a handler of database/sql that returns just before it is abandoned is another user's already, and
// stays intact.
func TestSQLConnectionAbandonedAfterItsRelease(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(ledgertest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	conn, err := workers.AcquireSQL(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	same := conn.Conn()
	conn.Release()
	next, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer next.Release()
	if next.Conn() != same {
		t.Fatal("the pool has made another connection: this proves nothing")
	}
	conn.Abandon()
	if err := next.Ping(t.Context()); err != nil {
		t.Errorf("another user's connection is broken: %v", err)
	}
}
