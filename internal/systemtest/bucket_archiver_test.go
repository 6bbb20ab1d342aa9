package systemtest_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/bucket"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The archive of serve stores tasks in a bucket, whose place is recorded, and a reader opens it there.
func TestArchiverInABucket(t *testing.T) {
	place := openBucket(t).String()
	b := servicetest.NewDatabase(t)
	key := ledgertest.Key(t, "coupon.send/A-1")
	ledgertest.Enqueue(t, b.DB, key, `{"percent":10}`)
	ledgertest.Append(t, b.DB, key, ledger.EventStarted, ledger.EventSucceeded)
	want, err := ledger.History(t.Context(), b.DB, key)
	if err != nil {
		t.Fatal(err)
	}
	b.Project()
	ledgertest.ExecAsOwner(t, b.DB, `
		update taskledger.cursor set audited = null, unaudited = 0, unaudited_xor = 0 where reader = 'projector'`)
	open := func(place string) (archive.Store, error) { return bucket.Open(place, os.Getenv) }
	store, err := open(place)
	if err != nil {
		t.Fatal(err)
	}
	db := b.As("archiver")
	service, err := archiver.New(archiver.Config{DB: db, After: time.Microsecond, Files: archiver.In(db, store, place),
		Logger: b.Logger(slog.LevelInfo)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Start(func(ctx context.Context) error { return service.Run(ctx) })()
	var archived *ledger.ArchivedError
	b.Await("the archiving", func() bool {
		_, err := ledger.Load(t.Context(), b.DB, key)
		return errors.As(err, &archived)
	})
	if !strings.HasPrefix(archived.File, strings.TrimSuffix(place, "/")+"/volumes/tasks-") {
		t.Errorf("recorded in %s, want a volume in %s", archived.File, place)
	}
	events, err := archive.Source{Open: open}.Events(t.Context(), archived)
	if err != nil || len(events) != len(want) || events[2].ID() != want[2].ID() {
		t.Errorf("%v, %v", events, err)
	}
	if _, err := archive.Verify(t.Context(), store, nil); err != nil {
		t.Error(err)
	}
}
