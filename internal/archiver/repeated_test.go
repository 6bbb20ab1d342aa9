package archiver_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/erasure"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// An enqueue does not know that its key is archived, so a duplicate begins with version 1 again, until it ends with the
// version after the archived ones. Position and ID distinguish them: each of the table, the files, the seal, a
// history, a replay and a subscriber has both, once, with the args of each, while the duplicate waits, once it is
// discarded, and once it is archived. An erasure erases both.
func TestRepeatedVersionIsToldApart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	place := filepath.Join(t.TempDir(), "archive")
	ledgertest.Enqueue(t, f.DB, key("1"), `{"n":1}`)
	ledgertest.Append(t, f.DB, key("1"), ledger.EventStarted, ledger.EventSucceeded)
	want := f.all()
	kept := []seal.Checkpoint{f.seal()}
	f.archiveAll(place)
	follows := f.open("follows")
	follows.read(-1)
	steps := []func(){
		func() { ledgertest.Enqueue(t, f.DB, key("1"), `{"n":2}`) },
		func() { claims(t, ledgertest.As(t, f.DB, "worker"), "1") },
		func() { f.archiveAll(place) },
	}
	for i, step := range steps {
		step()
		if i < 2 {
			want = append(want, f.all()[i])
			kept = append(kept, f.seal())
		}
		check := func(what string, got []ledger.Event) {
			t.Helper()
			if diff := difference.Of(want, withoutActs(got)); diff != "" {
				t.Errorf("step %d, %s: %s", i, what, diff)
			}
		}
		follows.read(-1)
		check("subscriber", follows.got)
		begins := f.open(fmt.Sprint("begins-", i))
		begins.read(-1)
		check("new subscriber", begins.got)
		r, replayed := ledger.Range{}, []ledger.Event(nil)
		past.AddTo(&r)
		for e, err := range ledger.Events(t.Context(), f.DB, r) {
			if err != nil {
				t.Fatal(err)
			}
			replayed = append(replayed, e)
		}
		check("replay", replayed)
		f.wantSealed(kept, place)
		if r := servicetest.Try(projector.Verify(t.Context(), f.As("reader"), nil))(t); len(r.Differences) > 0 {
			t.Errorf("step %d: %v", i, r.Differences)
		}
	}
	ids := make(map[string]bool)
	for _, e := range want {
		ids[e.ID()] = true
	}
	if len(want) != 5 || len(ids) != 5 || want[3].Version != 1 || want[4].Version != 4 {
		t.Errorf("%v", want)
	}

	a := f.archived("1")
	history := servicetest.Try(past.Events(t.Context(), a))(t)
	if diff := difference.Of(want, history); diff != "" {
		t.Error(diff)
	}
	task := servicetest.Try(archive.Task(a, history))(t)
	if task.State != ledger.StateSucceeded || task.Version != 3 || string(task.Args) != `{"n":1}` {
		t.Errorf("%+v", task)
	}
	if n := f.text(`select string_agg(t.state || ' ' || t.tasks, ', ' order by t.state)
		from taskledger_internal.archived_totals() t where t.kind = $1`, kind); n != "succeeded 1, discarded 1" {
		t.Errorf("archived: %s", n)
	}
	servicetest.Try(erasure.Erase(t.Context(), f.As("archiver"),
		erasure.Options{Keys: []ledger.Key{key("1")}, Reason: "request", Open: openDirectory}))(t)
	for _, e := range servicetest.Try(past.Events(t.Context(), f.archived("1")))(t) {
		if e.Data != nil {
			t.Errorf("not erased: %+v", e)
		}
	}
	f.wantSealed(kept, place)
}

// wantSealed checks that the seal and an archive are those of the checkpoints.
func (f *fixture) wantSealed(kept []seal.Checkpoint, place string) {
	f.T.Helper()
	sealed := servicetest.Try(seal.Verify(f.Context(), f.As("reader"), &seal.VerifyOptions{Checkpoints: kept}))(f.T)
	if !sealed.IsValid() || len(sealed.Unchecked) > 0 || len(sealed.Comparisons) != len(kept) {
		f.T.Errorf("%+v", sealed)
	}
	if r, err := archive.Verify(f.Context(), archive.Directory(place), nil); err != nil || r.Unproved > 0 {
		f.T.Errorf("%+v, %v", r, err)
	}
}

// BenchmarkArchivedKeys compares an enqueue with the look-up of its key among 1,000,000 archived ones, a thousand keys
// in a statement each, as the dispatcher does it.
func BenchmarkArchivedKeys(b *testing.B) {
	const keys, batch = 1_000_000, 1000
	app := ledgertest.Pool(b)
	ledgertest.ExecAsOwner(b, app, fmt.Sprintf(`
		select setval('taskledger.archived_until', 1);
		insert into taskledger.archive_batch (run, tasks, total, events, positions_xor, first_position, last_position,
		                                      last_xid, is_sealed, kind, state)
		values (1, %[1]d, %[1]d, 1, 0, 1, 1, '3', false, '%[2]s', 'succeeded');
		insert into taskledger.archived_key (hash, rest, version, batch)
		select taskledger_internal.key_hash('%[2]s', 'old-' || i), taskledger_internal.key_rest('%[2]s', 'old-' || i),
		       3, 1
		  from generate_series(1, %[1]d) i`, keys, kind))
	ledgertest.ExecAsOwner(b, app, `vacuum (analyze) taskledger.archived_key`)
	owner := ledgertest.As(b, app, ledgertest.Owner)
	var enqueues, looks time.Duration
	for n := 0; b.Loop(); n++ {
		entries, kinds, ids := make([]ledger.Entry, batch), make([]string, batch), make([]string, batch)
		for i := range entries {
			kinds[i], ids[i] = kind, fmt.Sprintf("new-%d-%d", n, i)
			entries[i].Key = key(ids[i])
		}
		began := time.Now()
		if _, err := ledger.EnqueueMany(b.Context(), app, entries); err != nil {
			b.Fatal(err)
		}
		enqueues += time.Since(began)
		began = time.Now()
		var found int
		err := owner.QueryRow(b.Context(), `
			select count(*) from taskledger_internal.archived_keys($1, $2)`, kinds, ids).Scan(&found)
		if err != nil || found > 0 {
			b.Fatal(found, err)
		}
		looks += time.Since(began)
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(b.N*batch) }
	b.ReportMetric(micros(enqueues), "µs/enqueue")
	b.ReportMetric(micros(looks), "µs/look-up")
	b.ReportMetric(0, "ns/op")
}
