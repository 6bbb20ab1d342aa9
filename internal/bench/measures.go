package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
	"github.com/taskledger/taskledger/workers"
)

var kind = ledger.MustKind[json.RawMessage]("bench.task")

var args = json.RawMessage(`{"customer":"customer-4711","cents":500,"reason":"returning"}`)

// insertEffect is a business row.
const insertEffect = `insert into effect (biz_id) values ($1)`

// measureEnqueue: a business insert and an enqueue a transaction.
func measureEnqueue(ctx context.Context, b *bench) error {
	for _, connections := range []int{1, 8, 32} {
		var done atomic.Int64
		until := time.Now().Add(b.config.Lasts)
		err := concurrently(connections, func(c int) error {
			conn, err := b.db.Acquire(ctx)
			if err != nil {
				return err
			}
			defer conn.Release()
			for i := 0; time.Now().Before(until); i++ {
				id := fmt.Sprintf("%d-%d-%d", connections, c, i)
				err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, insertEffect, id); err != nil {
						return err
					}
					_, err := kind.Enqueue(ctx, tx, ledger.BizID(id), args, nil)
					return err
				})
				if err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("enqueue in a transaction, %d connections", connections), float64(done.Load())/b.config.Lasts.Seconds(), "tx/s")
	}
	return nil
}

