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
	Late    int64       `json:"late"`    // those that have been available for too long
	// OldestAt is when the oldest of them became available. It is zero for kinds with more than 1000 tasks in all,
	// where finding it would cost too much.
	OldestAt time.Time `json:"oldest_waiting_at,omitzero"`
}

// ReadUnbegun returns the kinds, by name, with live workers and tasks that have been available for longer than limit,
// except paused kinds. It does not matter why no worker begins them, or whether one holds them. It
// reads the projection, and of the events those that are newer than limit, as far back as it takes to meet all tasks
// that are available; so its cost does not grow with the number of tasks. It never commits.
// Errors: [ledger.ErrNotMigrated].
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
