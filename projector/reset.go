package projector

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/reset.sql
var resetSQL string

// Reset empties the projections of tasks and counts, and the record of illegal events, before the projector begins
// again at the first event. The caller moves the cursor in the same transaction. It needs the owner of the tables.
func Reset(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, resetSQL)
	return pgerr.Explain("empty the projections", err)
}
