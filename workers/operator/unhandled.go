package workers

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

// unhandledLook is how many tasks a kind may have for its oldest to be looked for.
const unhandledLook = 1000

// UnhandledKind is a kind whose tasks wait, while no worker that lives handles it.
type UnhandledKind struct {
	Kind    ledger.Kind `json:"kind"`
	Waiting int64       `json:"waiting"` // tasks that are available, as the projection has it
	// OldestMS is how many milliseconds the oldest of them has waited; nil for kinds with more than
	// 1000 tasks in all, where finding it would cost too much.
	OldestMS *int64 `json:"oldest_waiting_ms"`
}

// Late reports whether tasks have waited for longer than a worker takes to be replaced, or may have.
func (u UnhandledKind) Late(limit time.Duration) bool {
	return u.OldestMS == nil || time.Duration(*u.OldestMS)*time.Millisecond > limit
}

// Unhandled returns the kinds, by name, that have available tasks and no live worker for them. It
// costs the same behind ten tasks and behind ten million, grows with the number of kinds, and is as
// late as the projection. It never commits. Errors: [ledger.ErrNotMigrated].
func Unhandled(ctx context.Context, db ledger.DB) ([]UnhandledKind, error) {
	rows, err := db.Query(ctx, unhandledSQL, unhandledLook)
	if err != nil {
		return nil, pgerr.Explain("unhandled kinds", err)
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
		return nil, pgerr.Explain("unhandled kinds", err)
	}
	return all, nil
}
