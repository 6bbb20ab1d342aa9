package archiver

import (
	"context"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
)

// In returns files in the archive s at a place, which is recorded with each batch. db reads the events; its login needs
// the role archiver.
func In(db *pgxpool.Pool, s archive.Store, place string) Files {
	if _, ok := s.(archive.Directory); ok {
		if whole, err := filepath.Abs(place); err == nil { // other processes have other working directories
			place = whole
		}
	}
	return store{db, s, place}
}

type store struct {
	db    *pgxpool.Pool
	store archive.Store
	place string
}

// Place implements [Files].
func (s store) Place() string { return s.place }

// CatchUp implements [Files].
func (s store) CatchUp(ctx context.Context) error {
	return archive.CatchUp(ctx, s.db, s.store, func(positions []int64, digests []string) error {
		return archive.EraseSalts(ctx, s.db, positions, digests)
	})
}

// CutSeal implements [Files].
func (s store) CutSeal(ctx context.Context, actor, reason string) (int64, error) {
	return archive.CutSeal(ctx, s.db, s.store, s.place, actor, reason)
}

// Store implements [Files].
func (s store) Store(ctx context.Context, tasks []Task) (string, error) {
	ends := make([]archive.TaskEnd, len(tasks))
	for i, t := range tasks {
		ends[i] = archive.TaskEnd(t)
	}
	volume, err := archive.StoreTasks(ctx, s.db, s.store, ends)
	if err != nil {
		return "", err
	}
	return archive.VolumeAt(s.place, volume), nil
}
