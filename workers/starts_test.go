package workers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// Tasks that may have begun elsewhere have their starts recorded before their handlers: together, because each alone
// takes a transaction and a connection. A worker that stops gives such tasks back.
func TestStartsOfOtherWorkersTasksAreRecordedTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks = 200
	var inside atomic.Int32
	w := b.Work(workers.Config{Slots: 1, StopTimeout: 100 * time.Millisecond, LeaseTTL: endless},
		b.atLeast(func(ctx context.Context, _ *workers.Job, _ orderArgs) error {
			inside.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}, &workers.KindConfig{Slots: tasks}))
	b.EnqueueMany(tasks)
	b.Await("a handler, and tasks behind it", func() bool {
		return inside.Load() == 1 && w.KindStatus().InFlight == tasks
	})
	w.Stop()
	noop := func(context.Context, *workers.Job, orderArgs) error { return nil }
	b.Work(workers.Config{Slots: tasks, LeaseTTL: endless}, b.atLeast(noop, &workers.KindConfig{Slots: tasks}))
	b.AwaitSucceeded(tasks)
	started := one[int](b, "select count(*)::integer from taskledger.event where type = 'started'")
	if started < tasks-1 {
		t.Errorf("%d starts are recorded, want one of each task that was given back", started)
	}
	transactions := one[int](b, "select count(distinct xid)::integer from taskledger.event where type = 'started'")
	t.Logf("%d starts in %d transactions", started, transactions)
	if transactions > tasks/4 {
		t.Errorf("%d starts in %d transactions", started, transactions)
	}
}

// A transaction has more tasks locked than the worker has connections. Their starts wait for it on none of them: the
// other tasks succeed, and the locked ones when it has ended.
func TestLockedStartsTakeNoConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const tasks, locked = 40, 20
	if n := b.DB.Config().MaxConns; n > locked {
		t.Fatalf("the pool has %d connections", n)
	}
	b.EnqueueMany(tasks)
	tx := try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for i := range locked {
		key := order.Key(ledger.BizID(fmt.Sprintf("o-%04d", i)))
		try(ledger.Append(b.Context(), tx, ledger.AppendRequest{Key: key, Expected: 1, Type: ledger.EventCancelled}))(t)
	}
	noop := func(context.Context, *workers.Job, orderArgs) error { return nil }
	b.Work(workers.Config{Slots: tasks, LeaseTTL: endless}, b.atMost(noop, &workers.KindConfig{Slots: tasks}))
	b.AwaitSucceeded(tasks - locked)
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.AwaitSucceeded(tasks)
}

// Permits and the successes that give them back share transactions: a permit passes from task to task by both.
func TestPermitsAndSuccessesShareTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	const limit, tasks = 10, 100
	b.limitConcurrency(limit)
	var inside, most atomic.Int32
	b.Work(workers.Config{LeaseTTL: endless}, b.atLeast(func(context.Context, *workers.Job, orderArgs) error {
		if n := inside.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		inside.Add(-1)
		return nil
	}, &workers.KindConfig{Slots: 2 * limit}))
	ledgertest.ExecAsOwner(t, b.DB, `
		create table permitted (xid xid8 default pg_current_xact_id());
		grant select, insert on permitted to public;
		create function note_permit() returns trigger language plpgsql as $$
		begin
		  insert into public.permitted default values;
		  return null;
		end
		$$;
		create trigger note_permit after update on taskledger.permit for each row execute function note_permit()`)
	shared := func() bool {
		return one[bool](b, `
			select exists (
			  select from permitted p join taskledger.event e on e.xid = p.xid where e.type = 'succeeded')`)
	}
	for round := 1; round == 1 || !shared(); round++ {
		if round > 100 {
			t.Fatal("no transaction of 10,000 tasks has a permit and a success")
		}
		b.EnqueueRound(fmt.Sprint("round-", round), tasks)
		b.AwaitSucceeded(round * tasks)
	}
	if n := most.Load(); n > limit {
		t.Errorf("%d handlers ran at a time, the limit is %d", n, limit)
	}
}
