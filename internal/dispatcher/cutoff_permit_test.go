package dispatcher_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// A worker holds the only permit of a limit and the turn of a line, and is cut off from PostgreSQL. Nothing else of the
// limit begins until its lease has ended. Then another worker runs that task and those behind it, in order, and the
// first one's outcome is refused.
func TestCutOffWithAPermitAndALine(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	const tasks = 4
	limit := ledger.StartLimit{Name: "one", Kinds: map[ledger.Kind]int{b.Kind().Name(): 1}, MaxRunning: new(1)}
	if err := ledger.SetStartLimit(t.Context(), b.As("operator"), limit, "alice"); err != nil {
		t.Fatal(err)
	}
	database, pool := servicetest.NewFreezer(t, b.As(ledgertest.App))
	began, leave := make(chan ledger.BizID, tasks), make(chan struct{})
	register := func(handle func(*workers.Job)) func(*workers.Pool) error {
		return func(p *workers.Pool) error {
			return p.Register(workers.Handle(servicetest.Order,
				func(_ context.Context, job *workers.Job, _ servicetest.OrderArgs) error {
					handle(job)
					return nil
				}, &workers.KindConfig{Slots: tasks}))
		}
	}
	old := b.Work(workers.Config{DB: pool, LeaseTTL: 6 * time.Second}, register(func(job *workers.Job) {
		began <- job.BizID
		<-leave
	}))
	b.SpawnAs("relay", "dispatcher")
	ids := make([]ledger.BizID, tasks)
	for i := range ids {
		ids[i] = ledger.BizID("o-" + string(rune('a'+i)))
		o := &ledger.EnqueueOptions{OrderKey: "customer/17"}
		servicetest.Try(b.Kind().Enqueue(t.Context(), b.DB, ids[i], servicetest.OrderArgs{}, o))(t)
	}
	if id := <-began; id != ids[0] {
		t.Fatalf("%s begins first", id)
	}
	b.Await("the start to be recorded", func() bool { return len(b.TasksIn(ledger.StateRunning)) == 1 })
	database.Freeze()
	var mu sync.Mutex
	var others []ledger.BizID
	b.Work(workers.Config{}, register(func(job *workers.Job) {
		mu.Lock()
		defer mu.Unlock()
		others = append(others, job.BizID)
	}))
	b.AwaitSucceeded(tasks)
	database.Thaw()
	close(leave)
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(others, ids) {
		t.Errorf("the other worker has begun %q, want %q", others, ids)
	}
	b.Await("the first handler's outcome", func() bool { return old.KindStatus().InFlight == 0 })
	if n := old.KindStatus().Attempts[workers.OutcomeFenced]; n != 1 {
		t.Errorf("%d outcomes of the first worker were refused, want 1", n)
	}
}
