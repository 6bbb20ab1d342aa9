package operator

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/unhandled.sql
var unhandledSQL string

// maxTasksForAge is how many tasks a kind may have for the age of its oldest task to be read.
const maxTasksForAge = 1000

// UnhandledKind is a kind with waiting tasks and no live worker.
type UnhandledKind struct {
	Kind    ledger.Kind `json:"kind"`
	Waiting int64       `json:"waiting"` // tasks that are available, or were running in a lost worker
	// OldestMS is how many milliseconds the oldest waiting task has waited. It is nil for kinds with more than 1000
	// tasks in all, where finding it would cost too much.
	OldestMS *int64 `json:"oldest_waiting_ms"`
	IsDue    bool   `json:"-"` // the condition kind_unhandled holds for the kind; only reports of health set it
}

// Late reports whether the oldest task has waited longer than limit, or its age is unknown.
func (u UnhandledKind) Late(limit time.Duration) bool {
	return u.OldestMS == nil || time.Duration(*u.OldestMS)*time.Millisecond > limit
}

// ReadUnhandled returns the kinds, by name, that have available or running tasks and no live worker. It reads the
// projection. Its cost grows with the number of kinds, not with the number of tasks. It never commits.
// Errors: [ledger.ErrNotMigrated].
func ReadUnhandled(ctx context.Context, db ledger.DB) ([]UnhandledKind, error) {
	rows, err := db.Query(ctx, unhandledSQL, int64(maxTasksForAge))
	if err != nil {
		return nil, pgerr.Explain("read unhandled kinds", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u UnhandledKind, err error) {
		var ms int64
		err = row.Scan((*string)(&u.Kind), &u.Waiting, &ms)
		if ms >= 0 {
			u.OldestMS = &ms
		}
		return u, err
	})
	if err != nil {
		return nil, pgerr.Explain("read unhandled kinds", err)
	}
	return all, nil
}
