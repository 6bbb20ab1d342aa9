package reconciler_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/reconciler"
)

func TestMain(m *testing.M) { servicetest.Main(m, program) }

// slowAckWait is an AckWait that a busy machine does not exceed while a process lives.
const slowAckWait = 3 * time.Second

// program is what child processes do: each runs a worker whose handler waits for its test.
func program(name string) servicetest.Program {
	config := workers.Config{AckWait: servicetest.AckWait}
	switch name {
	case "exactly once, slow AckWait":
		config.AckWait = slowAckWait
	case "exactly once, default AckWait":
		config.AckWait = 0
	}
	return servicetest.WorkerProgram(config, func(p *workers.Pool, _ *pgxpool.Pool) error {
		if name == "at most once" {
			return workers.RegisterAtMostOnce(
				p,
				servicetest.Order,
				func(context.Context, *workers.Job, servicetest.OrderArgs) error {
					return servicetest.Hold()
				},
				nil,
			)
		}
		return workers.Register(
			p,
			servicetest.Order,
			func(ctx context.Context, tx pgx.Tx, job *workers.Job, args servicetest.OrderArgs) error {
				if err := servicetest.InsertEffect(ctx, tx, job, args); err != nil {
					return err
				}
				return servicetest.Hold()
			},
			&workers.KindConfig{MaxLost: 3},
		)
	})
}

// fixture is the shared bundle with a relay, a projector and the consumers of kind Order.
type fixture struct{ *servicetest.Bundle }

func setup(t testing.TB, c outbox.StreamConfig) *fixture {
	t.Helper()
	return &fixture{servicetest.NewServed(t, c)}
}

// reconciler returns a reconciler that reads all tasks, so that a test need not wait until they are listed.
func (b *fixture) reconciler(db *pgxpool.Pool) *reconciler.Reconciler {
	b.T.Helper()
	return reconciler.Walk(b.listReconciler(db))
}

// listReconciler returns a reconciler that uses the list of lingering tasks when there is one.
func (b *fixture) listReconciler(db *pgxpool.Pool) *reconciler.Reconciler {
	b.T.Helper()
	return servicetest.Try(reconciler.New(reconciler.Config{
		DB: db, NATS: b.NC, Every: 50 * time.Millisecond, Grace: time.Millisecond, Logger: b.Logger(slog.LevelInfo),
	}))(b.T)
}

// passes runs n passes.
func (b *fixture) passes(r *reconciler.Reconciler, n int) {
	b.T.Helper()
	for range n {
		if err := r.Pass(b.Context()); err != nil {
			b.T.Fatal(err)
		}
	}
}

// releases counts the events by which tasks were made available again.
func (b *fixture) releases() int {
	b.T.Helper()
	return servicetest.One[int](
		b, "select count(*)::integer from taskledger.event where type in ('released', 'interrupted')",
	)
}
