package servicetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
	"github.com/taskledger/taskledger/workers"
)

// LeaseTTL is the shortest one, for workers that a test kills and for tests of what happens when a lease is renewed.
const LeaseTTL = time.Second

// calmLeaseTTL is the LeaseTTL of other workers: a busy machine may take longer than [LeaseTTL] for a statement.
const calmLeaseTTL = 5 * time.Second

// Worker is a running pool.
type Worker struct {
	*workers.Pool
	NC   *nats.Conn
	Stop func() // stops the pool and waits until Run has returned
}

// KindStatus returns the status of the worker's first kind.
func (w *Worker) KindStatus() workers.KindStatus { return w.Status().Kinds[0] }

// Prepare is called for each pool of [Bundle.Work] before its kinds are registered. Nil is skipped.
var Prepare func(testing.TB, *workers.Pool)

// Work runs a pool whose kinds are registered by register, until the test ends.
func (b *Bundle) Work(c workers.Config, register func(*workers.Pool) error) *Worker {
	b.T.Helper()
	if c.DB == nil {
		c.DB = b.As(ledgertest.App)
	}
	if c.NATS == nil {
		c.NATS = b.Connect()
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = calmLeaseTTL
	}
	if c.Logger == nil {
		c.Logger = b.Logger(slog.LevelDebug)
	}
	p := Try(workers.New(c))(b.T)
	if Prepare != nil {
		Prepare(b.T, p)
	}
	if err := register(p); err != nil {
		b.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			b.T.Errorf("worker: %v", err)
		}
	}()
	w := &Worker{Pool: p, NC: c.NATS, Stop: func() {
		cancel()
		<-ended
	}}
	b.T.Cleanup(w.Stop)
	return w
}

// EffectSQL inserts an effect of an attempt. $1 kind; $2 biz_id; $3 attempt.
const EffectSQL = "insert into effect (kind, biz_id, attempt) values ($1, $2, $3)"

// InsertEffect is a handler that inserts an effect.
func InsertEffect(ctx context.Context, tx pgx.Tx, job *workers.Job, _ OrderArgs) error {
	_, err := tx.Exec(ctx, EffectSQL, string(job.Kind), string(job.BizID), int(job.Attempt))
	return err
}

// RetryAtOnce returns c with failed tasks released at once, unless c sets a ladder or a curve.
func RetryAtOnce(c *workers.KindConfig) *workers.KindConfig {
	full := workers.KindConfig{}
	if c != nil {
		full = *c
	}
	if p := &full.Retry; len(p.Ladder) == 0 && p.Unit == 0 && p.Max == 0 {
		p.Ladder = []time.Duration{0}
		if p.Attempts == 0 {
			p.Attempts = ledger.DefaultRetryAttempts
		}
	}
	return &full
}

// Exactly registers an ExactlyOnce handler of the bundle's kind.
func (b *Bundle) Exactly(
	h func(context.Context, pgx.Tx, *workers.Job, OrderArgs) error, c *workers.KindConfig,
) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return p.Register(workers.Handle(b.kind, h, RetryAtOnce(c))) }
}
