package reconciler_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers/operator"
	"github.com/taskledger/taskledger/workers/reconciler"
)

// Beside a long history a pass reads the tasks that the projector lists as unfinished, and releases a lost one. Without
// the list it reads all.
func TestPassesReadWhatIsUnfinished(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	const finished = 30_000
	ledgertest.ExecAsOwner(t, b.DB, `
		insert into taskledger.task
		       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at)
		select 'test.order', 'finished-' || i, 0, 'succeeded', false, 2, 1, 0, now(), now()
		  from generate_series(1, $1::integer) i`, finished)
	k := b.Enqueue("o-1")
	b.AwaitProjected()
	b.AcknowledgeUnworked(1)
	b.Await("the task to be listed", func() bool {
		return servicetest.One[int](b, "select count(*)::integer from taskledger.lingering_tasks") == 1
	})
	b.EnqueueMany(1) // its page has the place of the list
	isCurrent := "select is_current::integer from taskledger.lingering_is_current"
	b.Await("the list to be current", func() bool { return servicetest.One[int](b, isCurrent) == 1 })

	db := b.As("relay")
	var before int
	b.Await("two passes to read little", func() bool { // on a slow machine the list may be old for a moment
		before = b.tasksRead()
		b.passes(b.listReconciler(db), 2)
		return b.tasksRead()-before <= finished/10
	})
	b.Await("the lost task to be released", func() bool { return b.releases() == 1 })
	if types := b.EventTypes(k); types[1] != ledger.EventReleased {
		t.Errorf("the lost task has the events %v", types)
	}
	b.AwaitProjected()
	b.Await("a pass without the list to read all tasks", func() bool { // the projector's next row has the list again
		before = b.tasksRead()
		ledgertest.ExecAsOwner(t, b.DB, "update taskledger.cursor set mark = null where reader = 'projector'")
		b.passes(b.listReconciler(db), 1)
		return b.tasksRead()-before >= finished
	})
}

// Without unfinished tasks a pass asks NATS for nothing, also while there is no list.
func TestIdlePassAsksNATSForNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	k := b.Enqueue("o-1")
	b.AwaitProjected()
	nc := b.Connect()
	r := servicetest.Try(reconciler.New(reconciler.Config{DB: b.As("relay"), NATS: nc}))(t)
	asked := func() uint64 {
		before := nc.Stats().OutMsgs
		b.passes(r, 1)
		return nc.Stats().OutMsgs - before
	}
	if asked() == 0 {
		t.Error("a pass beside a waiting task asks NATS for nothing")
	}
	if _, err := b.Operator(b.NC).Cancel(b.Context(), k, operator.Audit{}); err != nil {
		t.Fatal(err)
	}
	b.AwaitProjected()
	if n := asked(); n > 0 {
		t.Errorf("a pass without unfinished tasks sends %d messages", n)
	}
}

// A list of unfinished tasks that is longer than a page is read to its end, in each query mode.
func TestPassesReadTheWholeList(t *testing.T) {
	t.Parallel()
	b := setup(t, outbox.StreamConfig{})
	k := b.Enqueue("o-1")
	b.AwaitProjected()
	b.AcknowledgeUnworked(1)
	b.Await("the task to be listed", func() bool {
		return servicetest.One[int](b, "select count(*)::integer from taskledger.lingering_tasks") == 1
	})
	const listed = 20_500 // before the lost task: they are older, and of no kind with consumers
	ledgertest.ExecAsOwner(t, b.DB, `
		insert into taskledger.task
		       (kind, biz_id, shard, state, aside, version, attempt, failures, enqueued_at, updated_at, lingering)
		select 'test.unserved', 'waits-' || i, 0, 'available', false, 1, 0, 0, now() - interval '1 hour', now(), i
		  from generate_series(1, $1::integer) i`, listed)
	b.EnqueueMany(1)
	b.Await("the list to be current", func() bool {
		return servicetest.One[int](b, "select is_current::integer from taskledger.lingering_is_current") == 1
	})
	db := b.As("relay")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		config := db.Config()
		config.ConnConfig.DefaultQueryExecMode = mode
		pool := servicetest.Try(pgxpool.NewWithConfig(b.Context(), config))(t)
		t.Cleanup(pool.Close)
		b.passes(b.listReconciler(pool), 2)
	}
	if types := b.EventTypes(k); len(types) < 2 || types[1] != ledger.EventReleased {
		t.Errorf("the lost task has the events %v", types)
	}
}

// tasksRead returns how many rows of the table task were read.
func (b *fixture) tasksRead() int {
	b.T.Helper()
	time.Sleep(1100 * time.Millisecond) // sessions report at most once a second
	owner := ledgertest.As(b.T, b.DB, ledgertest.Owner)
	var n int
	err := owner.QueryRow(b.Context(), `
		select (coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0))::integer
		  from pg_stat_user_tables where relname = 'task'`).Scan(&n)
	if err != nil {
		b.T.Fatal(err)
	}
	return n
}
