package projection

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/rebuild"
)

var (
	//go:embed sql/reset.sql
	resetSQL string
	//go:embed sql/reset_counts.sql
	resetCountsSQL string
)

// Reset empties the tables of the built-in projection, before a runner begins again at the first event. It requests
// that the tables of subscribers be rebuilt; the old ones can be read until then. The caller moves the cursors in the
// same transaction. It needs the owner of the tables.
func Reset(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{resetSQL, resetCountsSQL} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return pgerr.Explain("empty the projections", err)
		}
	}
	return rebuild.InvalidateAll(ctx, tx)
}
