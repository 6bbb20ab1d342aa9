package archiver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The state of the archive contains what a reader holds until a run has removed it, and runs that have not ended.
func TestState(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	db := f.As("archiver")
	read := func() archiver.State {
		t.Helper()
		s, err := archiver.ReadState(t.Context(), f.As("reader"))
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		return *s
	}
	if s, err := archiver.ReadState(t.Context(), f.As("reader")); s != nil || err != nil {
		t.Errorf("before the first run: %+v, %v", s, err)
	}
	f.finish("1", "2")
	held, err := archiver.Run(t.Context(), db, archiver.Options{})
	if err != nil || held.Held != 2 {
		t.Fatalf("%+v, %v", held, err)
	}
	s := read()
	if s.Held != 2 || s.HeldBy != "projector" || !s.HeldSince.Equal(held.HeldSince) || s.HeldSince.After(s.Cutoff) ||
		time.Since(s.HeldSince) > time.Hour || !s.UnfinishedSince.IsZero() || !s.RemovedAt.IsZero() {
		t.Errorf("held: %+v", s)
	}
	failed := errors.New("disk full")
	f.Project()
	_, err = archiver.Run(t.Context(), db, archiver.Options{Files: brokenFiles{err: failed}})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if s := read(); s.UnfinishedSince.IsZero() || s.Held != 2 {
		t.Errorf("after a run that failed: %+v", s)
	}
	f.archive()
	if s := read(); s.Held != 0 || s.Tasks != 2 || !s.HeldSince.IsZero() || !s.UnfinishedSince.IsZero() ||
		s.RemovedAt.IsZero() || s.EndedAt.IsZero() {
		t.Errorf("after the removal: %+v", s)
	}
}

// Old runs are forgotten, but for the latest cutoff, before which minutes may be merged, and each place of files. An
// erasure looks in the place of a killed run.
func TestOldRunsAreForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	begin := func(olderThan, place string) {
		t.Helper()
		_, err := owner.Exec(t.Context(), `
			select taskledger_internal.begin_archive($1::interval, nullif($2, ''))
			  from generate_series(1, case $2 when 'b' then 1100 else 1 end)`, olderThan, place)
		if err != nil {
			t.Fatal(err)
		}
	}
	begin("1 day", "a")
	begin("0", "")
	begin("2 days", "")
	before := f.text(`select taskledger_internal.archived_before()::text`)
	begin("1 day", "b")
	f.want("before", f.text(`select taskledger_internal.archived_before()::text`), before)
	f.want("places", f.text(`
		select string_agg(p.place, ' ' order by p.place) from taskledger_internal.archive_places() p`), "a b")
	f.want("runs", f.text(`select string_agg(r.id::text, ' ' order by r.id) from taskledger.archive_run r
		where r.id < 105`), "1 2 103 104")
}

// brokenFiles stores nothing.
type brokenFiles struct {
	err error
	files
}

func (f brokenFiles) Store(context.Context, []archiver.Task) (string, error) { return "", f.err }
