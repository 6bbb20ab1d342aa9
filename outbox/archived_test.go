package outbox_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/servicetest"
)

// directories is the archive, in directories.
var directories = archive.Source{
	Open: func(place string) (archive.Store, error) { return archive.Directory(place), nil },
}

// archiveFinished archives all finished tasks to a directory, "" for none, whatever subscribers have read.
func archiveFinished(t *testing.T, pool *pgxpool.Pool, place string) {
	t.Helper()
	b := servicetest.NewDatabaseOn(t, pool)
	b.Project()
	db := b.As("archiver")
	o := archiver.Options{Hold: time.Nanosecond}
	if place != "" {
		o.Files = archiver.In(db, archive.Directory(place), place)
	}
	if r, err := archiver.Run(t.Context(), db, o); err != nil || r.Tasks == 0 || r.Held > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}
