package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// Leases contain the slots of each kind, its tasks in flight, and the rate of its attempts.
func TestLeasesHaveTheLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	release := make(chan struct{})
	w := b.Work(workers.Config{LeaseTTL: 2 * time.Second}, b.atLeast(
		func(context.Context, *workers.Job, orderArgs) error {
			<-release
			return nil
		}, &workers.KindConfig{Slots: 3}))
	load := func() workers.WorkerLoad {
		all := try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t)
		if len(all) != 1 || all[0].ID != w.ID() || len(all[0].Kinds) != 1 || all[0].Kinds[0].Load == nil {
			return workers.WorkerLoad{}
		}
		return *all[0].Kinds[0].Load
	}
	b.Await("slots", func() bool { return load().Slots == 3 })
	b.Enqueue("first")
	b.Enqueue("second")
	b.Enqueue("third")
	b.Await("tasks in flight", func() bool { return load().InFlight == 3 && load().PerMinute == 0 })
	if err := w.SetKindSlots(order.Name(), 1); err != nil {
		t.Fatal(err)
	}
	b.Await("the lower number of slots", func() bool { return load().Slots == 1 })
	const beyond = 1000 // tasks that wait for a slot
	if n := one[int](b, "select (detail->>'capacity')::integer from taskledger.workers"); n < beyond+3 {
		t.Errorf("the worker holds 3 tasks, and its lease has a capacity of %d", n)
	}
	close(release)
	b.Await("a rate", func() bool { return load().PerMinute > 0 && load().InFlight == 0 })
	b.Await("rest", func() bool { return load().PerMinute == 0 })
}

// A handler that does not return in time holds its slot, and the lease counts it: its task is not in flight any more.
func TestLeasesCountOverdueHandlers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	release := make(chan struct{})
	defer close(release)
	b.Work(workers.Config{LeaseTTL: time.Second}, b.exactly(
		func(context.Context, pgx.Tx, *workers.Job, orderArgs) error {
			<-release
			return nil
		}, &workers.KindConfig{Slots: 1, Timeout: 100 * time.Millisecond, Retry: ledger.RetryPolicy{Attempts: 1}}))
	b.AwaitState(b.Enqueue("o-1"), ledger.StateDead)
	b.Await("the lease", func() bool {
		all := try(workers.ReadWorkers(b.Context(), b.DB, "", lists.All))(t)
		if len(all) != 1 || all[0].Kinds[0].Load == nil {
			return false
		}
		load := *all[0].Kinds[0].Load
		return load == workers.WorkerLoad{Slots: 1, Running: 1, Overdue: 1, PerMinute: load.PerMinute}
	})
}

// A load or a version that another program has written hides no worker.
func TestMalformedLoads(t *testing.T) {
	t.Parallel()
	owner := ledgertest.Pool(t, ledgertest.Owner)
	for id, more := range map[string]string{
		"text": `"load":"x","version":7`, "kind": `"load":{"b":7},"version":{}`, "none": `"load":null`,
		"huge": `"load":{"b":{"slots":1e99}},"version":""`,
		"good": `"load":{"b":{"slots":8,"in_flight":2,"per_minute":1.5}},"version":"v1.2.3"`,
	} {
		_, err := owner.Exec(t.Context(), `insert into taskledger.lease (name, holder, since, alive_until, detail)
			values ('worker/' || $1::text, $1::text, now(), now() + interval '1 hour', $2::text::json)`,
			id, `{"kinds":["b"],"shards":"all",`+more+`}`)
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := workers.ReadWorkers(t.Context(), owner, "", lists.All)
	if err != nil || len(all) != 5 {
		t.Fatalf("got %+v, %v", all, err)
	}
	for _, w := range all {
		got := w.Kinds[0].Load
		if w.ID == "good" {
			want := workers.WorkerLoad{Slots: 8, InFlight: 2, PerMinute: 1.5}
			if got == nil || *got != want || w.Version != "v1.2.3" {
				t.Errorf("got %+v of %+v", got, w)
			}
		} else if got != nil || w.Version != "" || w.Kinds[0].Kind != ledger.Kind("b") {
			t.Errorf("%s: got %+v of %+v", w.ID, got, w)
		}
	}
}
