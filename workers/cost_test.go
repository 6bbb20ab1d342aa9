package workers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// drainCost is the cost of draining a backlog in a separate worker process.
type drainCost struct {
	Tasks  float64
	Allocs float64
	Bytes  float64
	Took   time.Duration
	CPU    time.Duration

	Postgres time.Duration // CPU time of PostgreSQL
}

// drainKinds are kinds whose handlers only count, or insert a row.
func drainKinds(n int) []ledger.TypedKind[orderArgs] {
	kinds := make([]ledger.TypedKind[orderArgs], n)
	for i := range kinds {
		kinds[i] = ledger.MustKind[orderArgs](ledger.Kind(fmt.Sprint("test.drain.", i)))
	}
	return kinds
}

// runDrain is the child's program: "<guarantee> <kinds> <tasks>".
func runDrain(ctx context.Context, db *pgxpool.Pool, arguments string) error {
	nc, err := stream.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	var guarantee string
	var kinds, tasks int
	if _, err := fmt.Sscan(arguments, &guarantee, &kinds, &tasks); err != nil {
		return err
	}
	config := db.Config()
	config.MaxConns = 24
	db, err = pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := workers.New(workers.Config{DB: db, NATS: nc})
	if err != nil {
		return err
	}
	for _, k := range drainKinds(kinds) {
		if guarantee == "exactly" {
			err = p.Register(workers.Handle(k, func(
				ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs,
			) error {
				return insertEffect(ctx, tx, job, args)
			}, nil))
		} else {
			none := func(context.Context, *workers.Job, orderArgs) error { return nil }
			err = p.Register(workers.Handle(k, none, nil))
		}
		if err != nil {
			return err
		}
	}
	var done atomic.Bool
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, begun := ownCPU(), time.Now()
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	for !done.Load() {
		time.Sleep(5 * time.Millisecond)
		n := int64(0)
		for _, k := range p.Status().Kinds {
			n += k.Attempts[workers.OutcomeSucceeded]
		}
		done.Store(n >= int64(tasks))
	}
	cost := drainCost{Tasks: float64(tasks), Took: time.Since(begun), CPU: ownCPU() - cpu}
	runtime.ReadMemStats(&after)
	cost.Allocs, cost.Bytes = float64(after.Mallocs-before.Mallocs), float64(after.TotalAlloc-before.TotalAlloc)
	stop()
	if err := <-ran; err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(cost)
}

// drainElsewhere drains a backlog in a separate process.
func (b *bundle) drainElsewhere(round int, guarantee string, kinds, tasks int) (c drainCost) {
	b.T.Helper()
	b.Dispatch()
	b.backlog(round, tasks, drainKinds(kinds)...)
	_, before := spent(b.T)
	child := b.Spawn(fmt.Sprint("drain ", guarantee, " ", kinds, " ", tasks))
	line := try(child.Out.ReadBytes('\n'))(b.T)
	<-child.Ended
	_, after := spent(b.T)
	defer func() { c.Postgres = after - before }()
	if err := json.Unmarshal(line, &c); err != nil {
		b.T.Fatal(err)
	}
	return c
}

// The memory that a task costs its worker process is the number in docs/guarantees.md.
func TestAllocationsPerTask(t *testing.T) {
	t.Parallel()
	for guarantee, most := range map[string]struct{ allocs, bytes float64 }{
		"at-least": {allocs: 46, bytes: 7_000},
		"exactly":  {allocs: 215, bytes: 15_000},
	} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			c := setup(t).drainElsewhere(0, guarantee, 1, 5000)
			allocs, bytes := c.Allocs/c.Tasks, c.Bytes/c.Tasks
			t.Logf("%.1f allocations, %.0f bytes a task", allocs, bytes)
			if allocs > most.allocs || bytes > most.bytes {
				t.Errorf("%.1f allocations and %.0f bytes a task, want at most %.0f and %.0f",
					allocs, bytes, most.allocs, most.bytes)
			}
		})
	}
}

// BenchmarkDrainEightKinds drains as many tasks as one kind and as eight, in turn, and reports the ratios of time and
// of CPU time of the worker and of PostgreSQL.
func BenchmarkDrainEightKinds(b *testing.B) {
	for _, guarantee := range []string{"at-least", "exactly"} {
		b.Run(guarantee, func(b *testing.B) {
			tasks := map[string]int{"at-least": 60_000, "exactly": 6_000}[guarantee]
			var speed, cpu []float64
			for round := range b.N {
				costs := map[int]drainCost{}
				for i := range 2 {
					kinds := []int{1, 8}[(i+round)%2]
					costs[kinds] = setupOn(b, durablePool(b)).drainElsewhere(0, guarantee, kinds, tasks)
				}
				speed = append(speed, costs[1].Took.Seconds()/costs[8].Took.Seconds())
				cpu = append(cpu, (costs[1].CPU+costs[1].Postgres).Seconds()/(costs[8].CPU+costs[8].Postgres).Seconds())
				b.Logf("one kind: %+v, eight: %+v", costs[1], costs[8])
			}
			slices.Sort(speed)
			slices.Sort(cpu)
			b.ReportMetric(speed[len(speed)/2], "speed-of-8/speed-of-1")
			b.ReportMetric(cpu[len(cpu)/2], "cpu-of-1/cpu-of-8")
			b.ReportMetric(0, "ns/op")
		})
	}
}
