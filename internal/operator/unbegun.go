package operator

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/unbegun.sql
var unbegunSQL string

// UnbegunKind is a kind with live workers that have not begun its oldest tasks.
type UnbegunKind struct {
	Kind    ledger.Kind `json:"kind"`
	Waiting int64       `json:"waiting"` // available tasks
	Late    int64       `json:"late"`    // tasks that have been available for too long
	// OldestAt is when the oldest available task became available. It is zero for kinds with more than 1000 tasks in
	// all, where finding it would cost too much.
	OldestAt time.Time `json:"oldest_waiting_at,omitzero"`
}

// ReadUnbegun returns the kinds, by name, with live workers and tasks that have been available for longer than limit,
// except paused kinds. The reason does not matter, nor whether a worker holds the tasks.
//
// It reads the projection, and the events newer than limit, backwards until it has seen every available task. So its
// cost does not grow with the number of tasks. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadUnbegun(ctx context.Context, db ledger.DB, limit time.Duration) ([]UnbegunKind, error) {
	rows, err := db.Query(ctx, unbegunSQL, limit.Milliseconds(), int64(maxTasksForAge))
	if err != nil {
		return nil, pgerr.Explain("read kinds that are not begun", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u UnbegunKind, err error) {
		err = row.Scan((*string)(&u.Kind), &u.Waiting, &u.Late, pgquery.Micros(&u.OldestAt))
		return u, err
	})
	return all, pgerr.Explain("read kinds that are not begun", err)
}
