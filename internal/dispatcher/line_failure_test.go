package dispatcher_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/poolertest"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// inOrder checks that the tasks of each line begin one after another, in order, each once. Its tasks have biz_ids such
// as line/3-0007.
type inOrder struct {
	*servicetest.Bundle

	mu      sync.Mutex
	next    map[string]int  // by line
	running map[string]bool // by line
}

func newInOrder(b *servicetest.Bundle) *inOrder {
	return &inOrder{Bundle: b, next: map[string]int{}, running: map[string]bool{}}
}

// enqueue enqueues the tasks first to first+n-1 of some lines, in turn.
func (o *inOrder) enqueue(lines, first, n int) {
	o.T.Helper()
	kind := o.Kind()
	for i := range n {
		var entries []ledger.Entry
		for line := range lines {
			key := fmt.Sprint("line/", line)
			id := ledger.BizID(fmt.Sprintf("%s-%04d", key, first+i))
			entries = append(entries, servicetest.Try(kind.Entry(id, servicetest.OrderArgs{Amount: i},
				&ledger.EnqueueOptions{OrderKey: key}))(o.T))
		}
		servicetest.Try(ledger.EnqueueMany(o.Context(), o.DB, entries))(o.T)
	}
}

// register registers a handler that checks the order.
func (o *inOrder) register(p *workers.Pool) error {
	return p.Register(workers.Handle(servicetest.Order,
		func(_ context.Context, job *workers.Job, _ servicetest.OrderArgs) error {
			line, n, _ := strings.Cut(string(job.BizID), "-")
			o.begin(line, n)
			defer o.end(line)
			runtime.Gosched()
			return nil
		}, nil))
}

func (o *inOrder) begin(line, n string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if want := fmt.Sprintf("%04d", o.next[line]); n != want || o.running[line] {
		o.T.Errorf("task %s of %s begins, want %s; another one runs: %t", n, line, want, o.running[line])
	}
	o.next[line]++
	o.running[line] = true
}

func (o *inOrder) end(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running[line] = false
}

// A dispatcher is stopped by SIGSTOP in the transaction of a turn. Its successor gives the turns of all lines after a
// few seconds; the stopped one, continued, gives none twice.
func TestDispatcherStoppedInATurn(t *testing.T) {
	t.Parallel()
	o := newInOrder(servicetest.New(t))
	o.Work(workers.Config{}, o.register)
	stopped := o.SpawnAs("relay", stopsInTurn)
	o.enqueue(5, 0, 10)
	stopped.AwaitBegun(t) // in the turn
	o.SpawnAs("relay", "dispatcher")
	o.AwaitSucceeded(50)
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	o.enqueue(5, 10, 10)
	o.AwaitSucceeded(100)
	ledgertest.Check(t, o.DB)
}

// Two dispatchers and two workers keep the order of each line, even when the active dispatcher is killed.
func TestTwoDispatchersKeepLines(t *testing.T) {
	t.Parallel()
	o := newInOrder(servicetest.New(t))
	o.Work(workers.Config{}, o.register)
	o.Work(workers.Config{}, o.register)
	active := o.SpawnAs("relay", "dispatcher")
	o.enqueue(7, 0, 5)
	o.AwaitSucceeded(35)
	o.SpawnAs("relay", "dispatcher")
	o.enqueue(7, 5, 20)
	if err := active.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	o.enqueue(7, 25, 5)
	o.AwaitSucceeded(7 * 30)
	ledgertest.Check(t, o.DB)
}

// Dispatcher and worker keep the order of lines through PgBouncer in transaction mode.
func TestLinesThroughPgBouncer(t *testing.T) {
	t.Parallel()
	o := newInOrder(servicetest.New(t))
	behind := func(role string) *pgxpool.Pool {
		address := ledgertest.URLAs(t, o.DB.Config().ConnString(), role)
		config := servicetest.Try(pgxpool.ParseConfig(poolertest.Start(t, address, "transaction", 10)))(t)
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		pool := servicetest.Try(pgxpool.NewWithConfig(t.Context(), config))(t)
		t.Cleanup(pool.Close)
		return pool
	}
	d := servicetest.Try(dispatcher.New(dispatcher.Config{DB: behind("relay"), NATS: o.Connect()}))(t)
	o.Start(d.Run)
	o.Work(workers.Config{DB: behind(ledgertest.App)}, o.register)
	o.enqueue(5, 0, 20)
	o.AwaitSucceeded(100)
	ledgertest.Check(t, o.DB)
}

// The outcome of a task whose turn was offered with its args is appended without a look at the event before, as that of
// a plain task is.
func TestOutcomesOfTurnsNeedNoLook(t *testing.T) {
	t.Parallel()
	o := newInOrder(servicetest.New(t))
	o.Dispatch()
	looks := statements{begin: "-- append.sql for many tasks"}
	o.Work(workers.Config{DB: tracedPool(t, o.As(ledgertest.App), &looks), LeaseTTL: time.Minute}, o.register)
	o.enqueue(5, 0, 1)
	o.AwaitSucceeded(5) // so that the dispatcher is in the epoch of the database
	before := looks.Load()
	o.enqueue(5, 1, 10)
	o.AwaitSucceeded(55)
	if n := looks.Load() - before; n > 2 {
		t.Errorf("%d groups of the outcomes of 50 tasks were appended with a look", n)
	}
	ledgertest.Check(t, o.DB)
}
