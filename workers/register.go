package workers

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// Registration is a kind with its handler and its configuration, for [Pool.Register] and for a client of package
// taskledger. [Handle], [HandleSQL], [HandleAtLeastOnce] and [HandleAtMostOnce] return one.
type Registration struct {
	name      ledger.Kind
	guarantee Guarantee
	config    *KindConfig
	handler   Handler
	acquire   func(*Pool, context.Context) (attempt.Conn, error) // for its transaction; nil unless ExactlyOnce
}

// Connections returns how many connections to the database the handlers hold at once: one for each slot of an
// ExactlyOnce kind, and none for the other guarantees.
func (r Registration) Connections() int {
	if r.guarantee != ExactlyOnce {
		return 0
	}
	if r.config == nil || r.config.Slots == 0 {
		return defaultSlots
	}
	return r.config.Slots
}

// Register adds kinds. It must be called before [Pool.Run]. It returns an error if a kind is already registered or its
// configuration is invalid, naming every fault.
func (p *Pool) Register(kinds ...Registration) error {
	var faults []error
	for _, r := range kinds {
		faults = append(faults, p.register(r))
	}
	return errors.Join(faults...)
}

// Handle returns the registration of an ExactlyOnce kind, whose handler's effects are rows of the same database. They
// are committed together with the task's succeeded event, or not at all. The handler returns nil to commit and an
// error to roll back and try again; it cannot end the transaction itself, but may open savepoints (tx.Begin). It must
// not use tx after it returned, nor from several goroutines at a time. [AtCommit] saves the round trip of a statement
// whose result is not needed. For a task without args the handler gets the zero value of A. c may be nil.
func Handle[A any](
	k ledger.TypedKind[A], handler func(ctx context.Context, tx pgx.Tx, job *Job, args A) error, c *KindConfig,
) Registration {
	return Registration{
		name: k.Name(), guarantee: ExactlyOnce, config: c, handler: c.wrap(decoding(k, handler)),
		acquire: (*Pool).acquire,
	}
}

// decoding returns a handler without the type of its args.
func decoding[A any](
	k ledger.TypedKind[A], handler func(ctx context.Context, tx pgx.Tx, job *Job, args A) error,
) Handler {
	return func(ctx context.Context, tx pgx.Tx, job *Job, payload []byte) error {
		args, err := k.Decode(payload)
		if err != nil {
			return InvalidArgs(err)
		}
		return handler(ctx, tx, job, args)
	}
}

// withoutTx adapts a handler whose effects are outside of the database.
func withoutTx[A any](
	handler func(ctx context.Context, job *Job, args A) error,
) func(context.Context, pgx.Tx, *Job, A) error {
	return func(ctx context.Context, _ pgx.Tx, job *Job, args A) error { return handler(ctx, job, args) }
}

// HandleAtLeastOnce is [Handle] for a handler with effects outside of the database. It may run more than once for a
// task, even after it has succeeded, if the process ends before that is recorded: use job.Key as the idempotency key
// of the outside system. Successes are recorded in groups.
func HandleAtLeastOnce[A any](
	k ledger.TypedKind[A], handler func(ctx context.Context, job *Job, args A) error, c *KindConfig,
) Registration {
	return Registration{
		name: k.Name(), guarantee: AtLeastOnce, config: c, handler: c.wrap(decoding(k, withoutTx(handler))),
	}
}

// HandleAtMostOnce is [Handle] for a handler with effects outside of the database that must not happen twice, and
// whose repetition the outside system cannot detect. The start of each attempt is committed before its handler runs.
// If an attempt vanishes, its task is buried with the reason "unknown outcome", and an operator examines and releases
// it. That happens when the process ends, when the outcome cannot be recorded, and when the handler returns because
// the pool stops.
//
// A handler that fails is buried too, unless it returns an error of [SafeToRetry], [RetryIn] or [RetryAt]; then the
// retry policy applies. [SnoozeFor] and [SnoozeUntil] are safe to retry as well.
func HandleAtMostOnce[A any](
	k ledger.TypedKind[A], handler func(ctx context.Context, job *Job, args A) error, c *KindConfig,
) Registration {
	return Registration{
		name: k.Name(), guarantee: AtMostOnce, config: c, handler: c.wrap(decoding(k, withoutTx(handler))),
	}
}
