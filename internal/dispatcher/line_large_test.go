package dispatcher_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/multitracer"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var (
	idleLines = flag.Int("idle-lines", 2_000, "number of lines of TestIdleLinesCostNoStatement")
	lineDepth = flag.Int("line-depth", 2, "number of tasks in each of these lines")
	idleFor   = flag.Duration("idle-for", 0, "also measure idle services in TestIdleLinesCostNoStatement")
	longLine  = flag.Int("long-line", 3_000, "number of tasks of the line in TestALongLineDelaysNoOther")
)

// usage returns the processor time that the process has used.
func usage() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// logIdle logs the statements and the processor time of the idle services.
func logIdle(t *testing.T, lines int, all *statements) {
	t.Helper()
	if *idleFor == 0 {
		return
	}
	statements, cpu := all.Load(), usage()
	time.Sleep(*idleFor) // the measurement itself
	seconds := idleFor.Seconds()
	t.Logf("%d lines: %.1f statements/s of the dispatcher, %.2f%% of a processor for dispatcher, worker and NATS",
		lines, float64(all.Load()-statements)/seconds, 100*(usage()-cpu).Seconds()/seconds)
}

// While the tasks of a long line run, the first tasks of other lines begin as soon as before.
func TestALongLineDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	b.Dispatch()
	begun := make(chan time.Time, 1)
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(servicetest.Order,
			func(_ context.Context, job *workers.Job, _ servicetest.OrderArgs) error {
				if strings.HasPrefix(string(job.BizID), "other-") {
					begun <- time.Now()
				}
				return nil
			}, nil))
	})
	const tasks = 100
	measure := func(round string) {
		var all []time.Duration
		for i := range tasks {
			id := ledger.BizID(fmt.Sprint("other-", round, i))
			o := &ledger.EnqueueOptions{OrderKey: "line/" + string(id)}
			servicetest.Try(b.Kind().Enqueue(b.Context(), b.DB, id, servicetest.OrderArgs{}, o))(t)
			at := time.Now()
			select {
			case began := <-begun:
				all = append(all, began.Sub(at))
			case <-time.After(servicetest.Patience):
				t.Fatalf("%s has not begun", id)
			}
		}
		slices.Sort(all)
		t.Logf("%s: from the commit to the handler in another line: median %s, p90 %s, longest %s", round,
			all[tasks/2], all[tasks*9/10], all[tasks-1])
	}
	measure("without")
	const batch = 10_000
	for first := 0; first < *longLine; first += batch {
		var entries []ledger.Entry
		for i := first; i < min(first+batch, *longLine); i++ {
			entries = append(entries, servicetest.Try(b.Kind().Entry(ledger.BizID(fmt.Sprint("long-", i)),
				servicetest.OrderArgs{}, &ledger.EnqueueOptions{OrderKey: "line/long"}))(t))
		}
		servicetest.Try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	}
	waiting := func() int {
		return servicetest.One[int](b, `select count(*)::integer from (select from taskledger.event e
			where e.order_key = 'line/long' and e.type = 'succeeded' limit 10) t`)
	}
	b.Await("the tasks of the long line run", func() bool { return waiting() >= 10 })
	measure("beside")
	last := ledger.Key{Kind: b.Kind().Name(), BizID: ledger.BizID(fmt.Sprint("long-", *longLine-1))}
	if state := b.Task(last).State; state != ledger.StateInLine {
		t.Errorf("the line has ended meanwhile: its last task is %s", state)
	}
}

// Lines in which nothing ends cost no statement, however many there are and whatever other tasks do.
func TestIdleLinesCostNoStatement(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	keys := *idleLines
	turns, all := statements{begin: "-- Makes the next tasks of lines available"}, statements{}
	b.Start(servicetest.Try(dispatcher.New(dispatcher.Config{
		DB: tracedPool(t, b.As("relay"), multitracer.New(&turns, &all)), NATS: b.Connect(),
	}))(t).Run)
	b.Work(workers.Config{}, b.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(b.Enqueue("first"), ledger.StateSucceeded)
	logIdle(t, 0, &all)
	for first := 0; first < keys**lineDepth; first += 10_000 {
		var entries []ledger.Entry
		for i := first; i < min(first+10_000, keys**lineDepth); i++ {
			entries = append(entries, ledger.Entry{
				Key:     ledger.Key{Kind: "line.idle", BizID: ledger.BizID(fmt.Sprint(i))},
				Options: &ledger.EnqueueOptions{OrderKey: fmt.Sprint("line/", i%keys)}})
		}
		servicetest.Try(ledger.EnqueueMany(b.Context(), b.DB, entries))(t)
	}
	waiting := func() int {
		return servicetest.One[int](b, "select count(*) from taskledger.event where kind = 'line.idle' and version = 2")
	}
	for n := waiting(); n < keys; n = waiting() { // patience begins again with each
		b.Await("more first turns", func() bool { return waiting() > n })
	}
	last := ledger.Key{Kind: "line.last", BizID: "1"} // its turn comes after the pages with the others
	servicetest.Try(ledger.Enqueue(t.Context(), b.DB, last, nil, &ledger.EnqueueOptions{OrderKey: "line/last"}))(t)
	b.AwaitState(last, ledger.StateAvailable)
	logIdle(t, keys, &all)
	before := turns.Load()
	for i := range 20 {
		b.AwaitState(b.Enqueue(fmt.Sprint("plain-", i)), ledger.StateSucceeded)
	}
	if n := turns.Load() - before; n != 0 {
		t.Errorf("%d searches for turns while 20 other tasks ran", n)
	}
	if n := waiting(); n != keys {
		t.Errorf("%d turns, want %d", n, keys)
	}
}
