package dispatcher_test

import (
	"strconv"
	"testing"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

func TestMain(m *testing.M) {
	servicetest.Main(m, program)
}

// Tasks that are enqueued before and after the dispatcher begins are done once each.
func TestTasksAreGivenOut(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	b.EnqueueRound("before", 50)
	w := b.Work(workers.Config{}, b.Exactly(servicetest.InsertEffect, nil))
	b.EnqueueMany(200)
	b.AwaitSucceeded(250)
	b.WantOneEffectEach(250)
	w.Stop()
}

// The first service of a new database is a dispatcher. It stays in its first epoch.
func TestTheFirstDispatcher(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	b.Dispatch()
	w := b.Work(workers.Config{}, b.Exactly(servicetest.InsertEffect, nil))
	b.EnqueueMany(10)
	b.AwaitSucceeded(10)
	w.Stop()
	const epoch = `select (l.detail->>'epoch')::integer from taskledger.lease l where l.name = 'dispatcher'`
	if n := servicetest.One[int](b, epoch); n != 1 {
		t.Errorf("epoch %d", n)
	}
}

// A dispatcher that loses its connection forgets everything and begins in the next epoch. No task is lost, and none has
// its effect twice.
func TestDispatcherThatLosesItsConnection(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	w := b.Work(workers.Config{}, b.Exactly(servicetest.InsertEffect, nil))
	epoch := func() int {
		return servicetest.One[int](b, `select coalesce(
			(select (l.detail->>'epoch')::integer from taskledger.lease l where l.name = 'dispatcher'), 0)`)
	}
	b.Await("a dispatcher", func() bool { return epoch() > 0 })
	for round := range 3 {
		b.EnqueueRound(strconv.Itoa(round), 100)
		before := epoch()
		ledgertest.ExecAsOwner(t, b.DB, `
			select pg_terminate_backend(l.backend) from taskledger.lease l where l.name = 'dispatcher'`)
		b.Await("the next epoch", func() bool { return epoch() > before })
	}
	b.AwaitSucceeded(300)
	b.WantOneEffectEach(300)
	w.Stop()
}
