package scheduler_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
)

// blocks returns how many blocks a statement of the scheduler reads.
func (b *fixture) blocks(statement string, args ...any) int {
	b.T.Helper()
	return plantest.Blocks(b.T, b.DB, func(tx pgx.Tx) {
		servicetest.Try(tx.Exec(b.Context(), scheduler.Statements["settings.sql"], "50ms", "off"))(b.T)
	}, scheduler.Statements[statement], args...)
}

func (b *fixture) pollBlocks(from string) int {
	return b.blocks("timers_lowest.sql", from, "{}", 1)
}

func (b *fixture) fireBlocks(from string) int {
	const before = "{enqueued,scheduled,failed,snoozed}"
	return b.blocks("timers_fire.sql", from, 1000, before, before, "{}", "{}", "{}", "{}")
}

// A poll and a batch of one timer cost the same with no other timer and with 100,000, with the statistics of an
// empty table and with true ones.
func TestCostWithManyTimersWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("analyze taskledger.timer")
	poll, fire := b.costOfOneDue()
	b.Forge(`insert into taskledger.timer
		select clock_timestamp() + interval '1 hour' + i * interval '1 second', 'test.later', 'task-' || i, 1, 'due'
		  from generate_series(1, 100000) i`)
	for _, statistics := range []string{"of an empty table", "true"} {
		manyPoll, manyFire := b.costOfOneDue()
		t.Logf("statistics %s: a poll reads %d and %d blocks, a batch %d and %d",
			statistics, poll, manyPoll, fire, manyFire)
		if manyPoll > poll+8 || manyFire > fire+15 { // the index is two levels higher, and read twice
			t.Errorf("statistics %s: with 100,000 timers a poll reads %d blocks and not %d, a batch %d and not %d",
				statistics, manyPoll, poll, manyFire, fire)
		}
		b.Exec("vacuum analyze taskledger.timer")
	}
}

// costOfOneDue returns how many blocks a poll and a batch read with one timer due.
func (b *fixture) costOfOneDue() (poll, fire int) {
	b.T.Helper()
	id := time.Now().String()
	b.Later(id, ledger.EnqueueOptions{RunIn: time.Microsecond})
	poll, fire = b.pollBlocks("-infinity"), b.fireBlocks("-infinity")
	b.Forge("delete from taskledger.timer where biz_id = $1", id)
	return poll, fire
}

// While a snapshot is held, fired timers stay in the index as dead entries, 200,000 here. The scheduler steps
// over them once, and not at every step.
func TestStepsUnderAHeldSnapshotStayCheap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.scheduler()
	reader := servicetest.Try(b.DB.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = reader.Rollback(b.Context()) }()
	if err := reader.QueryRow(b.Context(), "select count(*) from taskledger.event").Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	b.Forge(`insert into taskledger.timer
		select clock_timestamp(), 'test.later', 'archived-' || i, 1, 'due' from generate_series(1, 200000) i`)
	for servicetest.One[int](b, "select count(*)::integer from (select from taskledger.timer limit 1) x") > 0 {
		b.step(s)
	}
	gone := servicetest.One[time.Time](b, "select clock_timestamp()")
	b.Await("the horizon to pass them", func() bool { // not before the transactions of other tests have ended
		last := b.Later(time.Now().String(), ledger.EnqueueOptions{RunIn: time.Microsecond})
		for b.Task(last).State != ledger.StateAvailable {
			b.step(s)
		}
		return s.Safe().After(gone)
	})
	safe := s.Safe().UTC().Format(time.RFC3339Nano)
	naive, poll, fire := b.pollBlocks("-infinity"), b.pollBlocks(safe), b.fireBlocks(safe)
	t.Logf("a poll from the low end reads %d blocks, from the horizon %d, a batch from there %d", naive, poll, fire)
	if naive < 1000 {
		t.Errorf("a poll from the low end reads %d blocks: the dead entries are not there", naive)
	}
	if poll > 20 || fire > 20 {
		t.Errorf("a poll from the horizon reads %d blocks, a batch %d: they step over dead entries", poll, fire)
	}
}
