package dispatcher_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// statements counts the statements that begin with a text.
type statements struct {
	atomic.Int64

	begin string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(q.SQL, s.begin) {
		s.Add(1)
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracedPool returns a pool whose statements are traced.
func tracedPool(t *testing.T, pool *pgxpool.Pool, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A worker begins an offered task without a look at its head.
func TestOfferedTasksAreNotReadAgain(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	reads := statements{begin: "-- The heads of the tasks"}
	b.Work(workers.Config{DB: tracedPool(t, ledgertest.As(t, b.DB), &reads), LeaseTTL: time.Minute},
		b.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(b.Enqueue("first"), ledger.StateSucceeded)
	before := reads.Load()
	const tasks = 50
	for i := range tasks {
		b.AwaitState(b.Enqueue("o-"+string(rune('A'+i))), ledger.StateSucceeded)
	}
	if n := reads.Load() - before; n > tasks/10 { // a pause of two seconds asks for one
		t.Errorf("heads were read %d times for %d tasks", n, tasks)
	}
	b.WantOneEffectEach(tasks + 1)
}

// Args that an offer does not carry come with the heads: one statement reads the args of many tasks.
func TestLargeArgsAreReadWithHeads(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	reads := statements{begin: "-- Reads the first events of a task"}
	kind := ledger.MustKind[string]("test.large")
	const tasks, size = 200, 5000
	var entries []ledger.Entry
	for i := range tasks {
		e, err := kind.Entry(ledger.BizID(strconv.Itoa(i)), strings.Repeat("a", size), nil)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if _, err := ledger.EnqueueMany(t.Context(), b.As("producer"), entries); err != nil {
		t.Fatal(err)
	}
	var wrong atomic.Int64
	b.Work(workers.Config{DB: tracedPool(t, ledgertest.As(t, b.DB), &reads)}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(_ context.Context, _ *workers.Job, args string) error {
			if len(args) != size {
				wrong.Add(1)
			}
			return nil
		}, nil))
	})
	b.AwaitSucceeded(tasks)
	if n := reads.Load(); n > 0 || wrong.Load() > 0 {
		t.Errorf("args were read by %d statements, %d of them wrong", n, wrong.Load())
	}
}

// A handler gets the same args, deadline and trace whether the offer carries them or not.
func TestOffersCarryWhatHandlersGet(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	kind := ledger.MustKind[string]("test.content")
	type got struct {
		args, trace string
		within      time.Duration
	}
	results := make(chan got, 1)
	b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(kind, func(
			ctx context.Context, job *workers.Job, args string,
		) error {
			g := got{args: args, trace: job.Traceparent}
			if at, ok := ctx.Deadline(); ok {
				g.within = time.Until(at)
			}
			results <- g
			return nil
		}, &workers.KindConfig{Timeout: 24 * time.Hour}))
	})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, args := range map[string]string{"small": "a", "large": strings.Repeat("a", 5000)} {
		for _, finishIn := range []time.Duration{0, time.Hour} {
			o := ledger.EnqueueOptions{Meta: ledger.Meta{Traceparent: trace}}
			if finishIn > 0 {
				o.FinishBy = time.Now().Add(finishIn)
			}
			id := ledger.BizID(name + finishIn.String())
			if _, err := kind.Enqueue(t.Context(), b.As("producer"), id, args, &o); err != nil {
				t.Fatal(err)
			}
			g := <-results
			if g.args != args || g.trace != trace {
				t.Errorf("%s: %d bytes of args, trace %q", id, len(g.args), g.trace)
			}
			if isShort := g.within < 2*time.Hour; isShort != (finishIn > 0) {
				t.Errorf("%s: the handler has %s", id, g.within)
			}
		}
	}
}

// gate delays the windows of a feed while it is held.
type gate struct {
	sync.Mutex

	isWaiting atomic.Bool
}

func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(q.SQL, "-- Opens a window") {
		g.isWaiting.Store(true)
		g.Lock()
		g.isWaiting.Store(false)
		g.Unlock()
	}
	return ctx
}

func (*gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The dispatcher gives out a lone task when it is notified of the enqueue, while the next window is late.
func TestHintsAreAheadOfWindows(t *testing.T) {
	t.Parallel()
	b := servicetest.New(t)
	var windows gate
	d, err := dispatcher.New(dispatcher.Config{DB: tracedPool(t, b.As("relay"), &windows), NATS: b.Connect()})
	if err != nil {
		t.Fatal(err)
	}
	b.Start(d.Run)
	b.Work(workers.Config{}, b.Exactly(servicetest.InsertEffect, nil))
	b.AwaitState(b.Enqueue("first"), ledger.StateSucceeded)
	const tasks = 10
	ahead := 0
	for i := range tasks {
		windows.Lock()
		b.Await("a window", windows.isWaiting.Load)
		key := b.Enqueue(strconv.Itoa(i))
		// Without a window the lease is not renewed, and the notifications that the last one asked for end.
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if b.Task(key).State == ledger.StateSucceeded {
				ahead++
				break
			}
		}
		windows.Unlock()
		b.AwaitState(key, ledger.StateSucceeded)
	}
	if ahead < tasks/2 {
		t.Errorf("%d of %d tasks were given out ahead of a window", ahead, tasks)
	}
	b.WantOneEffectEach(tasks + 1)
}

// A notification is believed nothing but a position: it gives out nothing that the ledger does not have, and no task
// twice.
func TestForgedHints(t *testing.T) {
	t.Parallel()
	b := servicetest.NewServed(t, outbox.StreamConfig{})
	begun := make(chan ledger.BizID, 100)
	w := b.Work(workers.Config{}, func(p *workers.Pool) error {
		return p.Register(workers.Handle(servicetest.Order,
			func(_ context.Context, job *workers.Job, _ servicetest.OrderArgs) error {
				begun <- job.BizID
				return nil
			}, nil))
	})
	for _, id := range []string{"a", "b"} {
		b.AwaitState(b.Enqueue(id), ledger.StateSucceeded)
	}
	stranger := b.As("reader")
	for _, payload := range []string{"1", "2", "3", "4", "0", "-1", "9223372036854775807", "99999999999999999999", "x",
		"1'; drop table taskledger.event; --", ""} {
		if _, err := stranger.Exec(t.Context(), `select pg_notify('taskledger', $1)`, payload); err != nil {
			t.Fatal(err)
		}
	}
	b.AwaitState(b.Enqueue("c"), ledger.StateSucceeded)
	w.Stop()
	close(begun)
	var all []ledger.BizID
	for id := range begun {
		all = append(all, id)
	}
	if !slices.Equal(all, []ledger.BizID{"a", "b", "c"}) {
		t.Errorf("handlers have begun for %v", all)
	}
}
