package projection

import (
	"context"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/rebuild"
	"github.com/taskledger/taskledger/ledger"
)

// ReadWork returns the rebuild of the built-in projection that is under way, or was the last; nil: none. It never
// commits. Errors: [ledger.ErrNotMigrated].
func ReadWork(ctx context.Context, db ledger.DB) (*rebuild.Work, error) {
	state, _, err := rebuild.Read(ctx, db, feed.ProjectorReader)
	return state.Work, err
}
