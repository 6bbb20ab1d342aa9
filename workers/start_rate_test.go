package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// setStartLimit sets a limit of the bundle's kind.
func (b *bundle) setStartLimit(l ledger.StartLimit) {
	b.T.Helper()
	kind := b.Kind().Name()
	l.Name, l.Kinds = string(kind), map[ledger.Kind]int{kind: 1}
	if err := ledger.SetStartLimit(b.Context(), b.DB, l, "alice"); err != nil {
		b.T.Fatal(err)
	}
}

// A rate holds over workers, a worker in SQL and a change of the dispatcher, and is used: each window starts tasks soon
// after its tokens can be used again. The tasks that wait are not tried.
func TestStartRateOverWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop := b.Dispatch()
	b.createRoom()
	const tasks, burst = 60, 5
	const window = 250 * time.Millisecond // 20 a second, 5 at once
	kind := string(b.Kind().Name())
	b.setStartLimit(ledger.StartLimit{Rate: &ledger.StartRate{Starts: 20, Period: time.Second, Burst: burst}})
	b.EnqueueMany(tasks)
	b.Work(workers.Config{}, crowdedExactly(b.Kind(), b.DB))
	b.Work(workers.Config{}, crowdedExactly(b.Kind(), b.DB))
	b.crowdInSQL()
	b.Await("some starts", func() bool {
		return one[int](b, `select count(*)::integer from taskledger.event e
			where e.kind = $1 and e.type = 'started'`, kind) > 15
	})
	stop()
	b.Dispatch()
	b.Await("the end of all tasks", func() bool {
		return one[int](b, `select count(*)::integer from taskledger.event e
			where e.kind = $1 and e.type = 'succeeded'`, kind) == tasks
	})
	rows, _ := b.DB.Query(b.Context(), `
		select recorded_at from taskledger.event where kind = $1 and type = 'started' order by 1`, kind)
	starts, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		t.Fatal(err)
	}
	const slack = 50 * time.Millisecond // between the token and the event of a statement
	for i := burst; i < len(starts); i++ {
		if took := starts[i].Sub(starts[i-burst]); took < window-slack {
			t.Errorf("%d tasks started within %s", burst+1, took)
		}
	}
	if n := one[int](b, `select count(*)::integer from taskledger.event e where e.kind = $1 and e.type not in
		('enqueued', 'started', 'succeeded')`, kind); n != 0 {
		t.Errorf("%d other events", n)
	}
}

// A partition with many tasks at its limit delays no task of another.
func TestLimitPerPartitionDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	kind := b.Kind()
	b.setStartLimit(ledger.StartLimit{Per: ledger.PerPartition, MaxRunning: new(1)})
	held := make(chan struct{})
	began := make(chan ledger.BizID, 100)
	enqueue := func(id, partition string) {
		_, err := kind.Enqueue(b.Context(), b.DB, ledger.BizID(id), orderArgs{}, &ledger.EnqueueOptions{
			Partition: partition})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a1", "a2", "a3", "a4"} {
		enqueue(id, "acme")
	}
	enqueue("b1", "bit")
	enqueue("none", "")
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(ctx context.Context, job *workers.Job, _ orderArgs) error {
			began <- job.BizID
			if job.BizID == "a1" {
				select {
				case <-held:
				case <-ctx.Done():
				}
			}
			return nil
		}, nil))
	})
	seen := map[ledger.BizID]bool{}
	for len(seen) < 3 {
		seen[<-began] = true
	}
	if !seen["a1"] || !seen["b1"] || !seen["none"] {
		t.Errorf("began: %v", seen)
	}
	close(held)
	for len(seen) < 6 {
		seen[<-began] = true
	}
}
