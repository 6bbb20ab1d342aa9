package archiver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// enqueueForms are the ways to enqueue a key that may exist. Each returns whether the enqueue wrote args.
var enqueueForms = map[string]func(context.Context, ledger.DB, string, ledger.EnqueueOptions) (bool, error){
	"Enqueue": func(ctx context.Context, db ledger.DB, id string, o ledger.EnqueueOptions) (bool, error) {
		e, err := ledger.Enqueue(ctx, db, key(id), json.RawMessage(`{"n":2}`), &o)
		return e.New, err
	},
	"EnqueueMany": func(ctx context.Context, db ledger.DB, id string, o ledger.EnqueueOptions) (bool, error) {
		e, err := ledger.EnqueueMany(ctx, db, []ledger.Entry{
			{Key: key(id + "-other"), Options: &o}, {Key: key(id), Args: json.RawMessage(`{"n":2}`), Options: &o},
		})
		return err == nil && e[1].New, err
	},
	"SQL enqueue": func(ctx context.Context, db ledger.DB, id string, o ledger.EnqueueOptions) (bool, error) {
		return scanNew(db.Query(ctx, `
			select e.is_new from taskledger.enqueue($1, $2, '{"n":2}', if_exists => $3, order_key => $4,
				run_in => $5::float8 * interval '1 s') e`,
			kind, id, string(o.IfExists), optional(o.OrderKey), o.RunIn.Seconds()))
	},
	"SQL enqueue_many": func(ctx context.Context, db ledger.DB, id string, o ledger.EnqueueOptions) (bool, error) {
		entry := map[string]any{
			"kind": kind, "biz_id": id, "args": map[string]int{"n": 2}, "if_exists": o.IfExists,
			"run_in": o.RunIn.Seconds(),
		}
		if o.OrderKey != "" {
			entry["order_key"] = o.OrderKey
		}
		text, err := json.Marshal([]any{entry})
		if err != nil {
			return false, err
		}
		return scanNew(db.Query(ctx, `select e.is_new from taskledger.enqueue_many($1) e`, string(text)))
	},
}

func scanNew(rows pgx.Rows, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// An archived key runs again by Rerun, Replace and Follow, in whichever form it is enqueued, even if it was enqueued
// with Same before. Versions continue those that were archived.
func TestArchivedKeyRunsAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	producer := f.As("producer")
	type enqueue struct {
		id, form    string
		o           ledger.EnqueueOptions
		isDuplicate bool // a Same comes before
	}
	var all []enqueue
	for form := range enqueueForms {
		for _, how := range []ledger.IfExists{ledger.IfExistsRerun, ledger.IfExistsReplace, ledger.IfExistsFollow} {
			for i, o := range []ledger.EnqueueOptions{{}, {RunIn: time.Hour}, {OrderKey: "line"}} {
				for _, isDuplicate := range []bool{false, true} {
					o.IfExists = how
					id := fmt.Sprintf("%s/%s/%d/%v", form, how, i, isDuplicate)
					all = append(all, enqueue{id, form, o, isDuplicate})
					f.finish(id)
				}
			}
		}
	}
	if r := f.archive(); r.Tasks != int64(len(all)) {
		t.Fatalf("%+v", r)
	}
	for _, e := range all {
		if e.isDuplicate {
			ledgertest.Enqueue(t, producer, key(e.id), `{"n":1}`)
		}
		isNew, err := enqueueForms[e.form](t.Context(), producer, e.id, e.o)
		if err != nil || !isNew {
			t.Fatalf("%s: new %v, %v", e.id, isNew, err)
		}
		first, next, state := "enqueued", "enqueued", ledger.StateAvailable
		switch {
		case e.o.RunIn > 0:
			next, state = "scheduled", ledger.StateScheduled
		case e.o.OrderKey != "":
			next = "lined_up"
			state = ledger.EventType(next).State()
		}
		if !e.isDuplicate {
			first = next
		}
		f.want(e.id, f.events(e.id), "1 "+first+"\n4 discarded\n5 "+next)
		task, err := ledger.Load(t.Context(), f.DB, key(e.id))
		if err != nil || task.State != state || task.Run != 2 || string(task.Args) != `{"n":2}` {
			t.Errorf("%s: %+v, %v", e.id, task, err)
		}
		if isNew, err := enqueueForms[e.form](t.Context(), producer, e.id, ledger.EnqueueOptions{
			IfExists: ledger.IfExistsIgnore}); isNew || err != nil {
			t.Errorf("%s, ignored: new %v, %v", e.id, isNew, err)
		}
	}
	ledgertest.Check(t, f.DB)
	f.Project()
	if report, err := projector.Verify(t.Context(), f.As("reader"), nil); err != nil || len(report.Differences) > 0 {
		t.Errorf("%v, %v", report.Differences, err)
	}
}

