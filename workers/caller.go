package workers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// CallerConfig configures a [Caller]. Nil means all defaults.
type CallerConfig struct {
	// Name identifies the caller in the events that it appends. Default: <host>-<pid>.
	Name string
	// Logger receives warnings and errors. Default: [slog.Default].
	Logger *slog.Logger
}

// Caller enqueues tasks of a kind. If the kind's limit is reached and its policy is [ledger.CallerRuns], it runs the
// handler itself, in the transaction that enqueues the task. So a producer that enqueues too much does some of the
// work and slows down. It is safe for concurrent use.
type Caller[A any] struct {
	typed ledger.TypedKind[A]
	kind  *kind
}

// NewCaller returns a caller for a kind, with the registration that the kind's workers have. The handler must have a
// [pgx.Tx]: a Caller would break the guarantee of other kinds. It returns an error that names every fault if r or c is
// invalid.
func NewCaller[A any](k ledger.TypedKind[A], r Registration, c *CallerConfig) (*Caller[A], error) {
	if c == nil {
		c = &CallerConfig{}
	}
	if r.name != k.Name() {
		return nil, fmt.Errorf("workers: caller of kind %q: the registration is of kind %q", k.Name(), r.name)
	}
	if r.guarantee != ExactlyOnce || r.isSQL {
		return nil, fmt.Errorf("workers: caller of kind %q: its handler must have a pgx.Tx", k.Name())
	}
	p, err := newPool(Config{Name: c.Name, Logger: c.Logger}.withDefaults(), 0)
	if err != nil {
		return nil, err
	}
	if err := p.Register(r); err != nil {
		return nil, err
	}
	return &Caller[A]{typed: k, kind: p.kinds[0]}, nil
}

// Enqueue calls [ledger.TypedKind].Enqueue. If the kind's limit is reached and its policy is CallerRuns, it also runs
// the handler and appends the outcome. The result then holds the task's new state, usually succeeded or retrying; a
// failed attempt is not an error. Nothing is committed before tx is.
//
// The handler gets tx behind a savepoint and runs in a goroutine of its own; Enqueue waits for it. If it fails in any
// way that [Handle] describes, its writes are rolled back, the task is retried, snoozed, buried or discarded as usual,
// and tx remains usable. Tasks that it enqueues with its context name this task as their cause. Its progress is not
// published. A deferred constraint that it violates fails the commit of tx.
//
// It returns the errors of [ledger.Enqueue]. After any other error the caller must roll tx back. It may try again if
// [ledger.Retryable] returns true: a serialization failure, a deadlock, the end of ctx or a lost connection. The
// connection is closed if the handler leaves rows open, or does not return within 5 s after its context is done. If
// the handler ends the transaction by COMMIT or ROLLBACK in SQL, the error is [ledger.ErrTransactionEnded]; the task
// is buried if that committed it, unless a worker began it first.
func (c *Caller[A]) Enqueue(
	ctx context.Context, tx pgx.Tx, id ledger.BizID, args A, o *ledger.EnqueueOptions,
) (ledger.Enqueued, error) {
	var options ledger.EnqueueOptions
	if o != nil {
		options = *o
	}
	options.CanRun = true
	answer, err := c.typed.Enqueue(ctx, tx, id, args, &options)
	if err != nil || !answer.MustRun {
		return answer, err
	}
	answer.MustRun = false
	version, state, err := c.kind.runFor(ctx, tx, answer.Key)
	if err != nil {
		return ledger.Enqueued{}, fmt.Errorf("enqueue and run %s: %w", answer.Key, err)
	}
	if state != "" { // otherwise nothing was recorded, and a worker runs it
		answer.Version, answer.State = version, state
	}
	return answer, nil
}

// Status returns the caller's counters since it was created. It is safe for concurrent use.
func (c *Caller[A]) Status() KindStatus { return c.kind.status() }

// runFor runs a task that was just enqueued in tx, in the same transaction.
func (k *kind) runFor(ctx context.Context, tx pgx.Tx, key ledger.Key) (ledger.Version, ledger.State, error) {
	now := time.Now()
	first, err := ledger.ArgsEvent(ctx, tx, key)
	if err != nil {
		return 0, "", err
	}
	msg, err := k.messageOf(first)
	if err != nil {
		return 0, "", err
	}
	h := attempt.Head{Version: first.Version, Type: first.Type, Clock: first.RecordedAt}
	r := &run{kind: k}
	r.Attempt = attempt.NewPrivate(ctx, k.Kind, k.Tasks.Add(msg, false, false), h, now, r, tx)
	r.setJob()
	return r.RunPrivate(ctx, tx)
}

// messageOf returns the first event of a task as attempts need it.
func (k *kind) messageOf(first ledger.Event) (stream.Message, error) {
	payload, err := first.Payload()
	if err != nil {
		return stream.Message{}, err
	}
	wire := stream.Encode(first, payload, stream.Source(k.pool.id))
	stream.Enclose(wire, first.Meta)
	return stream.Decode(wire.Subject, wire.Header, wire.Data)
}
