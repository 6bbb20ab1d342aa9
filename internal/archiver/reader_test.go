package archiver_test

import (
	"context"
	"testing"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// storing calls itself while a run stores tasks.
type storing func()

func (s storing) Store(context.Context, []archiver.Task) (string, error) {
	s()
	return "volume", nil
}

func (storing) Place() string { return "" }

func (storing) CatchUp(context.Context) error { return nil }

func (storing) CutSeal(context.Context, string, string) (int64, error) { return 0, nil }

// A seal that begins while a run stores the tasks that it has chosen holds them.
func TestSealBeginsDuringTheRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	f.Project()
	db := f.As("archiver")
	r, err := archiver.Run(t.Context(), db, archiver.Options{Files: storing(func() {
		if _, err := feed.Open(t.Context(), db, feed.SealReader, nil); err != nil {
			t.Error(err)
		}
	})})
	if err != nil || r.Tasks != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A task that is removed while the projection is rebuilt would stay in the new tables.
func TestRebuildBeginsDuringTheRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2", "3")
	f.Project()
	db, owner := f.As("archiver"), ledgertest.As(t, f.DB, ledgertest.Owner)
	run := f.begin(db)
	isRemoved := false
	err := projector.RebuildTasks(t.Context(), owner, &projector.RebuildOptions{Progress: func(int64, int64) {
		if isRemoved {
			return
		}
		isRemoved = true
		if _, err := db.Exec(t.Context(), `select tasks from taskledger_internal.remove_tasks($1::bigint::integer,
			'{coupon.send,coupon.send,coupon.send}', '{1,2,3}', '{3,3,3}', null, null, null)`, run); err != nil {
			t.Error(err)
		}
	}})
	if err != nil || !isRemoved {
		t.Fatal(err)
	}
	verify := func() {
		t.Helper()
		f.Project()
		report := servicetest.Try(projector.Verify(t.Context(), f.As("reader"), nil))(t)
		if len(report.Differences) > 0 {
			t.Errorf("%v", report.Differences)
		}
	}
	verify()
	f.archive()
	f.want("tasks", f.text(`select biz_id from taskledger.task where kind = $1`, kind), "")
	verify()
}
