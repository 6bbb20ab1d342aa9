package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// manyDue adds n timers of each of some kinds that have been due for a minute.
func (b *fixture) manyDue(kinds, n int) {
	b.T.Helper()
	b.Forge(`insert into taskledger.timer
		select clock_timestamp() - interval '1 minute' + i * interval '1 microsecond', 'test.many-' || k, i::text, 1,
		       'due'
		  from generate_series(1, $1::integer) k cross join generate_series(1, $2::integer) i`, kinds, n)
}

// Many due timers of other kinds delay a kind's timers by some batches, whatever their number.
func TestTimersFireInTurnsByKind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ kinds, each int }{{kinds: 1, each: 30_000}, {kinds: 300, each: 100}} {
		t.Run(fmt.Sprint(test.kinds, " kinds"), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.manyDue(test.kinds, test.each)
			k := b.Later("soon", ledger.EnqueueOptions{RunIn: time.Microsecond})
			s := b.scheduler()
			steps := 0
			for b.Task(k).State != ledger.StateAvailable {
				b.step(s)
				steps++
			}
			if left := servicetest.One[int](b, "select count(*)::integer from taskledger.timer"); left < 10_000 {
				t.Errorf("the timer fired after %d batches, when %d others were left of 30,000", steps, left)
			}
			for servicetest.One[bool](b, "select exists (select from taskledger.timer)") {
				b.step(s)
			}
			ledgertest.Check(t, b.DB)
		})
	}
}

// A turn costs the same with many due timers of a kind, with many that are not due, and with tasks that wait for
// predecessors, with the statistics of an empty table and with true ones.
func TestCostOfATurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("analyze taskledger.timer")
	cost := func() int {
		t.Helper()
		return plantest.Blocks(t, b.DB, func(tx pgx.Tx) {
			servicetest.Try(tx.Exec(b.Context(), scheduler.Statements["settings.sql"], "50ms", "on"))(t)
		}, scheduler.Statements["timers_turns.sql"], "-infinity", "", 1000, 100, "{}")
	}
	b.manyDue(3, 200)
	few := cost()
	b.manyDue(3, 30_000)
	b.Forge(`insert into taskledger.timer
		select clock_timestamp() + interval '1 hour', 'test.many-' || i % 3, 'later-' || i, 1, 'due'
		  from generate_series(1, 50000) i
		union all
		select taskledger_internal.end_of_time(), 'test.many-' || i % 3, 'after-' || i, 1, 'after'
		  from generate_series(1, 50000) i`)
	for _, statistics := range []string{"of an empty table", "true"} {
		if many := cost(); many > few+few/2+20 { // the index is two levels higher, and the rows are spread
			t.Errorf("statistics %s: a turn reads %d blocks, and %d of a small table", statistics, many, few)
		}
		b.Exec("vacuum analyze taskledger.timer")
	}
}

// A turn with a task that an open transaction locks fires the others.
func TestTurnWithALockedTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.manyDue(1, 40_000)
	held := b.Later("held", ledger.EnqueueOptions{RunIn: time.Microsecond})
	tx := servicetest.Try(b.DB.Begin(b.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	cancelled := ledger.AppendRequest{Key: held, Expected: 1, Type: ledger.EventCancelled}
	servicetest.Try(ledger.Append(b.Context(), tx, cancelled))(t)
	free := b.Later("free", ledger.EnqueueOptions{RunIn: time.Microsecond})
	s := b.scheduler()
	for b.Task(free).State != ledger.StateAvailable {
		b.step(s)
	}
	if left := servicetest.One[int](b, "select count(*)::integer from taskledger.timer"); left < 2000 {
		t.Errorf("the timer fired when %d others were left of 40,000", left)
	}
	if err := tx.Rollback(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.Schedule()
	b.AwaitState(held, ledger.StateAvailable)
	b.awaitNoTimers()
}
