package workers_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/plantest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// blocks returns how many blocks a statement of the scheduler touches.
func (b *bundle) blocks(statement string, args ...any) int {
	b.T.Helper()
	return plantest.Blocks(b.T, b.DB, func(tx pgx.Tx) {
		try(tx.Exec(b.Context(), workers.Statements["scheduler_settings.sql"], "50ms", "off"))(b.T)
	}, workers.Statements[statement], args...)
}

func (b *bundle) lookBlocks(from string) int {
	return b.blocks("timers_lowest.sql", from, "{}")
}

func (b *bundle) fireBlocks(from string) int {
	return b.blocks("timers_fire.sql", from, 1000, "{enqueued,scheduled,failed,snoozed}", "{enqueued,scheduled,failed,snoozed}", "{}", "{}", "infinity")
}

// What is done costs the same with none waiting and with 100,000, with statistics of an empty
// table and with true ones: the look, and the firing of
// one timer.
func TestCostWithManyTimersWaiting(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	b.Exec("analyze taskledger.timer")
	look, fire := b.costOfOneDue()
	b.Exec(`insert into taskledger.timer
		select clock_timestamp() + interval '1 hour' + i * interval '1 second', 'test.later', 'task-' || i, 1, 'due' from generate_series(1, 100000) i`)
	for _, statistics := range []string{"of an empty table", "true"} {
		manyLook, manyFire := b.costOfOneDue()
		t.Logf("statistics %s: look %d and %d blocks, fire %d and %d", statistics, look, manyLook, fire, manyFire)
		if manyLook > look+8 || manyFire > fire+15 { // the index is two levels higher, and looked into twice
			t.Errorf("statistics %s: with 100,000 timers waiting a look touches %d blocks and not %d, firing %d and not %d",
				statistics, manyLook, look, manyFire, fire)
		}
		b.Exec("vacuum analyze taskledger.timer")
	}
}

// costOfOneDue is the cost of a look and of a firing with one timer due.
func (b *bundle) costOfOneDue() (look, fire int) {
	b.T.Helper()
	id := time.Now().String()
	b.Later(id, ledger.EnqueueOptions{RunIn: time.Microsecond})
	look, fire = b.lookBlocks("-infinity"), b.fireBlocks("-infinity")
	b.Exec("delete from taskledger.timer where biz_id = $1", id)
	return look, fire
}

// While somebody holds a snapshot, what was fired stays in the index as dead entries, 200,000 here.
// The scheduler steps over them once, and not at every pass.
func TestHeldSnapshotDoesNotMakePassesDearer(t *testing.T) {
	t.Parallel()
	b := setupDatabase(t)
	s := try(workers.NewScheduler(workers.SchedulerConfig{DB: b.DB}))(t)
	reader := try(b.DB.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = reader.Rollback(b.Context()) }()
	if err := reader.QueryRow(b.Context(), "select count(*) from taskledger.event").Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	b.Exec(`insert into taskledger.timer
		select clock_timestamp(), 'test.later', 'archived-' || i, 1, 'due' from generate_series(1, 200000) i`)
	for one[int](b, "select count(*)::integer from (select from taskledger.timer limit 1) x") > 0 {
		s.LookAlways()
		if err := s.Pass(b.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gone := one[time.Time](b, "select clock_timestamp()")
	b.Await("the safe mark to pass them", func() bool { // not before the transactions of other tests have ended
		last := b.Later(time.Now().String(), ledger.EnqueueOptions{RunIn: time.Microsecond})
		for b.Task(last).State != ledger.StateAvailable {
			s.LookAlways()
			if err := s.Pass(b.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return s.Safe().After(gone)
	})
	safe := s.Safe().UTC().Format(time.RFC3339Nano)
	naive, look, fire := b.lookBlocks("-infinity"), b.lookBlocks(safe), b.fireBlocks(safe)
	t.Logf("a look from the beginning touches %d blocks, from the safe mark %d; firing from there %d", naive, look, fire)
	if naive < 1000 {
		t.Errorf("a look from the beginning touches %d blocks: the dead entries are not there", naive)
	}
	if look > 20 || fire > 20 {
		t.Errorf("a look from the safe mark touches %d blocks, firing %d: they step over dead entries", look, fire)
	}
}
