package workers_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/internal/operator"
	"github.com/taskledger/taskledger/internal/servicetest"
	"github.com/taskledger/taskledger/workers"
)

// bundle is the shared bundle with the methods of these tests.
type bundle struct{ *servicetest.Bundle }

type (
	worker    = servicetest.Worker
	child     = servicetest.Child
	orderArgs = servicetest.OrderArgs
)

const (
	leaseTTL = servicetest.LeaseTTL
	patience = servicetest.Patience
)

var (
	order        = servicetest.Order
	errBoom      = servicetest.ErrBoom
	insertEffect = servicetest.InsertEffect
	atOnce       = servicetest.RetryAtOnce
)

// audit is the author of the operators' changes in these tests.
var audit = operator.Audit{Actor: "alice", Reason: "tried <b>it</b>"}

func setup(t testing.TB) *bundle {
	t.Helper()
	return &bundle{servicetest.New(t)}
}

func setupOn(t testing.TB, db *pgxpool.Pool) *bundle {
	t.Helper()
	return &bundle{servicetest.NewOn(t, db)}
}

func setupDatabase(t testing.TB) *bundle {
	t.Helper()
	return &bundle{servicetest.NewDatabase(t)}
}

func try[T any](v T, err error) func(testing.TB) T { return servicetest.Try(v, err) }

func one[T any](b *bundle, sql string, args ...any) T {
	b.T.Helper()
	return servicetest.One[T](b.Bundle, sql, args...)
}

// in is [servicetest.Bundle.In].
func (b *bundle) in(t testing.TB) *bundle { return &bundle{b.In(t)} }

// insertEffectAtCommit is insertEffect in the round trip of the commit.
func insertEffectAtCommit(ctx context.Context, tx pgx.Tx, job *workers.Job, _ orderArgs) error {
	return workers.AtCommit(
		ctx, tx, servicetest.EffectSQL, string(job.Kind), string(job.BizID), int(job.Attempt),
	)
}

// insertEffectSQL is insertEffect by database/sql.
func insertEffectSQL(ctx context.Context, tx *sql.Tx, job *workers.Job, _ orderArgs) error {
	_, err := tx.ExecContext(ctx, servicetest.EffectSQL, string(job.Kind), string(job.BizID), int(job.Attempt))
	return err
}

// outside returns a handler that inserts an effect in a transaction of its own.
func outside(db *pgxpool.Pool) func(context.Context, *workers.Job, orderArgs) error {
	return func(ctx context.Context, job *workers.Job, _ orderArgs) error {
		_, err := db.Exec(ctx, servicetest.EffectSQL, string(job.Kind), string(job.BizID), int(job.Attempt))
		return err
	}
}

// outside is that handler on the bundle's database.
func (b *bundle) outside(ctx context.Context, job *workers.Job, args orderArgs) error {
	return outside(b.DB)(ctx, job, args)
}

// exactly registers an ExactlyOnce handler of the bundle's kind.
func (b *bundle) exactly(
	h func(context.Context, pgx.Tx, *workers.Job, orderArgs) error, c *workers.KindConfig,
) func(*workers.Pool) error {
	return b.Exactly(h, c)
}

// atLeast registers an AtLeastOnce handler of the bundle's kind.
func (b *bundle) atLeast(
	h func(context.Context, *workers.Job, orderArgs) error, c *workers.KindConfig,
) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return p.Register(workers.Handle(b.Kind(), h, atOnce(c))) }
}

// atMost registers an AtMostOnce handler of the bundle's kind.
func (b *bundle) atMost(
	h func(context.Context, *workers.Job, orderArgs) error, c *workers.KindConfig,
) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return p.Register(workers.Handle(b.Kind(), h, asAtMostOnce(atOnce(c)))) }
}

// asAtMostOnce returns c with that guarantee.
func asAtMostOnce(c *workers.KindConfig) *workers.KindConfig {
	most := *c
	most.Guarantee = workers.AtMostOnce
	return &most
}

// exactlySQL registers an ExactlyOnce handler of the bundle's kind by database/sql.
func (b *bundle) exactlySQL(
	h func(context.Context, *sql.Tx, *workers.Job, orderArgs) error, c *workers.KindConfig,
) func(*workers.Pool) error {
	return func(p *workers.Pool) error { return p.Register(workers.Handle(b.Kind(), h, atOnce(c))) }
}

// byNATS returns register for a pool that talks to the dispatcher over NATS.
func byNATS(register func(*workers.Pool) error) func(*workers.Pool) error {
	return func(p *workers.Pool) error {
		p.TalkByNATS()
		return register(p)
	}
}
