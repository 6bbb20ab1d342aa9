package projector_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/difference"
	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/projector"
)

// No index changes on the usual way of a task, in a backlog that is enqueued together and finishes together.
func TestUpdatesAreHOT(t *testing.T) {
	t.Parallel()
	for name, led := range map[string]bool{"plain": false, "with a cause": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			updatesAreHOT(t, led)
		})
	}
}

func updatesAreHOT(t *testing.T, led bool) {
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	const tasks = 2000
	enqueueAndFinish(t, pool, 0, tasks, led)
	p, err := projector.New(projector.Config{DB: pool})
	if err != nil {
		t.Fatal(err)
	}
	applyAll(t, pool, p)
	var updates, hot int
	await(t, "statistics of the updates", func() bool {
		if _, err := pool.Exec(t.Context(), `select pg_stat_force_next_flush()`); err != nil {
			t.Fatal(err)
		}
		if err := pool.QueryRow(t.Context(), `select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables
			where schemaname = 'taskledger' and relname = 'task'`).Scan(&updates, &hot); err != nil {
			t.Fatal(err)
		}
		return updates >= tasks
	})
	if hot != updates {
		t.Errorf("%d of %d updates were HOT", hot, updates)
	}
}

// While another transaction keeps an old snapshot open, no dead row can be vacuumed. Reading the counts, and
// adding to them, must not step over the rows removed meanwhile.
func TestCountsCostTheSameUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	p, err := projector.New(projector.Config{DB: pool, PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	enqueueAndSucceed(t, pool, 0, 1)
	applyAll(t, pool, p)
	holder, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(context.Background())
	if _, err := holder.Exec(t.Context(), `select count(*) from taskledger.task_count`); err != nil {
		t.Fatal(err)
	}
	before := blocksOf(t, pool, "counts")
	enqueueAndSucceed(t, pool, 1, 1000)
	applyAll(t, pool, p)

	var rows, newest int
	if err := pool.QueryRow(t.Context(), `select count(*), max(n) from taskledger.task_count`).
		Scan(&rows, &newest); err != nil {
		t.Fatal(err)
	}
	if newest < 1500 || rows > 2*512 {
		t.Errorf("%d rows are left of totals with %d and more, want at most 512 each", rows, newest)
	}
	if after := blocksOf(t, pool, "counts"); after > before+4 {
		t.Errorf("reading the counts touches %d blocks after %d additions, %d before", after, newest, before)
	}
	counts, err := projector.ReadCounts(t.Context(), pool, "", lists.All)
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference.Of([]ledger.StateCount{{Kind: "coupon.send", State: ledger.StateSucceeded, Tasks: 1001}},
		counts); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

// ReadLag costs the same behind many events as behind few. This holds also where many of them belong to a
// transaction that was open when the cursor row was written.
func TestLagCostsTheSameInALargeLedger(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"of many transactions": 500, "of a few large ones": 5_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lagCosts(t, batch)
		})
	}
}

// lagCosts fills ledgers with batch events in each transaction.
func lagCosts(t *testing.T, batch int) {
	pool := ledgertest.Pool(t, ledgertest.App, "relay", "operator")
	measure := func(events int) (blocks, late int) {
		open, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer open.Rollback(context.Background())
		if _, err := ledger.Enqueue(t.Context(), open, ledger.Key{Kind: "open",
			BizID: ledger.BizID(fmt.Sprint(events))}, nil, nil); err != nil {
			t.Fatal(err)
		}
		for first := 0; first < events; first += batch {
			enqueueAndSucceed(t, pool, 1_000_000*events+first, min(batch, events)/2)
		}
		project(t, pool)
		if _, err := pool.Exec(t.Context(), "vacuum analyze taskledger.event"); err != nil {
			t.Fatal(err)
		}
		if err := open.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lag, err := projection.ReadLag(t.Context(), pool); err != nil || lag.Events != 1 {
			t.Errorf("behind by %+v, %v, want 1 event", lag, err)
		}
		blocks = blocksOf(t, pool, "lag", feed.ProjectorReader, projection.MaxLag)
		// The statement reads the late xids of other tests' open transactions as well.
		if err := pool.QueryRow(t.Context(), `
			select count(*)
			  from (select * from taskledger.cursor where reader = $1 order by n desc limit 1) c
			 cross join lateral taskledger_internal.late_xids(c.seen, c.seen_bound)`, feed.ProjectorReader).
			Scan(&late); err != nil {
			t.Fatal(err)
		}
		project(t, pool)
		return blocks, late
	}
	const descent = 2 // blocks of an index
	small, few := measure(500)
	large, many := measure(20_000)
	if large-many*descent > small-few*descent+8 {
		t.Errorf("%d blocks and %d late xids behind 20,000 events, %d and %d behind 500", large, many, small, few)
	}
	t.Logf("%d blocks and %d late xids behind 20,000 events, %d and %d behind 500", large, many, small, few)
}

// blocksOf returns the number of blocks of tables and indexes that a statement touches.
func blocksOf(t *testing.T, pool *pgxpool.Pool, name string, args ...any) int {
	t.Helper()
	return plantest.Blocks(t, pool, nil, statement(t, name), args...)
}

// A page of tasks by key reads the kinds until it is full, and no others, also by a plan that is made for any
// parameters.
func TestFindCostsTheSameBesideManyKinds(t *testing.T) {
	t.Parallel()
	pool := ledgertest.Pool(t, ledgertest.Owner)
	fill := func(first, last int) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), `
			insert into taskledger.event (kind, biz_id, version, attempt, shard, type, data)
			select 'k' || to_char(k, 'FM000'), 'order-' || to_char(i, 'FM0000'), v.version, 0, 0,
			       v.type::taskledger.event_type, '{}'
			  from generate_series($1::integer, $2::integer) k
			 cross join generate_series(1, 200) i
			 cross join (values (1, 'enqueued'), (2, 'buried')) v(version, type)`, first, last); err != nil {
			t.Fatal(err)
		}
		project(t, pool)
		if _, err := pool.Exec(t.Context(), "vacuum analyze taskledger.task"); err != nil {
			t.Fatal(err)
		}
	}
	measure := func() (blocks [2]int) {
		counts := blocksOf(t, pool, "counts")
		for i, name := range []string{"find", "find_aside"} {
			blocks[i] = blocksOf(t, pool, name, "", "order-", "", "", 100, "dead") - counts
		}
		return blocks
	}
	fill(1, 2)
	few := measure()
	fill(3, 100)
	for i, many := range measure() {
		if many > few[i]+100 { // all kinds would be 9,800 more
			t.Errorf("statement %d: %d blocks beside 100 kinds, %d beside 2", i, many, few[i])
		}
	}
	found, next, err := projection.FindTasks(t.Context(), pool, projection.Search{State: ledger.StateDead,
		After: ledger.Key{Kind: "k001", BizID: "order-0190"}, Limit: 300})
	if err != nil || len(found) != 300 || !slices.IsSortedFunc(found, func(a, b ledger.ListedTask) int {
		return a.Key.Compare(b.Key)
	}) || found[10].Kind != "k002" || next != (ledger.Key{Kind: "k003", BizID: "order-0090"}) {
		t.Errorf("%d tasks, %v, %v: %v", len(found), next, err, found)
	}
}
