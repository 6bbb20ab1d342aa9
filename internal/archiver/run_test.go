package archiver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/internal/archiver"
	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

const kind = "coupon.send"

// fixture is a ledger whose projection follows on request.
type fixture struct {
	*servicetest.Bundle
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{servicetest.NewDatabase(t)}
}

// finish enqueues tasks of kind coupon.send, and records that they have succeeded.
func (f *fixture) finish(ids ...string) {
	f.T.Helper()
	for _, id := range ids {
		ledgertest.Enqueue(f.T, f.DB, key(id), `{}`)
		ledgertest.Append(f.T, f.DB, key(id), ledger.EventStarted, ledger.EventSucceeded)
	}
}

func key(id string) ledger.Key { return ledger.Key{Kind: kind, BizID: ledger.BizID(id)} }

// archive archives all finished tasks.
func (f *fixture) archive() archiver.Report {
	f.T.Helper()
	f.Project()
	r, err := archiver.Run(f.Context(), f.As("archiver"), archiver.Options{Reason: "a test", Actor: "alice"})
	if err != nil {
		f.T.Fatal(err)
	}
	return r
}

// text returns the rows of a query, one a line.
func (f *fixture) text(sql string, args ...any) string {
	f.T.Helper()
	owner := ledgertest.As(f.T, f.DB, ledgertest.Owner)
	rows, err := owner.Query(f.Context(), sql, args...)
	if err != nil {
		f.T.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.T.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// events returns the events of a task, as version and type.
func (f *fixture) events(id string) string {
	f.T.Helper()
	return f.text(`select version || ' ' || type from taskledger.event where kind = $1 and biz_id = $2
		order by version`, kind, id)
}

func (f *fixture) want(what, got, want string) {
	f.T.Helper()
	if got != want {
		f.T.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

// read returns a request to finish a task, as a worker sends it that has read the task's last event.
func (f *fixture) read(id string) ledger.AppendRequest {
	f.T.Helper()
	ledgertest.ExecAsOwner(f.T, f.DB, "select taskledger_internal.begin_incarnation()")
	r := ledger.AppendRequest{Key: key(id), Type: ledger.EventSucceeded}
	var last unexported.LastEvent
	err := f.DB.QueryRow(f.Context(), `
		select e.version, e.attempt, taskledger.state_after(e.type)::text, e.shard, e.position,
		       taskledger_internal.session_incarnation()
		  from taskledger.event e where e.kind = $1 and e.biz_id = $2 order by e.version desc limit 1`, kind, id).
		Scan(&last.Version, &last.Attempt, &last.State, &last.Shard, &last.Position, &last.Incarnation)
	if err != nil {
		f.T.Fatal(err)
	}
	r.Expected = ledger.Version(last.Version)
	unexported.SetLastEvent(&r, last)
	return r
}

func TestFinishedTasksAreRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	ledgertest.Enqueue(t, f.DB, key("waits"), `{}`)
	ledgertest.Enqueue(t, f.DB, key("runs"), `{}`)
	ledgertest.Append(t, f.DB, key("runs"), ledger.EventStarted)
	ledgertest.Enqueue(t, f.DB, key("dead"), `{}`)
	ledgertest.Append(t, f.DB, key("dead"), ledger.EventStarted, ledger.EventBuried)
	r := f.archive()
	if r.Tasks != 2 || r.Events != 6 || r.Held != 0 {
		t.Fatalf("%+v", r)
	}
	f.want("events", f.text(`select distinct biz_id from taskledger.event where kind = $1 order by 1`, kind),
		"dead\nruns\nwaits")
	f.want("tasks", f.text(`select biz_id from taskledger.task where kind = $1 order by 1`, kind), "dead\nruns\nwaits")
	f.want("counts", f.text(`select state || ' ' || tasks from taskledger.task_counts where kind = $1 order by state`,
		kind), "available 1\nrunning 1\ndead 1")
	f.want("record", f.text(`select e.actor || ' ' || (e.data->>'reason') || ' ' || (e.data->'detail'->>'tasks')
		from taskledger.event e where e.kind = 'taskledger.operation' and e.version = 1`), "alice a test 2")
	f.want("keys", f.text(`select (a.n, a.version, a.state)::text
		from taskledger_internal.archived_keys('{coupon.send,coupon.send}', '{waits,2}') a`), "(2,3,succeeded)")
	owner := ledgertest.As(t, f.DB, ledgertest.Owner)
	if _, err := owner.Exec(t.Context(), `delete from taskledger.event where biz_id = 'dead'`); err == nil ||
		!strings.Contains(err.Error(), "append-only") {
		t.Errorf("the owner has deleted events: %v", err)
	}
	f.Project()
	report, err := projector.Verify(t.Context(), f.As("reader"), nil)
	if err != nil || len(report.Differences) > 0 {
		t.Errorf("%v, %v", report.Differences, err)
	}
	ledgertest.Check(t, f.DB)
	if r := f.archive(); r.Tasks != 0 {
		t.Errorf("the second run: %+v", r)
	}
}

// An archived key that is enqueued again is discarded with the next version. Nothing else follows.
func TestArchivedKeyDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1")
	f.archive()
	if e := ledgertest.Enqueue(t, f.DB, key("1"), `{}`); !e.New {
		t.Fatalf("%+v", e)
	}
	for _, kind := range []ledger.EventType{ledger.EventSucceeded, ledger.EventStarted, ledger.EventCancelled} {
		_, err := ledger.Append(t.Context(), f.DB, ledgertest.Request(key("1"), 1, kind))
		if !ledger.IsConflict(err) {
			t.Errorf("Append %s: %v", kind, err)
		}
	}
	for _, r := range ledger.AppendEach(t.Context(), f.DB, []ledger.AppendRequest{
		ledgertest.Request(key("1"), 1, ledger.EventSucceeded),
	}) {
		if !ledger.IsConflict(r.Err) {
			t.Errorf("AppendEach: %v", r.Err)
		}
	}
	tx, err := ledger.Begin(t.Context(), f.DB, &ledger.TxOptions{Guard: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = tx.AppendAndCommit(t.Context(), ledgertest.Request(key("1"), 1, ledger.EventSucceeded)); err == nil {
		t.Error("AppendAndCommit: no error")
	}
	f.want("before the claim", f.events("1"), "1 enqueued")

	worker := ledgertest.As(t, f.DB, "worker")
	f.want("claims", fmt.Sprint(claims(t, worker, "1")), "0")
	f.want("after the claim", f.events("1"), "1 enqueued\n4 discarded")
	ledgertest.Check(t, f.DB)
	task, err := ledger.Load(t.Context(), f.DB, key("1"))
	if err != nil || task.State != ledger.StateDiscarded || task.Reason != ledger.ReasonArchived || task.Version != 4 {
		t.Errorf("%+v, %v", task, err)
	}
	again, err := ledger.Enqueue(t.Context(), f.DB, key("1"), json.RawMessage(`{}`), nil)
	if err != nil || again.New || again.State != ledger.StateDiscarded {
		t.Errorf("the duplicate again: %+v, %v", again, err)
	}
	if r := f.archive(); r.Tasks != 1 {
		t.Errorf("the duplicate: %+v", r)
	}
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
	claims(t, worker, "1")
	f.want("the next duplicate", f.events("1"), "1 enqueued\n5 discarded")
	f.Project()
	if report, err := projector.Verify(t.Context(), f.As("reader"), nil); err != nil || len(report.Differences) > 0 {
		t.Errorf("%v, %v", report.Differences, err)
	}
}

// claims returns how many attempts a claim of a task begins.
func claims(t *testing.T, db *pgxpool.Pool, id string) (n int) {
	t.Helper()
	if _, err := db.Exec(t.Context(), `select taskledger.heartbeat('w', array['`+kind+`'])`); err != nil {
		t.Fatal(err)
	}
	err := db.QueryRow(t.Context(), `select count(*) from taskledger.claim($1, $2, 'w')`, kind, id).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A worker that stood still while its task was finished by another and archived cannot append, by any statement,
// whether or not the key is enqueued again.
func TestZombieOfAnArchivedTask(t *testing.T) {
	t.Parallel()
	for _, isAgain := range []bool{false, true} {
		t.Run(fmt.Sprintf("enqueued again: %v", isAgain), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var zombies []ledger.AppendRequest
			for _, id := range []string{"1", "2", "3"} {
				ledgertest.Enqueue(t, f.DB, key(id), `{}`)
				zombies = append(zombies, f.read(id))
				ledgertest.Append(t, f.DB, key(id), ledger.EventSucceeded)
			}
			if r := f.archive(); r.Tasks != 3 {
				t.Fatalf("%+v", r)
			}
			for _, id := range []string{"1", "2", "3"} {
				if isAgain {
					ledgertest.Enqueue(t, f.DB, key(id), `{}`)
				}
			}
			for _, r := range ledger.AppendEach(t.Context(), f.DB, zombies[:2]) {
				var conflict *ledger.ConflictError
				if !errors.As(r.Err, &conflict) || conflict.Found != 2 || conflict.State != ledger.StateSucceeded {
					t.Errorf("AppendEach: %+v", r)
				}
			}
			tx, err := ledger.Begin(t.Context(), f.DB, &ledger.TxOptions{Guard: true})
			if err != nil {
				t.Fatal(err)
			}
			if events, err := tx.AppendAndCommit(t.Context(), zombies[2]); !ledger.IsConflict(err) {
				t.Errorf("AppendAndCommit: %+v, %v", events, err)
			}
			const later = `select count(*)::text from taskledger.event where kind = $1 and version > 1`
			f.want("events", f.text(later, kind), "0")
		})
	}
}

// A task that waited since before the cutoff of an archived one can be finished.
func TestOldTaskIsFinished(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var old []ledger.AppendRequest
	for _, id := range []string{"1", "2"} {
		ledgertest.Enqueue(t, f.DB, key(id), `{}`)
		old = append(old, f.read(id))
	}
	f.finish("3")
	f.archive()
	if r := ledger.AppendEach(t.Context(), f.DB, old[:1])[0]; r.Err != nil {
		t.Error(r.Err)
	}
	tx, err := ledger.Begin(t.Context(), f.DB, &ledger.TxOptions{Guard: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.AppendAndCommit(t.Context(), old[1]); err != nil {
		t.Error(err)
	}
}

// A transaction with a snapshot from before a task's end finds the task unfinished. The archive waits for it.
func TestRunWaitsForOlderSnapshots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ledgertest.Enqueue(t, f.DB, key("1"), `{}`)
	tx, err := f.DB.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "select count(*) from taskledger.event"); err != nil {
		t.Fatal(err)
	}
	ledgertest.Append(t, f.DB, key("1"), ledger.EventSucceeded)
	f.Project()
	db := f.As("archiver")
	var waited *archiver.WaitError
	if _, err := archiver.Run(t.Context(), db, archiver.Options{Wait: 3 * time.Second}); !errors.As(err, &waited) {
		t.Fatalf("the run did not wait: %v", err)
	}
	_, err = ledger.Append(t.Context(), tx, ledgertest.Request(key("1"), 1, ledger.EventSucceeded))
	if err == nil {
		t.Error("a stale snapshot has finished the task again")
	}
	_ = tx.Rollback(t.Context())
	if r := f.archive(); r.Tasks != 1 {
		t.Errorf("%+v", r)
	}
}

// A finished task is released while it is archived: it stays, or the release fails.
func TestReleaseWhileArchived(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	f.Project()
	db := f.As("archiver")
	tx := servicetest.Try(f.As("operator").Begin(t.Context()))(t)
	if _, err := ledger.Append(t.Context(), tx, ledgertest.Request(key("1"), 3, ledger.EventReleased)); err == nil {
		t.Fatal("succeeded was released")
	}
	_ = tx.Rollback(t.Context())

	for _, id := range []string{"3", "4"} {
		ledgertest.Enqueue(t, f.DB, key(id), `{}`)
		ledgertest.Append(t, f.DB, key(id), ledger.EventCancelled)
	}
	f.Project()
	tx = servicetest.Try(f.As("operator").Begin(t.Context()))(t)
	if _, err := ledger.Append(t.Context(), tx, ledgertest.Request(key("3"), 2, ledger.EventReleased)); err != nil {
		t.Fatal(err)
	}
	// The transaction is younger than the run that follows now.
	const begin = `select run from taskledger_internal.begin_archive('0', null)`
	var run int64
	if err := db.QueryRow(t.Context(), begin).Scan(&run); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := f.archive(); r.Tasks != 3 {
		t.Errorf("%+v", r)
	}
	f.want("released", f.events("3"), "1 enqueued\n2 cancelled\n3 released")

	// Removed first: the release waits for the removal, and fails.
	ledgertest.Enqueue(t, f.DB, key("5"), `{}`)
	ledgertest.Append(t, f.DB, key("5"), ledger.EventCancelled)
	f.Project()
	if err := db.QueryRow(t.Context(), begin).Scan(&run); err != nil {
		t.Fatal(err)
	}
	removal := servicetest.Try(db.Begin(t.Context()))(t)
	defer func() { _ = removal.Rollback(context.WithoutCancel(t.Context())) }()
	f.Await("older transactions", func() bool {
		var n int
		err := db.QueryRow(t.Context(), `select count(*) from taskledger_internal.archive_waits($1::bigint::integer)`,
			run).Scan(&n)
		return err == nil && n == 0
	})
	var n int
	if err := removal.QueryRow(t.Context(), `select tasks from taskledger_internal.remove_tasks($1::bigint::integer,
		'{coupon.send}', '{5}', '{2}', null, null, null)`, run).Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	released := make(chan error, 1)
	conn := servicetest.Try(f.As("operator").Acquire(t.Context()))(t)
	defer conn.Release()
	pid := ledgertest.BackendPID(t, conn)
	go func() {
		_, err := ledger.Append(t.Context(), conn, ledgertest.Request(key("5"), 2, ledger.EventReleased))
		released <- err
	}()
	ledgertest.AwaitBlocked(t, f.DB, pid)
	if err := removal.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-released; err == nil {
		t.Error("an archived task was released")
	}
	f.want("archived", f.events("5"), "")
}

// Archivers at once remove each task once.
func TestTwoArchivers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 60 {
		f.finish(fmt.Sprint(i))
	}
	f.Project()
	db := f.As("archiver")
	var group sync.WaitGroup
	var all [3]archiver.Report
	for i := range all {
		group.Go(func() {
			var err error
			if all[i], err = archiver.Run(t.Context(), db, archiver.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := all[0].Tasks + all[1].Tasks + all[2].Tasks; n != 60 {
		t.Errorf("%d tasks were removed: %+v", n, all)
	}
	f.want("keys", f.text(`select count(*)::text from taskledger.archived_key`), "60")
	f.want("totals", f.text(`select max(total)::text from taskledger.archive_batch`), "60")
}

// Archivers at once that store the same tasks in one directory remove each task once, and its volume stays whole.
func TestTwoArchiversOfOneDirectory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	db := f.As("archiver")
	place := archive.Directory(t.TempDir())
	for round := range 5 {
		for i := range 20 {
			f.finish(fmt.Sprintf("%d-%d", round, i))
		}
		f.Project()
		var group sync.WaitGroup
		var all [3]archiver.Report
		for i := range all {
			group.Go(func() {
				var err error
				o := archiver.Options{Files: archiver.In(db, place, place.String())}
				if all[i], err = archiver.Run(t.Context(), db, o); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := all[0].Tasks + all[1].Tasks + all[2].Tasks; n != 20 {
			t.Errorf("%d tasks were removed: %+v", n, all)
		}
	}
	report, err := archive.Verify(t.Context(), place, nil)
	if err != nil || report.Events != 300 {
		t.Errorf("%+v, %v", report, err)
	}
}

// A subscriber holds tasks for a bounded time.
func TestSubscriberHoldsTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	subscriber := ledgertest.As(t, f.DB, "subscriber")
	f.finish("0")
	if _, err := subscriber.Exec(t.Context(), `
		select taskledger.advance_feed('slow', f.page, f.position)
		  from (select page, position from taskledger.read_feed('slow') order by position desc limit 1) f`,
	); err != nil {
		t.Fatal(err)
	}
	f.finish("1")
	r := f.archive()
	if r.Tasks != 1 || r.Held != 1 || r.HeldBy != "subscriber/slow" {
		t.Errorf("%+v", r)
	}
	f.Project()
	r, err := archiver.Run(t.Context(), f.As("archiver"), archiver.Options{Hold: time.Nanosecond})
	if err != nil || r.Tasks != 1 {
		t.Errorf("after its bound: %+v, %v", r, err)
	}
	f.want("gap", f.text(`
		select reader || ' ' || events || ' ' || (last_position - first_position) from taskledger.archive_gaps`),
		"subscriber/slow 3 2")
}

// The seal of archived events is valid. An event that was removed otherwise is reported, even below archived ones.
func TestSealOfArchivedTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	db := f.As("archiver")
	sealAll := func() {
		t.Helper()
		if _, err := seal.Run(t.Context(), db, nil); err != nil {
			t.Fatal(err)
		}
	}
	verify := func() seal.Report {
		t.Helper()
		return servicetest.Try(seal.Verify(t.Context(), f.As("reader"), nil))(t)
	}
	f.finish("1")
	f.archive() // before there is a seal
	ledgertest.Enqueue(t, f.DB, key("waits"), `{}`)
	f.finish("2", "3")
	sealAll()
	f.finish("4")
	if r := f.archive(); r.Tasks != 2 || r.Held != 1 || r.HeldBy != "seal" {
		t.Errorf("before task 4 is sealed: %+v", r)
	}
	sealAll()
	f.archive()
	if r := verify(); !r.IsValid() || r.Archived != 9 {
		t.Errorf("%+v", r)
	}
	ledgertest.ExecAsOwner(t, f.DB, `
		alter table taskledger.event disable trigger user;
		delete from taskledger.event where biz_id = 'waits';
		alter table taskledger.event enable trigger user`)
	if r := verify(); r.IsValid() {
		t.Error("a removed event was not reported")
	}
}

// A run that is killed at any step is run again, and finishes.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	for _, point := range []string{fault.ArchiveStored, fault.ArchiveRemoved} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.finish("1", "2", "3")
			f.Project()
			f.SpawnAs("archiver", "archive", point).AwaitKilled(t)
			f.archive()
			f.want("keys", f.text(`select count(*)::text from taskledger.archived_key`), "3")
			f.want("events", f.text(`select count(*)::text from taskledger.event where kind = $1`, kind), "0")
		})
	}
}

func TestMain(m *testing.M) {
	servicetest.Main(m, func(program string) servicetest.Program {
		return func(ctx context.Context, db *pgxpool.Pool) error {
			o := archiver.Options{Files: files{}}
			if filepath.IsAbs(program) { // the archive
				o.Files = archiver.In(db, archive.Directory(program), program)
			}
			_, err := archiver.Run(ctx, db, o)
			return err
		}
	})
}

// files stores nothing.
type files struct{}

func (files) Store(context.Context, []archiver.Task) (string, error) { return "volume", nil }

func (files) Place() string { return "" }

func (files) CatchUp(context.Context) error { return nil }

func (files) CutSeal(context.Context, string, string) (int64, error) { return 0, nil }

// The events are in verified files before they are removed.
func TestFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	f.Project()
	place := archive.Directory(t.TempDir())
	db := f.As("archiver")
	r, err := archiver.Run(t.Context(), db, archiver.Options{Files: archiver.In(db, place, place.String())})
	if err != nil || r.Tasks != 2 || len(r.Files) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	reader, err := archive.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	history, err := reader.History(t.Context(), key("2"))
	if err != nil || len(history) != 3 || history[2].Type != "succeeded" {
		t.Errorf("%+v, %v", history, err)
	}
	_, err = ledger.History(t.Context(), db, key("2"))
	var archived *ledger.ArchivedError
	if !errors.As(err, &archived) || archived.File != r.Files[0] || archived.Version != 3 {
		t.Errorf("the history: %v", err)
	}
}
