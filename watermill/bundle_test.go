package watermill_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/watermill"
	"github.com/taskledger/taskledger/watermill/internal/watermilltest"
	"github.com/taskledger/taskledger/workers"
)

var order = ledger.MustKind[json.RawMessage]("test.order")

// atOnce retries failed attempts without a delay, which would need a scheduler.
var atOnce = ledger.RetryPolicy{Ladder: []time.Duration{0}, Attempts: 1000}

// bundle is a kit and the workers on it.
type bundle struct{ *watermilltest.Kit }

func newBundle(t testing.TB) *bundle { return &bundle{watermilltest.Start(t)} }

// pool returns a pool that does not run.
func (b *bundle) pool() *workers.Pool {
	b.T.Helper()
	p, err := workers.New(workers.Config{DB: b.DB, NATS: b.NATS, LeaseTTL: 2 * time.Second, Logger: b.Logger()})
	if err != nil {
		b.T.Fatal(err)
	}
	return p
}

// handle returns the registration of a handler of Watermill.
func (b *bundle) handle(kind ledger.Kind, handler message.HandlerFunc, c watermill.Config) workers.Registration {
	b.T.Helper()
	r, err := watermill.Handle(kind, handler, &c)
	if err != nil {
		b.T.Fatal(err)
	}
	return r
}

// config returns the configuration of a kind with Watermill's middleware.
func (b *bundle) config(c watermill.Config) *workers.KindConfig {
	b.T.Helper()
	config, err := c.KindConfig()
	if err != nil {
		b.T.Fatal(err)
	}
	return config
}

// work runs a pool until the test ends.
func (b *bundle) work(kinds ...workers.Registration) {
	b.T.Helper()
	p := b.pool()
	if err := p.Register(kinds...); err != nil {
		b.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.T.Error(err)
		}
	})
}

// subscriber returns a subscriber with these settings of its kinds.
func (b *bundle) subscriber(c workers.KindConfig) *watermill.TaskSubscriber {
	b.T.Helper()
	return b.subscriberThatWaits(2*time.Second, c)
}

// subscriberThatWaits is subscriber with a LeaseTTL.
func (b *bundle) subscriberThatWaits(leaseTTL time.Duration, c workers.KindConfig) *watermill.TaskSubscriber {
	b.T.Helper()
	s, err := watermill.NewTaskSubscriber(watermill.TaskSubscriberConfig{
		Pool: workers.Config{DB: b.DB, NATS: b.NATS, LeaseTTL: leaseTTL, Logger: b.Logger()},
		Kind: c,
	})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { _ = s.Close() })
	return s
}

// createEffects creates the table of insertEffect.
func (b *bundle) createEffects() {
	b.T.Helper()
	b.Exec("create table effect (biz_id text not null, note text)")
}

func insertEffect(ctx context.Context, tx pgx.Tx, job *workers.Job, _ json.RawMessage) error {
	_, err := tx.Exec(ctx, "insert into effect (biz_id) values ($1)", string(job.BizID))
	return err
}
