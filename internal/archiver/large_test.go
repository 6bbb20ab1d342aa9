package archiver_test

import (
	"errors"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

var largeArchive = flag.Int("large-archive", 3000, "number of tasks that TestLargeArchive archives")

// The work of an archive run for a task, its memory, and the time of a look-up in it do not grow with the number of
// archived tasks: also if the statements were planned while no key was archived.
func TestLargeArchive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	began := time.Now()
	const most = 100_000 // in a statement
	days := 0
	for left := *largeArchive; left > 0; left -= most {
		past := began.Add(-100*24*time.Hour + time.Duration(days)*time.Minute)
		if _, err := owner.Exec(t.Context(), day, past, min(left, most), days); err != nil {
			t.Fatal(err)
		}
		days++
	}
	// As after a restore: the planner takes the table of keys for empty.
	if _, err := owner.Exec(t.Context(), "vacuum (analyze) taskledger.archived_key"); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Exec(t.Context(), "vacuum (analyze) taskledger.event"); err != nil {
		t.Fatal(err)
	}
	if err := projector.RebuildTasks(t.Context(), owner, nil); err != nil {
		t.Fatal(err)
	}
	f.Project()
	t.Logf("%d tasks after %s; bytes a task: %s", *largeArchive, time.Since(began).Round(time.Second), f.text(`
		select string_agg(c.relname || ' ' || pg_total_relation_size(c.oid) / $1::bigint, ', ' order by c.relname)
		  from pg_class c
		 where c.relkind = 'r' and c.relname in ('event', 'task') and c.relnamespace = 'taskledger'::regnamespace`,
		*largeArchive))

	db := f.As("archiver")
	dir := archive.Directory(t.TempDir())
	began = time.Now()
	last, lastTasks := began, int64(0)
	// Where /proc is Linux's, the most memory is that from here on.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	r, err := archiver.Run(t.Context(), db, archiver.Options{
		Files: archiver.In(db, dir, dir.String()),
		Progress: func(r archiver.Report) {
			if step := int64(max(*largeArchive/10, 1)); r.Tasks/step > lastTasks/step {
				t.Logf("%d archived after %s, %.0f/s; most memory %d MB", r.Tasks, time.Since(began).Round(time.Second),
					float64(r.Tasks-lastTasks)/time.Since(last).Seconds(), peak())
				last, lastTasks = time.Now(), r.Tasks
			}
		},
	})
	if err != nil || r.Tasks != int64(*largeArchive) {
		t.Fatalf("%+v, %v", r, err)
	}
	t.Logf("%.0f tasks/s", float64(r.Tasks)/time.Since(began).Seconds())
	db.Reset() // a session reports its statistics at its end
	for until := time.Now().Add(time.Minute); f.text(`
		select count(*)::text from pg_stat_activity
		 where datname = current_database() and usename ~ 'archiver'`) != "0"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("a session of the archiver does not end")
		}
	}
	f.want("the run has read few keys", f.text(`
		select (idx_tup_read < 100)::text from pg_stat_user_indexes where indexrelname = 'archived_key_pkey'`), "true")
	t.Log("bytes a key: ", f.text(`select (pg_total_relation_size('taskledger.archived_key') / $1::bigint)::text`,
		*largeArchive))
	lookUp(t, f)
}

// lookUp reads a task of the archive, and looks for a page of keys, as the dispatcher does.
func lookUp(t *testing.T, f *fixture) {
	t.Helper()
	const times = 50
	source := archive.Source{Open: func(place string) (archive.Store, error) { return archive.Directory(place), nil }}
	var shown, known, unknown time.Duration
	for i := range times {
		id := ledger.BizID("order-0-" + strconv.Itoa(i*(*largeArchive)/times%min(*largeArchive, 100_000)+1))
		began := time.Now()
		_, err := ledger.Load(t.Context(), f.DB, ledger.Key{Kind: kind, BizID: id})
		var archived *ledger.ArchivedError
		if !errors.As(err, &archived) {
			t.Fatal(err)
		}
		events, err := source.Events(t.Context(), archived)
		if err != nil || len(events) != 2 {
			t.Fatal(events, err)
		}
		shown += time.Since(began)
		known += look(t, f, "order-0-", 1+i*40, 256)
		unknown += look(t, f, "none-", 1+i*40, 0)
	}
	t.Logf("a task is read in %s; a page of 256 keys is looked up in %s, %s if none is archived", shown/times,
		known/times, unknown/times)
}

// look returns how long it takes to look for 256 keys, of which so many are archived.
func look(t *testing.T, f *fixture, prefix string, from, want int) time.Duration {
	t.Helper()
	began, found := time.Now(), 0
	if err := f.DB.QueryRow(t.Context(), `
		select count(*) from taskledger_internal.archived_keys(array_fill('coupon.send'::text, '{256}'),
		  (select array_agg($1::text || g) from generate_series($2::bigint, $2::bigint + 255) g))`,
		prefix, from).Scan(&found); err != nil || found != want {
		t.Fatal(found, err)
	}
	return time.Since(began)
}

// peak returns the most memory of this process in MB, 0 where /proc is not Linux's.
func peak() int {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.Atoi(fields[0])
	return kilobytes >> 10
}
