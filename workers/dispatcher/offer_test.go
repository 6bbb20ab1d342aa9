package dispatcher_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// headReads counts the statements that read heads of tasks.
type headReads struct{ atomic.Int64 }

func (h *headReads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(q.SQL, "-- The heads of the tasks") {
		h.Add(1)
	}
	return ctx
}

func (*headReads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracedPool returns a pool of a worker whose reads of heads are counted.
func tracedPool(t *testing.T, b *servicetest.Bundle, reads *headReads) *pgxpool.Pool {
	t.Helper()
	config := ledgertest.As(t, b.DB).Config()
	config.ConnConfig.Tracer = reads
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
	var reads headReads
	b.Work(workers.Config{DB: tracedPool(t, b, &reads), AckWait: time.Minute},
		servicetest.Exactly(servicetest.InsertEffect, nil))
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
		return workers.RegisterAtLeastOnce(p, kind, func(ctx context.Context, job *workers.Job, args string) error {
			g := got{args: args, trace: job.Traceparent}
			if at, ok := ctx.Deadline(); ok {
				g.within = time.Until(at)
			}
			results <- g
			return nil
		}, &workers.KindConfig{Timeout: 24 * time.Hour})
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
