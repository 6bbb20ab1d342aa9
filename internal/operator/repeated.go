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

var (
	//go:embed sql/repeated.sql
	repeatedSQL string
	//go:embed sql/snoozed.sql
	snoozedSQL string
)

// MaxRepeated is the greatest number of tasks that [ReadRepeated] and [ReadSnoozed] return.
const MaxRepeated = 100

// RepeatedTask is a task on which work is repeated in vain.
type RepeatedTask struct {
	Key   ledger.Key `json:"key"`
	Times int        `json:"times"` // in a row
	Since time.Time  `json:"since"`
	Error string     `json:"error,omitempty"` // of the last attempt
}

// ReadRepeated returns the tasks whose attempts live workers repeat without an event, see package workers. It never
// commits. Errors: [ledger.ErrNotMigrated].
func ReadRepeated(ctx context.Context, db ledger.DB) ([]RepeatedTask, error) {
	return readRepeated(ctx, db, "read repeated attempts", repeatedSQL, func(t *RepeatedTask) []any {
		return []any{(*string)(&t.Key.Kind), (*string)(&t.Key.BizID), &t.Times, pgquery.Micros(&t.Since), &t.Error}
	})
}

// ReadSnoozed returns the tasks whose handlers have snoozed them five times or more in a row for less than a second,
// among the newest 100 such snoozes. Since is the time of the last one. It never commits. Errors:
// [ledger.ErrNotMigrated].
func ReadSnoozed(ctx context.Context, db ledger.DB) ([]RepeatedTask, error) {
	return readRepeated(ctx, db, "read repeated snoozes", snoozedSQL, func(t *RepeatedTask) []any {
		return []any{(*string)(&t.Key.Kind), (*string)(&t.Key.BizID), &t.Times, pgquery.Micros(&t.Since)}
	})
}

func readRepeated(
	ctx context.Context, db ledger.DB, op, sql string, columns func(*RepeatedTask) []any,
) ([]RepeatedTask, error) {
	rows, err := db.Query(ctx, sql, int64(MaxRepeated))
	if err != nil {
		return nil, pgerr.Explain(op, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t RepeatedTask, err error) {
		return t, row.Scan(columns(&t)...)
	})
	return all, pgerr.Explain(op, err)
}
