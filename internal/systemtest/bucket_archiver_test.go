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
	"github.com/taskledger/taskledger/internal/seal"
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

// Rows of the seal are removed once a bucket contains their tiles. Verification and proofs read the tiles there, and
// name the leaves that need them where no bucket can be opened.
func TestSealIsCutInABucket(t *testing.T) {
	bucketOf := openBucket(t)
	b := servicetest.NewDatabase(t)
	key := ledgertest.Key(t, "coupon.send/waits")
	ledgertest.Enqueue(t, b.DB, key, `{"percent":10}`)
	db, reader := b.As("archiver"), b.As("reader")
	cancel := func(first, last int) {
		t.Helper()
		ledgertest.ExecAsOwner(t, b.DB, `
			insert into taskledger.event (version, attempt, type, shard, kind, biz_id)
			select v.version, 0, v.type::taskledger.event_type, taskledger.shard_of(i::text), 'coupon.send', i::text
			  from generate_series($1::integer, $2::integer) i
			 cross join (values (1, 'enqueued'), (2, 'cancelled')) v(version, type)
			 order by i, v.version`, first, last)
	}
	var kept []seal.Checkpoint
	for _, last := range []int{300, 301} {
		cancel(last%300*300+1, last)
		kept = append(kept, servicetest.Try(seal.Run(t.Context(), db, nil))(t).Checkpoint)
	}
	b.Project()
	ledgertest.ExecAsOwner(t, b.DB, `
		update taskledger.cursor set audited = null, unaudited = 0, unaudited_xor = 0 where reader = 'projector'`)
	report, err := archiver.Run(t.Context(), db,
		archiver.Options{Files: archiver.In(db, bucketOf, bucketOf.String())})
	if err != nil || report.Tasks != 301 || report.Leaves != 601 {
		t.Fatalf("%+v, %v", report, err)
	}
	source := seal.Archive{Open: func(place string) (seal.Objects, error) { return bucket.Open(place, os.Getenv) }}
	verify := func(a seal.Archive) seal.Report {
		t.Helper()
		return servicetest.Try(seal.Verify(t.Context(), reader, &seal.VerifyOptions{Checkpoints: kept, Archive: a}))(t)
	}
	if r := verify(source); !r.IsValid() || len(r.Unchecked) > 0 || len(r.Comparisons) != 2 {
		t.Errorf("%+v", r)
	}
	if r := verify(seal.Archive{}); !r.IsValid() || len(r.Unchecked) == 0 {
		t.Errorf("without the bucket: %+v", r)
	}
	for _, c := range kept {
		events, err := seal.ProveTask(t.Context(), reader, source, key, 0, 1, c)
		if err != nil || len(events) != 1 || events[0].Proof == nil || events[0].Proof.Check(c) != nil {
			t.Errorf("proof for %d leaves: %v, %+v", c.Size, err, events)
		}
	}
	_, err = seal.ProveTask(t.Context(), reader, seal.Archive{}, key, 0, 1, kept[0])
	if unread, ok := errors.AsType[*seal.TilesError](err); !ok || unread.Place != bucketOf.String() {
		t.Errorf("without the bucket: %v", err)
	}
	for _, name := range servicetest.Try(bucketOf.List(t.Context(), "tile/0/"))(t) {
		if err := bucketOf.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if r := verify(source); !r.IsValid() || len(r.Unchecked) == 0 {
		t.Errorf("without tiles: %+v", r)
	}
}
