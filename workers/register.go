package workers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// Registration is a kind with its handler and its configuration, for [Pool.Register], [NewCaller] and a client of
// package taskledger. [Handle] returns one.
type Registration struct {
	name      ledger.Kind
	guarantee Guarantee
	config    *KindConfig
	handler   Handler
	acquire   func(*Pool, context.Context) (attempt.Conn, error) // for its transaction; nil: it has none
	isSQL     bool                                               // the transaction is a [sql.Tx]
	remote    *gatewayKind                                       // where its handler waits for an outcome; or nil
	fault     error                                              // why it cannot be registered
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

// HandlerOf is a handler of tasks whose args are of type A. It has a transaction if its effects are in the ledger's
// database, see [Handle].
type HandlerOf[A any] interface {
	func(ctx context.Context, tx pgx.Tx, job *Job, args A) error |
		func(ctx context.Context, tx *sql.Tx, job *Job, args A) error |
		func(ctx context.Context, job *Job, args A) error
}

// Handle returns the registration of a kind with its handler. For a task without args the handler gets the zero value
// of A. c may be nil. The handler's form and c.Guarantee decide how often its effects may happen:
//
// With a transaction, the kind is ExactlyOnce. The handler's effects are rows of the same database. They are committed
// together with the task's succeeded event, or not at all. The handler returns nil to commit and an error to roll back
// and try again; it cannot end the transaction itself, but may open savepoints (tx.Begin). It must not use tx after it
// returned, nor from several goroutines at a time. [AtCommit] saves the round trip of a statement whose result is not
// needed. A [sql.Tx] is for database/sql, and libraries on top of it: it is READ COMMITTED, on a connection of the
// pool; tx.Commit and tx.Rollback return [ErrNotYours]. To enqueue in it, wrap it by stdsql.Wrap. A task of one
// statement then takes three round trips, not two: the transaction begins before its first statement.
//
// Without a transaction, the effects are elsewhere, and the kind is AtLeastOnce. The handler may run more than once for
// a task, even after it has succeeded, if the process ends before that is recorded: use job.Key as the idempotency key
// of the outside system. Successes are recorded in groups.
//
// With c.Guarantee AtMostOnce, the effects are elsewhere too, but must not happen twice, and the outside system cannot
// detect a repetition. The start of each attempt is committed before its handler runs. If an attempt vanishes, its task
// is buried with the reason "unknown outcome", and an operator examines and releases it. That happens when the process
// ends, when the outcome cannot be recorded, and when the handler returns because the pool stops. A handler that fails
// is buried too, unless it returns an error of [SafeToRetry], [RetryIn] or [RetryAt]; then the retry policy applies.
// [SnoozeFor] and [SnoozeUntil] are safe to retry as well.
func Handle[A any, H HandlerOf[A]](k ledger.TypedKind[A], handler H, c *KindConfig) Registration {
	r := Registration{name: k.Name(), config: c, guarantee: ExactlyOnce}
	switch handler := any(handler).(type) {
	case func(context.Context, pgx.Tx, *Job, A) error:
		r.handler, r.acquire = decoding(k, handler), (*Pool).acquire
	case func(context.Context, *sql.Tx, *Job, A) error:
		r.handler, r.acquire, r.isSQL = decoding(k, withSQL(handler)), (*Pool).acquireSQL, true
	case func(context.Context, *Job, A) error:
		r.handler, r.guarantee = decoding(k, withoutTx(handler)), AtLeastOnce
	}
	if c == nil {
		return r
	}
	r.handler = wrap(r.handler, c.Middleware)
	if c.Guarantee == AtMostOnce && r.guarantee == AtLeastOnce {
		r.guarantee = AtMostOnce
	}
	if c.Guarantee != "" && c.Guarantee != r.guarantee {
		r.fault = fmt.Errorf("the handler's guarantee is %s, and Guarantee is %q: ExactlyOnce needs a transaction, "+
			"and the others a handler without one", r.guarantee, c.Guarantee)
	}
	return r
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
