package workertest

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/internal/natsserver"
	"github.com/taskledger/taskledger/internal/pgarray"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

//go:embed sql/unfinished.sql
var unfinishedSQL string

const (
	// patience bounds operations that take milliseconds, or a few times ackWait after a crash.
	patience = time.Minute
	// ackWait is how long the loss of a crashed worker takes to be noticed.
	ackWait = time.Second
	// pollEvery is the time between two checks of a condition.
	pollEvery = 2 * time.Millisecond
)

// Kit is a worker pool with a broker of its own, for one test. Its methods are for the test's goroutine.
type Kit struct {
	// Constant after Start.
	t        testing.TB
	db       *pgxpool.Pool
	url      string
	js       jetstream.JetStream
	register func(*workers.Pool) error
	configs  []workers.Config

	mu      sync.Mutex // guards the fields below
	process *process
	failure error // of a worker
}

// Start runs a pool with the kinds that register adds to it, until the test ends. It has its own connections to the
// database, as many as db may have. The first of configs configures the pool, except DB, NATS and AckWait.
func Start(t testing.TB, db *pgxpool.Pool, register func(*workers.Pool) error, configs ...workers.Config) *Kit {
	t.Helper()
	server, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	t.Cleanup(func() { _ = server.Close() })
	k := &Kit{t: t, db: db, url: server.URL(), register: register, configs: configs}
	nc, err := stream.Connect(k.url)
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	t.Cleanup(nc.Close)
	if k.js, err = jetstream.New(nc); err == nil {
		// An empty installation: the stream may belong to any database.
		_, err = stream.Ensure(t.Context(), k.js, stream.Config{MaxBytes: 1 << 30}, "")
	}
	if err == nil {
		k.process, err = k.begin()
	}
	if err != nil {
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

// Work delivers an available task to the worker, waits until it is no longer available or running, and returns it. It
// fails the test if the task is not available.
func (k *Kit) Work(key ledger.Key) ledger.Task {
	k.t.Helper()
	task := k.load(key)
	if task.State != ledger.StateAvailable {
		k.t.Fatalf("workertest: %s must be available, got %s", key, task.State)
	}
	k.deliver(key)
	k.await(func() string {
		if task = k.load(key); task.State == ledger.StateAvailable || task.State == ledger.StateRunning {
			return fmt.Sprintf("%s is %s", key, task.State)
		}
		return k.unanswered()
	})
	return task
}

// Drain delivers every available task of the worker's kinds, and those that become available meanwhile, until no task
// is available or running.
func (k *Kit) Drain() {
	k.t.Helper()
	k.await(func() string {
		keys := k.unfinished()
		for _, key := range keys {
			k.deliver(key) // the broker takes a message once
		}
		if len(keys) > 0 {
			return fmt.Sprintf("%d tasks are not finished, one of them %s", len(keys), keys[0])
		}
		return k.unanswered()
	})
}

// await waits until missing returns "". It returns what is still missing otherwise.
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

// deliver publishes the message that makes a task available, as the relay would.
func (k *Kit) deliver(key ledger.Key) {
	k.t.Helper()
	history, err := ledger.History(k.t.Context(), k.db, key)
	if err != nil {
		k.t.Fatalf("workertest: %v", err)
	}
	payload, err := history[0].Payload()
	if err != nil {
		k.t.Fatalf("workertest: %v", err)
	}
	for i := len(history) - 1; i >= 0; i-- {
		if !history[i].Type.WakesWorkers() {
			continue
		}
		msg := stream.Encode(history[i], payload, stream.Source("workertest"), 1)
		stream.Enclose(msg, history[0].Meta)
		if _, err := k.js.PublishMsg(k.t.Context(), msg); err != nil {
			k.t.Fatalf("workertest: deliver %s: %v", key, err)
		}
		return
	}
}

func (k *Kit) kinds() []ledger.Kind {
	var kinds []ledger.Kind
	for _, status := range k.Status().Kinds {
		kinds = append(kinds, status.Kind)
	}
	return kinds
}

func (k *Kit) unfinished() []ledger.Key {
	k.t.Helper()
	rows, err := k.db.Query(k.t.Context(), unfinishedSQL, pgarray.Of(k.kinds()...))
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

// unanswered returns a description of a consumer that still has messages, or "". After a crash a message may be
// redelivered.
func (k *Kit) unanswered() string {
	k.t.Helper()
	for _, kind := range k.kinds() {
		for _, c := range stream.Consumers(kind, ledger.AllShards) {
			consumer, err := k.js.Consumer(k.t.Context(), stream.Name, c.Durable)
			if err != nil {
				return fmt.Sprintf("consumer %s: %v", c.Durable, err)
			}
			if info := consumer.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 {
				return fmt.Sprintf("messages of kind %s are not answered", kind)
			}
		}
	}
	return ""
}

// process is one worker, as if it were a process of its own. Its fields are constant after begin.
type process struct {
	pool    *workers.Pool
	db      *pgxpool.Pool
	nc      *nats.Conn
	name    string // of its connections in the server
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
	c.DB, c.NATS, c.AckWait = p.db, p.nc, ackWait
	if p.pool, err = workers.New(c); err != nil {
		return nil, err
	}
	if err := k.register(p.pool); err != nil {
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
