package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/taskledger/taskledger/ledger"
)

// recordingDB records the statements of its queries.
type recordingDB struct {
	ledger.DB
	statements []string
}

func (db *recordingDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	db.statements = append(db.statements, sql)
	return db.DB.Query(ctx, sql, args...)
}

// await polls until done returns true. It fails the test after 30 seconds.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
