package projector_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// rebuildTasks rebuilds the built-in projection as the owner.
func rebuildTasks(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	owner := ledgertest.As(tb, pool, ledgertest.Owner)
	if err := projector.RebuildTasks(tb.Context(), owner, nil); err != nil {
		tb.Fatal(err)
	}
}

// A rebuild repairs damaged tables beside writers and a runner, which continues with the new ones.
func TestRebuildOfTasks(t *testing.T) {
	defer projector.SetLoadBatch(50)()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	stop := start(t, projector.Config{DB: pool})
	defer stop()
	scribble(t, pool, 1, 4, 60)
	awaitCaughtUp(t, pool)
	ledgertest.ExecAsOwner(t, pool, `update taskledger.task set state = 'dead'; delete from taskledger.kind_stats;
		insert into taskledger.task_count (kind, state, n, value) values ('x', 'dead', 1, 7)`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		scribble(t, pool, 2, 2, 100)
	}()
	rebuildTasks(t, pool)
	<-done
	awaitCaughtUp(t, pool)
	stop()
	check(t, pool)
}

// A rebuild that finds the tables in use tries again, and knows no rows of the transaction that was undone. If it did,
// it would fail at a task whose first two events are in one page then.
func TestRebuildOfTasksForgetsRowsOfASwapThatIsUndone(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.Append(t, pool, someTask(0))
	read, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer read.Rollback(context.Background())
	if _, err := read.Exec(t.Context(), "select count(*) from taskledger.task"); err != nil {
		t.Fatal(err)
	}
	steps := []func(){
		func() { ledgertest.Append(t, pool, someTask(1)) }, // after the load
		func() { ledgertest.Append(t, pool, someTask(2)) }, // after a page; the swap applies it and is undone
		func() {
			ledgertest.Append(t, pool, someTask(2), ledger.EventStarted, ledger.EventSucceeded)
			if err := read.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		},
	}
	o := &projector.RebuildOptions{PageSize: 2, Progress: func(int64, int64) {
		if len(steps) > 0 {
			steps[0]()
			steps = steps[1:]
		}
	}}
	if err := projector.RebuildTasks(t.Context(), ledgertest.As(t, pool, ledgertest.Owner), o); err != nil {
		t.Fatal(err)
	}
	if len(steps) > 0 {
		t.Errorf("%d steps are left: this proves nothing", len(steps))
	}
	project(t, pool)
	check(t, pool)
}

// Programs that enqueue all the time do not keep a rebuild from replacing the tables.
func TestRebuildOfTasksBesideProducers(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	done := make(chan struct{})
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				key := ledger.Key{Kind: "a", BizID: ledger.BizID(fmt.Sprintf("%d-%d", w, i))}
				o := &ledger.EnqueueOptions{RunIn: time.Hour}
				if _, err := ledger.Enqueue(t.Context(), pool, key, nil, o); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var log logText
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := projector.RebuildTasks(ctx, ledgertest.As(t, pool, ledgertest.Owner),
		&projector.RebuildOptions{Logger: log.logger()})
	close(done)
	group.Wait()
	if err != nil {
		t.Errorf("%v, after %d tries that found the tables in use", err, strings.Count(log.text(), "tables are in use"))
	}
}

// A rebuild merges the statistics of many minutes without a sort of all buckets of all histograms.
func TestRebuildOfManyMinutesNeedsLittleRoom(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	ledgertest.ExecAsOwner(t, pool, `
		insert into taskledger.event (recorded_at, kind, biz_id, version, attempt, shard, type, data)
		select '2026-01-01 00:00:00+00'::timestamptz + i / 2 * interval '1 minute' + v.version * interval '30 seconds',
		       case when i % 20 = 0 then 'b' else 'a' end, to_char(i * 7919 % 30000, 'FM00000'), v.version,
		       v.version - 1, 0, v.type::taskledger.event_type, '{"duration_ms":3}'
		  from generate_series(1, 30000) i
		 cross join (values (1, 'enqueued'), (2, 'succeeded')) v(version, type)`)
	config := ledgertest.As(t, pool, ledgertest.Owner).Config()
	config.ConnConfig.RuntimeParams["temp_file_limit"] = "20MB"
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	if err := projector.RebuildTasks(t.Context(), limited, nil); err != nil {
		t.Fatal(err)
	}
	report, err := projector.Verify(t.Context(), pool, nil)
	if err != nil || !report.Equal() || report.Tasks != 30_000 {
		t.Errorf("%+v, %v", report, err)
	}
}
