package feed

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// Adopt makes the feed valid for events that tx has inserted into an empty ledger with positions of another database.
// All readers begin again at the first event, and the past before tx is read in the order of positions. The caller
// holds a lock on the table event that keeps other writers out until tx ends.
func Adopt(ctx context.Context, tx pgx.Tx) error {
	begin := Beginning()
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{rebaseLockSQL, nil}, {rebaseSequencesSQL, nil},
		{rebaseCursorsSQL, []any{begin.Snapshot, int64(begin.Top), begin.Bound}}, {rebaseFloorSQL, nil},
		{rebaseMomentsSQL, nil},
	} {
		if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
			return pgerr.Explain("adopt events", err)
		}
	}
	return nil
}
