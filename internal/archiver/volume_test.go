package archiver_test

import (
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// A run stores its own events, although the archive contains a volume of the same tasks at the same versions: from
// before the database was restored.
func TestVolumeFromBeforeARestore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	db := f.As("archiver")
	place := archive.Directory(t.TempDir())
	files := archiver.In(db, place, place.String())
	before, err := files.Store(t.Context(), []archiver.Task{{Key: key("1"), Version: 3}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := files.Store(t.Context(), []archiver.Task{{Key: key("1"), Version: 3}})
	if err != nil || again != before {
		t.Errorf("the same events are stored as %s and as %s: %v", before, again, err)
	}
	ledgertest.ExecAsOwner(t, f.DB, `
		alter table taskledger.event disable trigger user;
		delete from taskledger.event where kind = 'coupon.send' and version = 3;
		alter table taskledger.event enable trigger user`)
	ledgertest.Append(t, f.DB, key("1"), ledger.EventInterrupted, ledger.EventCancelled)
	ledgertest.ExecAsOwner(t, f.DB, `
		alter table taskledger.event disable trigger user;
		delete from taskledger.event where kind = 'coupon.send' and version = 3;
		update taskledger.event set version = 3 where kind = 'coupon.send' and version = 4;
		alter table taskledger.event enable trigger user`)
	f.Project()
	r, err := archiver.Run(t.Context(), db, archiver.Options{Files: files})
	if err != nil || r.Tasks != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	reader, err := archive.Open(t.Context(), place, path.Base(r.Files[0]))
	if err != nil {
		t.Fatal(err)
	}
	history, err := reader.History(t.Context(), key("1"))
	if err != nil || len(history) != 3 || history[2].Type != "cancelled" {
		t.Errorf("%+v, %v", history, err)
	}
}

// Keys that were enqueued again after their tasks were archived are in the files twice. An import leaves discarded
// duplicates out, and archived runs that another run has followed, and is refused while a duplicate waits.
func TestImportOfRepeatedKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2", "again", "timed")
	db, worker := f.As("archiver"), ledgertest.As(t, f.DB, "worker")
	place := archive.Directory(t.TempDir())
	store := func() {
		t.Helper()
		f.Project()
		sealed(t, db)
		files := archiver.In(db, place, place.String())
		if r, err := archiver.Run(t.Context(), db, archiver.Options{Files: files}); err != nil || r.Tasks == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	export := func(to archive.Store) {
		t.Helper()
		sealed(t, db)
		if _, err := archive.Export(t.Context(), f.As("reader"), to, nil); err != nil {
			t.Fatal(err)
		}
	}
	store()
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
	ledgertest.Enqueue(t, f.DB, key("2"), `{}`)
	export(place)
	refused := ledgertest.As(t, ledgertest.Pool(t), ledgertest.Owner)
	_, err := archive.Import(t.Context(), refused, place, nil)
	if !errors.Is(err, archive.ErrNotEmpty) || !strings.Contains(err.Error(), "has not ended") {
		t.Error(err)
	}
	claims(t, worker, "1")
	claims(t, worker, "2")
	if _, err := ledger.Enqueue(t.Context(), f.DB, key("timed"), []byte(`{}`),
		&ledger.EnqueueOptions{RunIn: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	f.Schedule()
	f.Await("the end of the duplicate", func() bool { return f.events("timed") == "1 scheduled\n4 discarded" })
	f.want("events", f.events("1"), "1 enqueued\n4 discarded")
	store()                                     // the duplicates, too
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`) // a second duplicate
	claims(t, worker, "1")
	f.want("events", f.events("1"), "1 enqueued\n5 discarded")
	again, err := ledger.Enqueue(t.Context(), f.DB, key("again"), []byte(`{}`),
		&ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun})
	if err != nil || !again.New {
		t.Fatalf("%+v, %v", again, err)
	}
	export(place)
	report, err := archive.Verify(t.Context(), place, nil)
	if err != nil || report.Unproved > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	imports := func(from archive.Store, leftOut int64) fixture {
		t.Helper()
		target := newFixture(t)
		done, err := archive.Import(t.Context(), ledgertest.As(t, target.DB, ledgertest.Owner), from, nil)
		if err != nil || done.LeftOut != leftOut {
			t.Fatalf("%+v, %v", done, err)
		}
		archiverOf := target.As("archiver")
		sealed(t, archiverOf)
		if r, err := seal.Verify(t.Context(), target.As("reader"), nil); err != nil || !r.IsValid() {
			t.Errorf("%+v, %v", r, err)
		}
		ledgertest.Check(t, target.DB)
		target.want("run again", target.events("again"), "1 enqueued\n4 discarded\n5 enqueued")
		return *target
	}
	target := imports(place, 11)
	for _, id := range []string{"1", "2", "timed"} {
		target.want("archived", target.events(id), "1 enqueued\n2 started\n3 succeeded")
	}
	alone := archive.Directory(t.TempDir()) // without the volumes of archived tasks
	export(alone)
	target = imports(alone, 0)
	target.want("duplicate", target.events("1"), "1 enqueued\n5 discarded")
}

// sealed seals all events.
func sealed(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	if _, err := seal.Run(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
}
