package servicetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/dispatcher"
	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/projection"
	"github.com/taskledger/taskledger/internal/scheduler"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/outbox"
	"github.com/taskledger/taskledger/projector"
)

// NewServed returns a bundle whose relay, with these hooks, projector and dispatcher are the real ones.
func NewServed(t testing.TB, c outbox.StreamConfig, hooks ...outbox.Hook) *Bundle {
	t.Helper()
	return NewServedOn(t, Pool(t), c, hooks...)
}

// NewServedOn is [NewServed] on a given database.
func NewServedOn(t testing.TB, db *pgxpool.Pool, c outbox.StreamConfig, hooks ...outbox.Hook) *Bundle {
	t.Helper()
	b := newWithBroker(t, db)
	c.MaxBytes = 1 << 30
	relay := Try(outbox.New(outbox.Config{
		DB: b.As("relay"), NATS: b.Connect(), Stream: c, CheckEvery: 50 * time.Millisecond,
		Logger: b.Logger(slog.LevelInfo).With("loop", "relay"), Hooks: hooks,
	}))(t)
	tasks := Try(
		projector.New(
			projector.Config{DB: b.As("relay"), Logger: b.Logger(slog.LevelInfo).With("loop", "projector")},
		),
	)(
		t,
	)
	b.Start(relay.Run)
	b.Start(tasks.Run)
	b.Await("the stream", func() bool {
		_, err := b.JS.Stream(b.Context(), stream.Name)
		return err == nil
	})
	b.Dispatch()
	return b
}

// Dispatch runs a dispatcher until stop is called or the test ends.
func (b *Bundle) Dispatch() (stop func()) {
	b.T.Helper()
	d := Try(dispatcher.New(dispatcher.Config{
		DB: b.As("relay"), NATS: b.Connect(),
		Logger: b.Logger(slog.LevelInfo).With("loop", "dispatcher"),
	}))(b.T)
	return b.Start(d.Run)
}

// Schedule runs a scheduler, with at most one hook, until the test ends.
func (b *Bundle) Schedule(hook ...scheduler.Hook) {
	b.T.Helper()
	config := scheduler.Config{DB: b.As("relay"), Logger: b.Logger(slog.LevelInfo)}
	for _, h := range hook {
		config.Hook = h
	}
	b.Start(Try(scheduler.New(config))(b.T).Run)
}

// Operator returns an operator.
func (b *Bundle) Operator() *operator.Operator {
	b.T.Helper()
	return operator.New(b.As("operator"))
}

// Project runs a projector until it has caught up.
func (b *Bundle) Project() {
	b.T.Helper()
	p := Try(projector.New(projector.Config{DB: b.As("relay")}))(b.T)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.Await("the projection", func() bool { return Try(projection.ReadLag(b.Context(), b.DB))(b.T).Events == 0 })
	cancel()
	if err := <-ended; err != nil {
		b.T.Fatal(err)
	}
}

// AwaitProjected waits until every event is published and projected.
func (b *Bundle) AwaitProjected() {
	b.T.Helper()
	b.Await("publishing and projecting", func() bool {
		lag := Try(projection.ReadLag(b.Context(), b.DB))(b.T)
		return lag.Events == 0 && One[int](b, "select count(*)::integer from taskledger.outbox") == 0
	})
}
