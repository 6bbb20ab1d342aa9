package projector_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// unlisted selects four numbers of tasks in one snapshot: unfinished tasks that the list lacks, although they became
// available before its place; finished tasks on the list; tasks that are listed with a position that is not of a waking
// event, or of an earlier one than the last before the place; and all tasks on the list.
const unlisted = `
	with l as materialized (
	  select (place->'seen'->>'snapshot')::pg_snapshot as seen, (place->'until'->>'snapshot')::pg_snapshot as until,
	         coalesce((place->>'after')::bigint, 0) as after
	    from taskledger_internal.lingering_place where place is not null)
	select (select count(*)
	          from taskledger.task t
	         cross join lateral (
	           select e.xid, e.position
	             from taskledger.event e
	            where e.kind = t.kind and e.biz_id = t.biz_id and e.version <= t.version
	              and e.type in ('enqueued', 'released', 'interrupted')
	            order by e.version desc
	            limit 1) w
	         cross join l
	         where t.state in ('available', 'running') and t.lingering is null
	           and taskledger_internal.feed_passed(w.xid, w.position, 0, l.seen, l.until, l.after)),
	       (select count(*)
	          from taskledger.task t
	         where t.lingering is not null and t.state not in ('available', 'running')),
	       (select count(*)
	          from taskledger.task t
	         cross join l
	         cross join lateral (
	           select bool_or(e.position = t.lingering) as has_event, max(e.position) filter (
	                    where taskledger_internal.feed_passed(e.xid, e.position, 0, l.seen, l.until, l.after)) as last
	             from taskledger.event e
	            where e.kind = t.kind and e.biz_id = t.biz_id and e.type in ('enqueued', 'released', 'interrupted')) w
	         where t.lingering is not null and (not w.has_event or w.last > t.lingering)),
	       (select count(*) from taskledger_internal.lingering_tasks)`

type listState struct{ missing, finished, misplaced, listed int }

func readList(tb testing.TB, pool *pgxpool.Pool) (s listState) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), unlisted).Scan(&s.missing, &s.finished, &s.misplaced, &s.listed); err != nil {
		tb.Fatal(err)
	}
	return s
}

// The list of lingering tasks is exact at its place at every moment, whatever the projector has applied since, and also
// after a projector has ended in the middle of a page of the list. Not parallel: the settings are of the whole process.
func TestLingeringTasksAreExact(t *testing.T) {
	defer projector.SetLingerPage(7)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	for seed := range uint64(3) {
		stop := start(t, projector.Config{DB: pool, PageSize: 5})
		written := make(chan struct{})
		go func() {
			defer close(written)
			scribble(t, pool, seed, 3, 80)
		}()
		for busy := true; busy; {
			select {
			case <-written:
				busy = false
			default:
			}
			if s := readList(t, pool); s.missing != 0 || s.finished != 0 || s.misplaced != 0 {
				t.Fatalf("seed %d: %+v", seed, s)
			}
		}
		stop()
	}
	// All of them are listed in the end, although no event follows.
	stop := start(t, projector.Config{DB: pool})
	defer stop()
	var unfinished, listed int
	await(t, "the unfinished tasks are listed", func() bool {
		err := pool.QueryRow(t.Context(), `
			select (select count(*) from taskledger.task where state in ('available', 'running')),
			       (select count(*) from taskledger_internal.lingering_tasks)`).Scan(&unfinished, &listed)
		if err != nil {
			t.Fatal(err)
		}
		return listed == unfinished
	})
	if unfinished == 0 {
		t.Error("no task is unfinished: this proves nothing")
	}
}

// recorder records the statements of a pool.
type recorder struct {
	*pgxpool.Pool
	statements []string
}

func (r *recorder) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.statements = append(r.statements, sql)
	return r.Pool.Query(ctx, sql, args...)
}

// While no task is unfinished, the list follows the projector without reading events.
func TestAnEmptyListReadsNoEvents(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	readsEvents := func() bool {
		t.Helper()
		project(t, pool)
		db := &recorder{Pool: pool}
		applied, listed, err := projector.ListStep(t.Context(), pool, db)
		if err != nil || listed != applied {
			t.Fatalf("the list is at %+v, the projector at %+v: %v", listed, applied, err)
		}
		return slices.Contains(db.statements, statement(t, "linger_next"))
	}
	enqueueAndSucceed(t, pool, 0, 20)
	if readsEvents() {
		t.Error("events are read although no task is unfinished")
	}
	for i, kind := range []ledger.Kind{"a.first", "z.last"} {
		key := ledger.Key{Kind: kind, BizID: "1"}
		if _, err := ledger.Enqueue(t.Context(), pool, key, nil, nil); err != nil {
			t.Fatal(err)
		}
		if !readsEvents() {
			t.Errorf("kind %d of 2: no events are read although a task is available", i)
		}
		if _, err := ledger.Append(t.Context(), pool, ledger.AppendRequest{Key: key, Expected: 1,
			Type: ledger.EventSucceeded}); err != nil {
			t.Fatal(err)
		}
		if readsEvents() {
			t.Errorf("kind %d of 2: events are read although no task is unfinished any more", i)
		}
	}
	var many bool // totals: they are not read on, and a task may be unfinished
	if err := pool.QueryRow(t.Context(), statement(t, "linger_has"), 4).Scan(&many); err != nil || !many {
		t.Errorf("of at most 4 totals %t, %v", many, err)
	}
}

// While there are many events, the list is put off, for less than the 30 s that internal/alarm counts on.
func TestTheListIsPutOffWhileABacklogDrains(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		events func(i int) int
		due    []int
	}{
		{name: "few events", events: func(int) int { return 4_999 }, due: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{name: "many events", events: func(int) int { return 5_000 }, due: []int{0, 3, 6, 9}},
		{
			name: "many for a while", events: func(i int) int { return 10_000 - 5_000*i },
			due: []int{0, 3, 4, 5, 6, 7, 8, 9},
		},
	} {
		if diff := difference.Of(test.due, projector.ListTimes(10, test.events)); diff != "" {
			t.Errorf("%s: -want +have:\n%s", test.name, diff)
		}
	}
}

// While a long list of lingering tasks is being made, new events are projected. Not parallel: the settings are of the
// whole process.
func TestListingDelaysNoPage(t *testing.T) {
	defer projector.SetLingerPage(1)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	const n = 5000
	if _, err := pool.Exec(t.Context(), `
		select count(e.version) from generate_series(1, $1) i
		 cross join lateral taskledger.enqueue('test.burst', i::text) e`, n); err != nil {
		t.Fatal(err)
	}
	stop := start(t, projector.Config{DB: pool})
	defer stop()
	await(t, "the list to begin", func() bool { return readList(t, pool).listed > 0 })
	ledgertest.Enqueue(t, pool, ledgertest.Key(t, "test.late/1"), "")
	await(t, "the new task to be projected", func() bool {
		var isProjected bool
		err := pool.QueryRow(t.Context(), `
			select exists (select from taskledger.tasks where kind = 'test.late')`).Scan(&isProjected)
		if err != nil {
			t.Fatal(err)
		}
		return isProjected
	})
	if listed := readList(t, pool).listed; listed >= n {
		t.Errorf("the new task is projected after all of %d unfinished ones were listed", listed)
	}
}