// A run of an archived key is claimed, ends, and is archived with its own end. Ignore does not run the key.
func TestRunOfAnArchivedKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.finish("1", "2")
	f.archive()
	worker := f.As("worker")
	ignore := ledger.EnqueueOptions{IfExists: ledger.IfExistsIgnore}
	if _, err := ledger.Enqueue(t.Context(), f.DB, key("1"), json.RawMessage(`{}`), &ignore); err != nil {
		t.Fatal(err)
	}
	f.want("claims of the ignored", fmt.Sprint(claims(t, worker, "1")), "0")

	rerun := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun, ThrottleFor: time.Hour}
	if _, err := ledger.Enqueue(t.Context(), f.DB, key("2"), json.RawMessage(`{}`), &rerun); err != nil {
		t.Fatal(err)
	}
	f.want("claims", fmt.Sprint(claims(t, worker, "2")), "1")
	if _, err := ledger.Append(t.Context(), f.DB, ledgertest.Request(key("2"), 6, ledger.EventCancelled)); err != nil {
		t.Fatal(err)
	}
	f.want("events", f.events("2"), "1 enqueued\n4 discarded\n5 enqueued\n6 started\n7 cancelled")
	if r := f.archive(); r.Tasks != 2 {
		t.Errorf("%+v", r)
	}
	archived, err := ledger.Archived(t.Context(), f.DB, key("2"))
	if err != nil || archived[0] == nil || archived[0].State != ledger.StateCancelled || archived[0].Version != 7 {
		t.Errorf("%+v, %v", archived, err)
	}
	f.Project()
	if report, err := projector.Verify(t.Context(), f.As("reader"), nil); err != nil || len(report.Differences) > 0 {
		t.Errorf("%v, %v", report.Differences, err)
	}
}

// beginRun begins a run of the archive and waits until it may remove tasks.
func (f *fixture) beginRun(db *pgxpool.Pool) (run int64) {
	f.T.Helper()
	f.Project()
	err := db.QueryRow(f.Context(), `select run from taskledger_internal.begin_archive('0', null)`).Scan(&run)
	if err != nil {
		f.T.Fatal(err)
	}
	f.Await("older transactions", func() bool {
		var n int
		err := db.QueryRow(f.Context(), `select count(*) from taskledger_internal.archive_waits($1::bigint::integer)`,
			run).Scan(&n)
		return err == nil && n == 0
	})
	return run
}

// remove removes tasks that ended with version 3.
func (f *fixture) remove(db ledger.DB, run int64, ids ...string) {
	f.T.Helper()
	rows, err := db.Query(f.Context(), `
		select tasks from taskledger_internal.remove_tasks($1::bigint::integer,
			array_fill('coupon.send'::text, array[cardinality($2::text[])]), $2,
			array_fill(3, array[cardinality($2::text[])]), null, null, null)`, run, ids)
	if err != nil {
		f.T.Fatal(err)
	}
	if n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int]); err != nil || n != len(ids) {
		f.T.Fatal(n, err)
	}
}

// Keys are enqueued with Rerun while their tasks are removed, before and after the removal has locked the tasks: each
// runs a second time.
func TestRerunWhileArchived(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var ids []string
	for form := range enqueueForms {
		ids = append(ids, form+"/locked", form+"/removed")
	}
	f.finish(ids...)
	owner := f.As(ledgertest.Owner)
	run := f.beginRun(owner)
	rerun := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	for _, step := range []string{"locked", "removed"} {
		removal, err := owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = removal.Rollback(context.WithoutCancel(t.Context())) }()
		var removed []string
		for form := range enqueueForms {
			removed = append(removed, form+"/"+step)
		}
		const lock = `select from taskledger.event where kind = $1 and biz_id = any ($2) and version = 3 for update`
		if _, err := removal.Exec(t.Context(), lock, kind, removed); err != nil {
			t.Fatal(err)
		}
		if step == "removed" {
			f.remove(removal, run, removed...)
		}
		var group sync.WaitGroup
		for form, enqueue := range enqueueForms {
			conn, err := f.DB.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			pid := ledgertest.BackendPID(t, conn)
			group.Go(func() {
				isNew, err := enqueue(t.Context(), conn, form+"/"+step, rerun)
				if ledger.Retryable(err) {
					isNew, err = enqueue(t.Context(), conn, form+"/"+step, rerun)
				}
				if err != nil || !isNew {
					t.Errorf("%s/%s: new is %v, %v", form, step, isNew, err)
				}
			})
			ledgertest.AwaitBlocked(t, f.DB, pid)
		}
		if step == "locked" {
			f.remove(removal, run, removed...)
		}
		if err := removal.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		group.Wait()
	}
	if t.Failed() {
		return
	}
	for _, id := range ids {
		f.want(id, f.events(id), "1 enqueued\n4 discarded\n5 enqueued")
	}
	ledgertest.Check(t, f.DB)
}

// A transaction whose snapshot is older than the removal of a task cannot run it again, and must be repeated.
func TestRerunInAnOlderSnapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for form := range enqueueForms {
		f.finish(form)
	}
	db := f.As("archiver")
	run := f.beginRun(db)
	old := make(map[string]pgx.Tx)
	for form := range enqueueForms {
		tx, err := f.DB.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		ledgertest.BackendPID(t, tx) // takes the snapshot
		old[form] = tx
	}
	for form := range enqueueForms {
		f.remove(db, run, form)
	}
	rerun := ledger.EnqueueOptions{IfExists: ledger.IfExistsRerun}
	for form, tx := range old {
		if _, err := enqueueForms[form](t.Context(), tx, form, rerun); !ledger.Retryable(err) {
			t.Errorf("%s in an older snapshot: %v", form, err)
		}
		_ = tx.Rollback(t.Context())
		if isNew, err := enqueueForms[form](t.Context(), f.DB, form, rerun); err != nil || !isNew {
			t.Errorf("%s afterwards: new %v, %v", form, isNew, err)
		}
		f.want(form, f.events(form), "1 enqueued\n4 discarded\n5 enqueued")
	}
}
