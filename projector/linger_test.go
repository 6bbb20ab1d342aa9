package projector_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// unlisted selects, in one snapshot, the number of unfinished tasks whose last waking event lies up to the place of the
// list and that are not listed, that of listed tasks that are finished, and that of listed tasks.
const unlisted = `
	with l as materialized (
	  select (place->'seen'->>'snapshot')::pg_snapshot as seen, (place->'until'->>'snapshot')::pg_snapshot as until,
	         coalesce((place->>'after')::bigint, 0) as after
	    from taskledger.lingering_place where place is not null)
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
	         where t.state in ('available', 'running') and not t.lingering
	           and taskledger.feed_passed(w.xid, w.position, 0, l.seen, l.until, l.after)),
	       (select count(*) from taskledger.task t where t.lingering and t.state not in ('available', 'running')),
	       (select count(*) from taskledger.lingering_tasks)`

type listState struct{ missing, finished, listed int }

func readList(tb testing.TB, pool *pgxpool.Pool) (s listState) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), unlisted).Scan(&s.missing, &s.finished, &s.listed); err != nil {
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
			if s := readList(t, pool); s.missing != 0 || s.finished != 0 {
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
			       (select count(*) from taskledger.lingering_tasks)`).Scan(&unfinished, &listed)
		if err != nil {
			t.Fatal(err)
		}
		return listed == unfinished
	})
	if unfinished == 0 {
		t.Error("no task is unfinished: this proves nothing")
	}
}
