package main

import (
	"context"
	"encoding/json"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/migrations"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

var kind = ledger.MustKind[json.RawMessage]("bench.task")

// streamSettings have room for ten million events.
var streamSettings = streamOf(1)

// streamOf returns the settings of a stream with this number of replicas.
func streamOf(replicas int) outbox.StreamConfig {
	return outbox.StreamConfig{MaxBytes: 12 << 30, Replicas: replicas}
}

// node is a ledger with relay and projector, like the command serve.
type node struct {
	t        *trial
	nc       *nats.Conn
	replicas int // of the stream
}

// migrate creates our schema and the business table.
func migrate(ctx context.Context, t *trial) error {
	if err := migrations.Up(ctx, t.url); err != nil {
		return err
	}
	return createEffectTable(ctx, t)
}

// broker starts a JetStream server in a child process, for this trial.
func broker(ctx context.Context, t *trial, syncAlways bool) (address string, err error) {
	return brokerOf(ctx, t, 1, syncAlways)
}

// brokerOf starts a JetStream cluster in a child process, or a single server if members is 1.
func brokerOf(ctx context.Context, t *trial, members int, syncAlways bool) (address string, err error) {
	s := brokerSettings{SyncAlways: syncAlways}
	if members > 1 {
		s.Members = members
	}
	addresses, err := startBroker(ctx, t, s)
	if err != nil {
		return "", err
	}
	return addresses[0], nil
}

// brokerFor starts a JetStream server with an account for each ledger.
func brokerFor(ctx context.Context, t *trial, ledgers int) (addresses []string, err error) {
	return startBroker(ctx, t, brokerSettings{Accounts: ledgers})
}

func startBroker(ctx context.Context, t *trial, s brokerSettings) (addresses []string, err error) {
	if t.brokerDir, err = os.MkdirTemp(t.server.dir, "nats-"); err != nil {
		return nil, err
	}
	t.atEnd(func() error { return os.RemoveAll(t.brokerDir) })
	s.Dir = t.brokerDir
	var answer brokerAnswer
	if t.broker, err = startChild(ctx, "broker", s, &answer, nil); err != nil {
		return nil, err
	}
	t.atEnd(t.broker.kill)
	return answer.URLs, nil
}

// newNode migrates the database and starts a broker.
func newNode(ctx context.Context, t *trial, syncAlways bool) (*node, error) {
	return newReplicatedNode(ctx, t, 1, syncAlways)
}

// newReplicatedNode is newNode with a replicated stream, one server per replica.
func newReplicatedNode(ctx context.Context, t *trial, replicas int, syncAlways bool) (*node, error) {
	if err := migrate(ctx, t); err != nil {
		return nil, err
	}
	address, err := brokerOf(ctx, t, replicas, syncAlways)
	if err != nil {
		return nil, err
	}
	n := &node{t: t, replicas: replicas}
	if n.nc, err = outbox.Connect(address); err != nil {
		return nil, err
	}
	t.nc = n.nc
	t.atEnd(func() error { n.nc.Close(); return nil })
	return n, nil
}

// publishedHook calls a function with the number of messages that a relay publishes.
func publishedHook(published func(messages int)) outbox.Hook {
	return outbox.Hook{MessagesPublished: func(_ context.Context, messages int) { published(messages) }}
}

// relay runs a relay until the end of the trial. It calls published, if that is not nil, with the number
// of messages in each batch.
func (n *node) relay(ctx context.Context, published func(messages int)) error {
	var hooks []outbox.Hook
	if published != nil {
		hooks = append(hooks, publishedHook(published))
	}
	r, err := outbox.New(outbox.Config{
		DB: n.t.db, NATS: n.nc, Stream: streamOf(n.replicas), Hooks: hooks,
	})
	if err != nil {
		return err
	}
	n.t.atEnd(background(ctx, r.Run))
	return nil
}

// project runs the projector until the end of the trial.
func (n *node) project(ctx context.Context) error {
	p, err := projector.New(projector.Config{DB: n.t.db})
	if err != nil {
		return err
	}
	n.t.atEnd(background(ctx, p.Run))
	return nil
}

// work runs a dispatcher and workers until the end of the trial, and passes numbers of successes to add, if it is not
// nil.
func (n *node) work(ctx context.Context, db *pgxpool.Pool, register func(*workers.Pool) error, add func(int)) error {
	pool, err := workers.New(workers.Config{DB: db, NATS: n.nc})
	if err != nil {
		return err
	}
	if err := register(pool); err != nil {
		return err
	}
	give, err := dispatcher.New(dispatcher.Config{DB: n.t.db, NATS: n.nc})
	if err != nil {
		return err
	}
	n.t.atEnd(background(ctx, give.Run))
	n.t.atEnd(background(ctx, pool.Run))
	if add != nil {
		n.t.atEnd(background(ctx, func(ctx context.Context) error { countSuccesses(ctx, pool, add); return nil }))
	}
	return nil
}

// awaitProjected waits until the projector has applied every event.
func (n *node) awaitProjected(ctx context.Context) error {
	return awaitProjected(ctx, n.t.db)
}

// fillOurs enqueues n tasks.
func fillOurs(ctx context.Context, t *trial, n int) error { return fillNamed(ctx, t, n, taskID) }

// fillByPriority enqueues n tasks, of the four priorities in turn.
func fillByPriority(ctx context.Context, t *trial, n int) error {
	return fillWith(ctx, t, n, taskID, func(i int) *ledger.EnqueueOptions {
		return &ledger.EnqueueOptions{Priority: ledger.Priority(1 + i%int(ledger.PriorityLow))}
	})
}

func fillNamed(ctx context.Context, t *trial, n int, name func(i int) string) error {
	return fillWith(ctx, t, n, name, func(int) *ledger.EnqueueOptions { return nil })
}

func fillWith(
	ctx context.Context, t *trial, n int, name func(i int) string, options func(i int) *ledger.EnqueueOptions,
) error {
	return batches(n, 2000, func(from, to int) error {
		entries := make([]ledger.Entry, 0, to-from)
		for i := from; i < to; i++ {
			entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: kind.Name(), BizID: ledger.BizID(name(i))},
				Args: args, Options: options(i)})
		}
		_, err := ledger.EnqueueMany(ctx, t.db, entries)
		return err
	})
}

