package archiver_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
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
	f.project()
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

// A key that was enqueued again after its task was archived is in the files with two versions 1. The error of the
// import names it, and nothing is changed.
func TestImportOfARepeatedKeyIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	f.project()
	db := f.As("archiver")
	place := archive.Directory(t.TempDir())
	files := archiver.In(db, place, place.String())
	if r, err := archiver.Run(t.Context(), db, archiver.Options{Files: files}); err != nil || r.Tasks != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
	claims(t, ledgertest.As(t, f.DB, "worker"), "1")
	f.want("events", f.events("1"), "1 enqueued\n4 discarded")
	if _, err := archive.Export(t.Context(), f.As("reader"), place, nil); err != nil {
		t.Fatal(err)
	}
	target := ledgertest.Pool(t)
	_, err := archive.Import(t.Context(), ledgertest.As(t, target, ledgertest.Owner), place, nil)
	if !errors.Is(err, archive.ErrNotEmpty) || !strings.Contains(err.Error(), "(coupon.send, 1, 1)") {
		t.Error(err)
	}
	var n int
	if err := target.QueryRow(t.Context(), "select count(*) from taskledger.event").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d events, %v", n, err)
	}
}
