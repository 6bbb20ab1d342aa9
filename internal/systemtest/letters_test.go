package systemtest_test

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/workers"
)

// letter is a kind whose tasks wait for its worker.
var letter = ledger.MustKind[struct{}]("letter.send")

// handles makes workers that call a function for each task of a kind.
func handles(kind ledger.TypedKind[struct{}], call func(job *workers.Job)) newRunner {
	return func(db *pgxpool.Pool, nc *nats.Conn, log *slog.Logger) (runner, error) {
		p, err := workers.New(workers.Config{DB: db, NATS: nc, Logger: log, LeaseTTL: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		return p, p.Register(workers.Handle(kind, func(
			ctx context.Context, tx pgx.Tx, job *workers.Job, _ struct{},
		) error {
			call(job)
			return insertEffect(ctx, tx, job)
		}, &workers.KindConfig{Slots: 1}))
	}
}

// startStoppable is start; the result stops the runner, and the test may end without that.
func (d *depot) startStoppable(name string, build newRunner) (stop func()) {
	d.t.Helper()
	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	r, err := build(d.pool(roleOf(name)), nc, slog.New(slog.NewTextHandler(d.t.Output(), nil)).With("runner", name))
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := startRun(ctx, r)
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("%s: %v", name, err)
		}
	})
	d.t.Cleanup(stop)
	return stop
}

// jetStream returns a connection of its own.
func (d *depot) jetStream() jetstream.JetStream {
	d.t.Helper()
	nc, err := outbox.Connect(d.nats.URL())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		d.t.Fatal(err)
	}
	return js
}
