package projector

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/rebuild"
)

//go:embed sql/reset.sql
var resetSQL string

// Reset empties the tables of the built-in projection, before a runner begins again at the first event. It requests
// that the tables of subscribers be rebuilt; the old ones can be read until then. The caller moves the cursors in the
// same transaction. It needs the owner of the tables.
func Reset(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, resetSQL); err != nil {
		return pgerr.Explain("empty the projections", err)
	}
	return rebuild.InvalidateAll(ctx, tx)
}
