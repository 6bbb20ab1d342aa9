package archiver

import (
	"context"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/ledger"
)

// In returns files in an archive. db reads the events; its login needs the role archiver.
func In(db ledger.DB, s archive.Store) Files { return store{db, s} }

type store struct {
	db    ledger.DB
	store archive.Store
}

// Store implements [Files].
func (s store) Store(ctx context.Context, tasks []Task) (string, error) {
	ends := make([]archive.TaskEnd, len(tasks))
	for i, t := range tasks {
		ends[i] = archive.TaskEnd(t)
	}
	return archive.StoreTasks(ctx, s.db, s.store, ends)
}
