package workers_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// twoFailures is a policy of two quick attempts.
var twoFailures = &workers.KindConfig{
	Retry: ledger.RetryPolicy{Ladder: []time.Duration{time.Millisecond}, Jitter: -1},
}

// errPartner is the error of a partner's database.
var errPartner = fmt.Errorf("reserve at the partner: %w", &pgconn.PgError{
	Code: "53300", Message: "too many connections",
})

// An error of another database is a failure of the attempt, even if its SQLSTATE asks for a retry.
func TestErrorOfAnotherDatabaseIsAFailure(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(context.Context, pgx.Tx) error{
		"the transaction has not begun": func(context.Context, pgx.Tx) error { return nil },
		"the transaction is open": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 1")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Dispatch()
			b.Schedule()
			var calls atomic.Int32
			b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, _ *workers.Job, _ orderArgs) error {
				calls.Add(1)
				if err := before(ctx, tx); err != nil {
					return err
				}
				return errPartner
			}, twoFailures))
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateDead)
			if failures := b.failures(k); calls.Load() != 2 || len(failures) != 2 {
				t.Errorf("%d calls, failures %+v; want two of each", calls.Load(), failures)
			}
		})
	}
}

// An error of the transaction behind a savepoint is one of the ledger's database, and uses no attempt.
func TestErrorBehindASavepointUsesNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Dispatch()
	var calls atomic.Int32
	b.Work(workers.Config{}, b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
		if calls.Add(1) > 2 {
			return insertEffect(ctx, tx, job, args)
		}
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `do $$ begin raise sqlstate '40P01'; end $$`)
			return err
		})
	}, nil))
	k := b.Enqueue("o-1")
	b.AwaitState(k, ledger.StateSucceeded)
	if failures := b.failures(k); len(failures) != 0 {
		t.Errorf("failures %+v", failures)
	}
}

// An attempt that always ends because of the database is repeated a number of times without an event. Then it is a
// failure, and each further one too, until the policy ends it.
func TestRepeatsAreBounded(t *testing.T) {
	t.Parallel()
	type register = func(*workers.Pool) error
	b := setup(t)
	b.Exec(`
		create table fatal (n integer);
		create function end_process() returns trigger language plpgsql as $$
		begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
		create constraint trigger fatal after insert on fatal
		initially deferred for each row execute function end_process()`)
	b.Dispatch()
	b.Schedule()
	for name, test := range map[string]struct {
		register func(b *bundle, count func()) register
		message  string
	}{
		"a statement that ends its server process": {
			register: func(b *bundle, count func()) register {
				return b.exactly(func(ctx context.Context, tx pgx.Tx, _ *workers.Job, _ orderArgs) error {
					count()
					_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
					return err
				}, twoFailures)
			},
			message: "the connection of the transaction was lost",
		},
		"a commit that ends its server process": {
			register: func(b *bundle, count func()) register {
				return b.exactly(func(ctx context.Context, tx pgx.Tx, job *workers.Job, args orderArgs) error {
					count()
					_, err := tx.Exec(ctx, "insert into fatal values (1)")
					return err
				}, twoFailures)
			},
		},
		"an error of a database that is not the transaction's": {
			register: func(b *bundle, count func()) register {
				return b.atLeast(func(context.Context, *workers.Job, orderArgs) error {
					count()
					return errPartner
				}, twoFailures)
			},
			message: "too many connections",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := b.in(t)
			var calls atomic.Int32
			b.Work(workers.Config{LeaseTTL: time.Second}, test.register(b, func() { calls.Add(1) }))
			k := b.Enqueue("o-1")
			b.AwaitState(k, ledger.StateDead)
			failures := b.failures(k)
			if n := int(calls.Load()); n != attempt.MaxRepeats+2 || len(failures) != 2 {
				t.Errorf("%d calls, failures %+v; want %d calls and 2 failures", n, failures, attempt.MaxRepeats+2)
			}
			for _, f := range failures {
				if !strings.Contains(f.Error.Message, test.message) {
					t.Errorf("failure %q, want %q", f.Error.Message, test.message)
				}
			}
		})
	}
}
