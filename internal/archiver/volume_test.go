package archiver_test

import (
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
	files := archiver.In(db, place)
	before, err := files.Store(t.Context(), []archiver.Task{{Key: key("1"), Version: 3}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := files.Store(t.Context(), []archiver.Task{{Key: key("1"), Version: 3}})
	if err != nil || again != before {
		t.Errorf("the same events are stored as %s and as %s: %v", before, again, err)
	}
	ledgertest.ExecAsOwner(t, f.DB, `
		alter table taskledger.event disable trigger event_append_only;
		delete from taskledger.event where kind = 'coupon.send' and version = 3;
		alter table taskledger.event enable trigger event_append_only`)
	ledgertest.Append(t, f.DB, key("1"), ledger.EventInterrupted, ledger.EventCancelled)
	ledgertest.ExecAsOwner(t, f.DB, `
		alter table taskledger.event disable trigger event_append_only;
		delete from taskledger.event where kind = 'coupon.send' and version = 3;
		update taskledger.event set version = 3 where kind = 'coupon.send' and version = 4;
		alter table taskledger.event enable trigger event_append_only`)
	f.project()
	r, err := archiver.Run(t.Context(), db, archiver.Options{Files: files})
	if err != nil || r.Tasks != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	reader, err := archive.Open(t.Context(), place, r.Files...)
	if err != nil {
		t.Fatal(err)
	}
	history, err := reader.History(t.Context(), key("1"))
	if err != nil || len(history) != 3 || history[2].Type != "cancelled" {
		t.Errorf("%+v, %v", history, err)
	}
}
