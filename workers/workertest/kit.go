package workertest

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/only"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

//go:embed sql/unfinished.sql
var unfinishedSQL string

const (
	// patience bounds operations that take milliseconds, or a few times leaseTTL after a crash.
	patience = time.Minute
	// leaseTTL is how long the loss of a crashed worker takes to be detected.
	leaseTTL = time.Second
	// pollEvery is the time between two checks of a condition.
	pollEvery = 2 * time.Millisecond
)

// Kit is a worker pool with a NATS server of its own, for one test. Its methods are for the test's goroutine.
type Kit struct {
	// Constant after Start.
	t       testing.TB
	db      *pgxpool.Pool
	relay   *pgxpool.Pool // with the role of the dispatcher
	url     string
	nc      *nats.Conn
	kinds   []workers.Registration
	configs []workers.Config

	mu      sync.Mutex // guards the fields below
	process *process
	failure error // of a worker
}

// Start runs a pool with these kinds until the test ends. Create db by [ledgertest.Pool]. The pool opens its own
// connections to the database, as many as db may open. The first of configs configures the pool, except DB, NATS and
// LeaseTTL.
func Start(t testing.TB, db *pgxpool.Pool, kinds []workers.Registration, configs ...workers.Config) *Kit {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	t.Cleanup(func() { _ = server.Close() })
	k := &Kit{
		t: t, db: db, relay: ledgertest.As(t, db, "relay"), url: server.URL(), kinds: kinds, configs: configs,
	}
	if k.nc, err = stream.Connect(k.url); err != nil {
		t.Fatalf("workertest: %v", err)
	}
	t.Cleanup(k.nc.Close)
	if k.process, err = k.begin(); err != nil {
		t.Fatalf("workertest: %v", err)
	}
	t.Cleanup(func() { k.current().end() })
	return k
}

// Status returns the status of the worker since it began or last crashed.
func (k *Kit) Status() workers.Status { return k.current().pool.Status() }

func (k *Kit) current() *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.process
}

// Work gives an available task to the worker, waits until it is no longer available or running, and returns it. It
// fails the test if the task is not available.
func (k *Kit) Work(key ledger.Key) ledger.Task {
	k.t.Helper()
	task := k.load(key)
	if task.State != ledger.StateAvailable {
		k.t.Fatalf("workertest: %s must be available, got %s", key, task.State)
	}
	k.dispatch(&only.Task{Key: key}, func() string {
		if task = k.load(key); task.State == ledger.StateAvailable || task.State == ledger.StateRunning {
			return fmt.Sprintf("%s is %s", key, task.State)
		}
		return k.holding()
	})
	return task
}

// Drain gives the worker every available task of its kinds, including tasks that become available meanwhile, until no
// task is available or running.
func (k *Kit) Drain() {
	k.t.Helper()
	k.dispatch(nil, func() string {
		if keys := k.unfinished(); len(keys) > 0 {
			return fmt.Sprintf("%d tasks are not finished, one of them %s", len(keys), keys[0])
		}
		return k.holding()
	})
}

// await waits until missing returns "". Otherwise it fails the test with the last text.
func (k *Kit) await(missing func() string) {
	k.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pollEvery) {
		k.mu.Lock()
		failure := k.failure
		k.mu.Unlock()
		if failure != nil {
			k.t.Fatalf("workertest: %v", failure)
		}
		why := missing()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("workertest: after %s: %s", patience, why)
		}
	}
}

func (k *Kit) load(key ledger.Key) ledger.Task {
	k.t.Helper()
	task, err := ledger.Load(k.t.Context(), k.db, key)
	if err != nil {
		k.t.Fatalf("workertest: %v", err)
	}
	return task
}

// dispatch gives out a task, or all tasks if it is nil, until missing returns "".
func (k *Kit) dispatch(task *only.Task, missing func() string) {
	k.t.Helper()
	d, err := dispatcher.New(dispatcher.Config{DB: k.relay, NATS: k.nc, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		k.t.Fatalf("workertest: %v", err)
	}
	only.Restrict(d, task)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			k.t.Errorf("workertest: %v", err)
		}
	}()
	k.await(missing)
}

func (k *Kit) kindNames() []ledger.Kind {
	var names []ledger.Kind
	for _, status := range k.Status().Kinds {
		names = append(names, status.Kind)
	}
	return names
}

func (k *Kit) unfinished() []ledger.Key {
	k.t.Helper()
	rows, err := k.db.Query(k.t.Context(), unfinishedSQL, pgarray.Of(k.kindNames()...))
	if err != nil {
		k.t.Fatalf("workertest: %v", err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (key ledger.Key, err error) {
		err = row.Scan((*string)(&key.Kind), (*string)(&key.BizID))
		return key, err
	})
	if err != nil {
		k.t.Fatalf("workertest: %v", err)
	}
	return keys
}

// holding returns a description of a kind whose tasks the worker still holds, or "".
func (k *Kit) holding() string {
	for _, kind := range k.Status().Kinds {
		if kind.InFlight > 0 {
			return fmt.Sprintf("%d tasks of kind %s are in flight", kind.InFlight, kind.Kind)
		}
	}
	return ""
}

// process is one worker, as if it were a process of its own. Its fields are constant after begin.
type process struct {
	pool    *workers.Pool
	db      *pgxpool.Pool
	nc      *nats.Conn
	name    string // of its connections in PostgreSQL
	crashed chan struct{}
	stop    context.CancelFunc
	ended   chan struct{}
}

// begin starts a worker.
func (k *Kit) begin() (*process, error) {
	p := &process{crashed: make(chan struct{}), ended: make(chan struct{})}
	config := k.db.Config() // a copy
	p.name = fmt.Sprintf("workertest-%p", p)
	config.ConnConfig.RuntimeParams["application_name"] = p.name
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		select {
		case <-p.crashed:
			return errCrashed
		default:
			return nil
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	var err error
	if p.db, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if p.nc, err = stream.Connect(k.url); err != nil {
		return nil, err
	}
	var c workers.Config
	if len(k.configs) > 0 {
		c = k.configs[0]
	}
	c.DB, c.NATS, c.LeaseTTL = p.db, p.nc, leaseTTL
	if p.pool, err = workers.New(c); err != nil {
		return nil, err
	}
	if err := p.pool.Register(k.kinds...); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		err := p.pool.Run(ctx)
		select {
		case <-p.crashed:
		default:
			if err != nil {
				k.fail(err)
			}
		}
	}()
	return p, nil
}

func (k *Kit) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
}

// end stops a worker gracefully.
func (p *process) end() {
	p.stop()
	<-p.ended
	p.nc.Close()
	p.db.Close()
}