// noopAtLeastOnce registers a handler that does nothing.
func noopAtLeastOnce(slots int) func(*workers.Pool) error {
	return func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(context.Context, *workers.Job, json.RawMessage) error {
			return nil
		},
			&workers.KindConfig{Slots: slots}))
	}
}

// insertExactlyOnce registers a handler that inserts one business row.
func insertExactlyOnce(slots int) func(*workers.Pool) error { return insertTogether(slots, 1) }

// insertTogether is insertExactlyOnce with several tasks in one transaction.
func insertTogether(slots, together int) func(*workers.Pool) error {
	return registerExactlyOnce(slots, together, func(ctx context.Context, tx pgx.Tx, id string) error {
		return workers.AtCommit(ctx, tx, statement("effect"), id)
	})
}

// insertAndWait is insertExactlyOnce with a handler that waits for the result of its insert.
func insertAndWait(slots int) func(*workers.Pool) error {
	return registerExactlyOnce(slots, 1, func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, statement("effect"), id)
		return err
	})
}

func registerExactlyOnce(
	slots, together int, insert func(ctx context.Context, tx pgx.Tx, id string) error,
) func(*workers.Pool) error {
	return func(p *workers.Pool) error {
		handler := func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ json.RawMessage) error {
			return insert(ctx, tx, string(job.BizID))
		}
		return p.Register(workers.Handle(kind, handler, &workers.KindConfig{Slots: slots, Together: together}))
	}
}

// counter closes done after it has counted n.
type counter struct {
	left atomic.Int64
	done chan struct{}
}

func newCounter(n int) *counter {
	c := &counter{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *counter) add(n int) {
	if left := c.left.Add(-int64(n)); left <= 0 && left+int64(n) > 0 {
		close(c.done)
	}
}

// countSuccesses passes the numbers of successes of a pool to add until ctx is done. Polls cost the tasks nothing; a
// hook would cost each task two goroutines.
func countSuccesses(ctx context.Context, pool *workers.Pool, add func(int)) {
	for counted := int64(0); sleep(ctx, time.Millisecond) == nil; {
		var all int64
		for _, k := range pool.Status().Kinds {
			all += k.Attempts[workers.OutcomeSucceeded]
		}
		if all > counted {
			add(int(all - counted))
		}
		counted = all
	}
}