// measureRelay: a backlog of 200,000 events to JetStream.
func measureRelay(ctx context.Context, b *bench) error {
	n := b.size(200_000)
	if err := b.fill(ctx, n); err != nil {
		return err
	}
	var published atomic.Int64
	relayed := make(chan struct{})
	stop, err := b.startRelay(ctx, func(messages int) {
		if published.Add(int64(messages)) == int64(n) {
			close(relayed)
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	begin := time.Now()
	<-relayed
	b.add("relay from a backlog", float64(n)/time.Since(begin).Seconds(), "events/s")
	return nil
}

// measureDrainAtLeastOnce: 130,000 tasks, a handler that does nothing, projections on.
func measureDrainAtLeastOnce(ctx context.Context, b *bench) error {
	return b.drain(ctx, b.size(130_000), "at least once, no-op", func(p *workers.Pool) error {
		return workers.RegisterAtLeastOnce(p, kind, func(context.Context, *workers.Job, json.RawMessage) error {
			return nil
		}, &workers.KindConfig{Slots: 1000})
	})
}

// measureDrainExactlyOnce: the handler inserts a row in the completing transaction.
func measureDrainExactlyOnce(ctx context.Context, b *bench) error {
	return b.drain(ctx, b.size(60_000), "exactly once, one insert", func(p *workers.Pool) error {
		return workers.Register(p, kind, func(ctx context.Context, tx pgx.Tx, job *workers.Job, _ json.RawMessage) error {
			_, err := tx.Exec(ctx, insertEffect, string(job.BizID))
			return err
		}, &workers.KindConfig{Slots: 32})
	})
}

// drain fills the ledger, lets relay and projector catch up, then measures workers, relay and
// projector together until everything is done, and the WAL of it all.
func (b *bench) drain(ctx context.Context, n int, name string, register func(*workers.Pool) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wal, err := b.walBytes(ctx)
	if err != nil {
		return err
	}
	if err := b.fill(ctx, n); err != nil {
		return err
	}
	var published atomic.Int64
	stopRelay, err := b.startRelay(ctx, func(messages int) { published.Add(int64(messages)) })
	if err != nil {
		return err
	}
	defer stopRelay()
	stopProjector, err := b.startProjector(ctx)
	if err != nil {
		return err
	}
	defer stopProjector()
	if err := await(ctx, func() (bool, error) { return published.Load() >= int64(n), nil }); err != nil {
		return err
	}
	if err := await(ctx, b.projected(ctx)); err != nil {
		return err
	}

	finished := make(chan struct{})
	pool, err := workers.New(workers.Config{DB: b.db, NATS: b.nc, Hooks: []any{&countdown{left: int64(n), done: finished}}})
	if err != nil {
		return err
	}
	if err := register(pool); err != nil {
		return err
	}
	begin := time.Now()
	stopWorkers := background(ctx, pool.Run)
	defer stopWorkers()
	<-finished
	b.add("drain, "+name, float64(n)/time.Since(begin).Seconds(), "tasks/s")
	if err := await(ctx, b.projected(ctx)); err != nil {
		return err
	}
	b.add("drain, "+name+", projections caught up", float64(n)/time.Since(begin).Seconds(), "tasks/s")
	after, err := b.walBytes(ctx)
	if err != nil {
		return err
	}
	b.add("WAL a task, "+name, (after-wal)/float64(n), "bytes")
	var count int
	if err := b.db.QueryRow(ctx, `select count(*) from taskledger.event where type = 'succeeded'`).Scan(&count); err != nil {
		return err
	}
	if count != n {
		return fmt.Errorf("%d of %d tasks succeeded", count, n)
	}
	return nil
}

// measureLatency: enqueue to handler at 500 a second.
func measureLatency(ctx context.Context, b *bench) error {
	const rate = 500
	n := int(b.config.Lasts.Seconds() * rate)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopRelay, err := b.startRelay(ctx, func(int) {})
	if err != nil {
		return err
	}
	defer stopRelay()
	stopProjector, err := b.startProjector(ctx)
	if err != nil {
		return err
	}
	defer stopProjector()

	var mu sync.Mutex
	enqueued := make(map[ledger.BizID]time.Time, n)
	took := make([]time.Duration, 0, n)
	finished := make(chan struct{})
	pool, err := workers.New(workers.Config{DB: b.db, NATS: b.nc})
	if err != nil {
		return err
	}
	err = workers.RegisterAtLeastOnce(pool, kind, func(_ context.Context, job *workers.Job, _ json.RawMessage) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if began, ok := enqueued[job.BizID]; ok {
			took = append(took, now.Sub(began))
			if len(took) == n {
				close(finished)
			}
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	stopWorkers := background(ctx, pool.Run)
	defer stopWorkers()

	if _, err := kind.Enqueue(ctx, b.db, "warm-up", args, nil); err != nil {
		return err
	}
	if err := await(ctx, func() (bool, error) {
		task, err := ledger.Load(ctx, b.db, ledger.Key{Kind: kind.Name(), BizID: "warm-up"})
		return task.State == ledger.StateSucceeded, err
	}); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		id := ledger.BizID(fmt.Sprint(i))
		mu.Lock()
		enqueued[id] = time.Now() // before the transaction, not after its commit
		mu.Unlock()
		if _, err := kind.Enqueue(ctx, b.db, id, args, nil); err != nil {
			return err
		}
	}
	<-finished
	slices.Sort(took)
	for _, p := range []int{50, 95, 99, 100} {
		b.add(fmt.Sprintf("enqueue to handler at %d/s, p%d", rate, p), float64(took[(len(took)-1)*p/100].Microseconds())/1000, "ms")
	}
	return nil
}

// fill enqueues n tasks.
func (b *bench) fill(ctx context.Context, n int) error {
	const batch = 2000
	for first := 0; first < n; first += batch {
		entries := make([]ledger.Entry, 0, batch)
		for i := first; i < min(n, first+batch); i++ {
			entries = append(entries, ledger.Entry{Key: ledger.Key{Kind: kind.Name(), BizID: ledger.BizID(fmt.Sprintf("task-%08d", i))}, Args: args})
		}
		if _, err := ledger.EnqueueMany(ctx, b.db, entries); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) startRelay(ctx context.Context, published func(int)) (stop func(), err error) {
	relay, err := outbox.New(outbox.Config{DB: b.db, NATS: b.nc, Observer: &outbox.Observer{Published: published}})
	if err != nil {
		return nil, err
	}
	return background(ctx, relay.Run), nil
}

func (b *bench) startProjector(ctx context.Context) (stop func(), err error) {
	p, err := projector.New(projector.Config{DB: b.db})
	if err != nil {
		return nil, err
	}
	return background(ctx, p.Run), nil
}

// projected tells whether the projection has applied every event.
func (b *bench) projected(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		lag, err := projector.ReadLag(ctx, b.db)
		return lag.Events == 0, err
	}
}

// background runs f until the function it returns is called, which waits for its end.
func background(ctx context.Context, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f(ctx)
	}()
	return func() { cancel(); <-done }
}

func await(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// concurrently runs f n times at once and returns the first error.
func concurrently(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// countdown is a hook that closes done after so many attempts.
type countdown struct {
	left int64
	done chan<- struct{}
}

// AfterAttempt is called from many goroutines.
func (c *countdown) AfterAttempt(context.Context, *workers.Job, workers.AttemptEnd) {
	if atomic.AddInt64(&c.left, -1) == 0 {
		close(c.done)
	}
}
