package archiver_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/smalldisk"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/ledger/periodic"
	"github.com/taskledger/taskledger/outbox"
)

// A successor and a schedule whose previous tasks are archived before the scheduler has seen their ends go on, as if
// they were in the tables. A wait for an archived task ends with its state. It cannot be named as a predecessor.
func TestReferencesToArchivedTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := periodic.Apply(t.Context(), ledgertest.As(t, f.DB, "operator", "producer"),
		[]periodic.Schedule{{Name: "tick", Kind: "tick.run", FixedDelay: time.Second}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	fire := func(ctx context.Context) error { return periodic.Run(ctx, owner, f.Logger(slog.LevelInfo)) }
	stop := f.Start(fire)
	tick := ledger.Key{Kind: "tick.run"}
	f.Await("the first firing", func() bool {
		tick.BizID = ledger.BizID(servicetest.One[string](f, `
			select coalesce(max(biz_id), '') from taskledger.event where kind = 'tick.run'`))
		return tick.BizID != ""
	})
	stop()
	for _, id := range []string{"1", "2"} {
		ledgertest.Enqueue(t, f.DB, key(id), `{}`)
		_, err := ledger.Enqueue(t.Context(), f.DB, key("after-"+id), nil,
			&ledger.EnqueueOptions{After: []ledger.Key{key(id)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []ledger.Key{key("1"), tick} {
		ledgertest.Append(t, f.DB, k, ledger.EventStarted, ledger.EventSucceeded)
	}
	ledgertest.Append(t, f.DB, key("2"), ledger.EventCancelled)
	if r := f.archive(); r.Tasks != 3 {
		t.Fatalf("%+v", r)
	}
	f.Schedule()
	f.Start(fire)
	f.AwaitState(key("after-1"), ledger.StateAvailable)
	f.AwaitState(key("after-2"), ledger.StateCancelled)
	f.Await("the next firing", func() bool {
		return servicetest.One[bool](f, `select exists (
			select from taskledger.event where kind = 'tick.run' and biz_id <> $1::text)`, string(tick.BizID))
	})

	w, err := outbox.NewWaiter(outbox.WaiterConfig{DB: f.As("subscriber"), PollEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	task, err := ledger.Wait(f.Context(), w, key("1"))
	if err != nil || task.State != ledger.StateSucceeded || task.ArchivedAt.IsZero() {
		t.Errorf("a wait for an archived task: %+v, %v", task, err)
	}
	_, err = ledger.Enqueue(t.Context(), f.DB, key("late"), nil, &ledger.EnqueueOptions{After: []ledger.Key{key("1")}})
	if err == nil || !strings.Contains(err.Error(), `invalid after "coupon.send/1": must be an existing task`) {
		t.Errorf("an archived predecessor: %v", err)
	}
}

// The database was recovered to a moment between the file of a run and the removal, or restored from before the run: an
// archive contains tasks that the tables contain, too. The tables win. Readers get each event once, a key exists, and
// the next run removes the tasks with the same file.
func TestTablesWinOverFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	want := f.all()
	f.Project()
	place := t.TempDir()
	db := f.As("archiver")
	files := archiver.In(db, archive.Directory(place), place)
	stored, err := files.Store(t.Context(), []archiver.Task{{Key: key("1"), Version: 3}, {Key: key("2"), Version: 3}})
	if err != nil {
		t.Fatal(err)
	}
	r := f.open("coupons")
	r.read(-1)
	f.wantEvents(r.got, want)
	e, err := ledger.Enqueue(t.Context(), f.DB, key("1"), json.RawMessage(`{}`), nil)
	if err != nil || e.New || e.Archived || e.State != ledger.StateSucceeded {
		t.Errorf("%+v, %v", e, err)
	}
	report, err := archiver.Run(t.Context(), db, archiver.Options{Files: files, Hold: time.Nanosecond})
	if err != nil || report.Tasks != 2 || len(report.Files) != 1 || report.Files[0] != stored {
		t.Fatalf("%+v, %v; stored as %s", report, err, stored)
	}
	r.reopen("coupons")
	if r.read(-1); len(withoutActs(r.got)) != len(want) {
		t.Errorf("after the run: %v", r.got)
	}
	again := f.open("begins")
	again.read(-1)
	f.wantEvents(again.got, want)
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
	if n := claims(t, ledgertest.As(t, f.DB, "worker"), "1"); n != 0 {
		t.Errorf("%d claims of an archived key", n)
	}
}

// While the archive's disk is full, a run fails and removes nothing. With space again it finishes.
func TestFullDiskKeepsTheTasks(t *testing.T) {
	t.Parallel()
	const disk = 1 << 20
	place := smalldisk.Mount(t, disk)
	f := newFixture(t)
	f.finish("1", "2")
	want := f.all()
	f.Project()
	filler := filepath.Join(place, "filler")
	if err := os.WriteFile(filler, make([]byte, 2*disk), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	db := f.As("archiver")
	o := archiver.Options{Files: archiver.In(db, archive.Directory(place), place)}
	if r, err := archiver.Run(t.Context(), db, o); !errors.Is(err, syscall.ENOSPC) || r.Tasks != 0 {
		t.Errorf("on a full disk: %+v, %v", r, err)
	}
	f.wantEvents(f.all(), want)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if r, err := archiver.Run(t.Context(), db, o); err != nil || r.Tasks != 2 {
		t.Errorf("with space: %+v, %v", r, err)
	}
	if _, err := archive.Verify(t.Context(), archive.Directory(place), nil); err != nil {
		t.Error(err)
	}
}
