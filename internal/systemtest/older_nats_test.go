package systemtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// The storage of NATS comes back as it was before half of 1,000 tasks: it lacks messages of tasks that wait, and has
// those of tasks that are done. Each task has one effect.
func TestOlderStorageOfNATS(t *testing.T) {
	t.Parallel()
	d := newLedger(t)
	dir := t.TempDir()
	server, err := natsserver.Start(natsserver.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	d.nats = server
	d.startServing()
	d.start("parcels", sends)
	const each = 250
	done := 0
	half := func(prefix string) { // parcels are sent, letters wait
		t.Helper()
		var entries []ledger.Entry
		for i := range each {
			id := ledger.BizID(fmt.Sprint(prefix, i))
			entries = append(entries, ledger.Entry{Key: parcel.Key(id)}, ledger.Entry{Key: letter.Key(id)})
		}
		if _, err := ledger.EnqueueMany(t.Context(), d.db, entries); err != nil {
			t.Fatal(err)
		}
		d.enqueued.Add(2 * each)
		done += each
		d.await("the parcels to be sent", func() bool { return d.count(`select count(*) from effect`) == done })
		d.await("all to be published", func() bool { return d.count(`select count(*) from taskledger.outbox`) == 0 })
	}
	half("before-")
	server.Stop()
	store, copied := filepath.Join(dir, "store"), filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	half("after-")
	server.Stop()
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(store, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	d.start("letters", handles(letter, func(*workers.Job) {}))
	d.allDone()
	if n := d.count(`select count(*) from effect`); n != 4*each {
		t.Errorf("%d effects of %d tasks", n, 4*each)
	}
	if n := d.count(`select count(*) from taskledger.event where type = 'released'`); n != 0 {
		t.Errorf("%d tasks were released, want 0", n)
	}
}
