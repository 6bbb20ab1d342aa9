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

// CallerConfig says how a [Caller] runs handlers. Nil means all defaults.
type CallerConfig struct {
	// KindConfig is that of the workers. A caller uses Timeout, Retry, Middleware and Hooks only.
	KindConfig
	// Name says to people who it is, in the events. Default: <host>-<pid>.
	Name string
	// Logger is told what people should know. Nil: nobody.
	Logger *slog.Logger
}

// Caller enqueues tasks of a kind, and runs the handler itself where too many wait and the kind's
// limit says so ([ledger.CallerRuns]): now, in the transaction of who enqueues, with the task's
// events. So who makes too much work does some of it, and is slowed down by that.
//
// It is for kinds whose handlers write in a transaction, as [Register] has them; for others it would
// break their guarantee. It is safe for concurrent use.
type Caller[A any] struct {
	typed ledger.TypedKind[A]
	kind  *kind
}

// NewCaller returns a caller for a kind, with the handler that its workers have. It returns an error
// if c is invalid, naming every fault.
func NewCaller[A any](k ledger.TypedKind[A], handler func(ctx context.Context, tx pgx.Tx, job *Job, args A) error, c *CallerConfig) (*Caller[A], error) {
	if c == nil {
		c = &CallerConfig{}
	}
	p, err := newPool(Config{Name: c.Name, Logger: c.Logger}.withDefaults(), 0)
	if err != nil {
		return nil, err
	}
	r := registration{name: k.Name(), guarantee: ExactlyOnce, config: &c.KindConfig, handler: c.wrap(decoding(k, handler)), acquire: p.acquire}
	if err := p.register(r); err != nil {
		return nil, err
	}
	return &Caller[A]{typed: k, kind: p.kinds[0]}, nil
}

// Enqueue is [ledger.TypedKind].Enqueue, and just that unless the kind's limit is reached and says
// CallerRuns. Then it enqueues the task, runs the handler, and appends what comes of it: the answer
// says in which state the task is now, succeeded or retrying as a rule, and that is no error. Nothing
// is committed before tx is.
//
// The handler gets tx with a savepoint behind it. If it fails, in whatever way [Register]'s may, what
// it wrote is rolled back, its task is retried, put off, buried or discarded as ever, by workers later
// on, and tx is as usable as before. It runs in a goroutine of its own; Enqueue waits for it. What it
// enqueues with its context has the task as its cause. There is no one to see its progress. A deferred
// constraint that it breaks is found at the end of tx, and breaks that.
//
// Errors: those of [ledger.Enqueue]. Any other means that tx is to be rolled back, and may be tried
// again if [ledger.Retryable] says so: a serialization failure or a deadlock, the end of ctx, or the
// connection was lost. If the handler leaves rows open, or does not return within 5 s after its time
// is over, the connection is closed. If it ends the transaction by COMMIT or ROLLBACK in SQL, it is
// [ledger.ErrTransactionEnded]; the task is buried if that committed it, unless a worker was quicker.
func (c *Caller[A]) Enqueue(ctx context.Context, tx pgx.Tx, id ledger.BizID, args A, o *ledger.EnqueueOptions) (ledger.Enqueued, error) {
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
		return ledger.Enqueued{}, fmt.Errorf("enqueue %s, and run it: %w", answer.Key, err)
	}
	if state != "" { // else nothing was recorded, and workers run it
		answer.Version, answer.State = version, state
	}
	return answer, nil
}

// Status returns what the caller has done since it was made. It is safe for concurrent use.
func (c *Caller[A]) Status() KindStatus { return c.kind.status() }

// runFor runs a task that was just enqueued in tx, in that transaction.
func (k *kind) runFor(ctx context.Context, tx pgx.Tx, key ledger.Key) (ledger.Version, ledger.State, error) {
	now := time.Now()
	history, err := ledger.History(ctx, tx, key)
	if err != nil {
		return 0, "", err
	}
	msg, err := k.messageOf(history[0])
	if err != nil {
		return 0, "", err
	}
	h := attempt.Head{Version: history[0].Version, Type: history[0].Type, Clock: history[0].RecordedAt}
	r := &run{kind: k}
	r.Attempt = attempt.NewPrivate(ctx, k.Kind, k.Tasks.AddWithoutDelivery(msg), h, now, r, tx)
	r.setJob()
	return r.RunPrivate(ctx, tx)
}

// messageOf returns the message that would wake a worker for the first event of a task.
func (k *kind) messageOf(first ledger.Event) (stream.Message, error) {
	payload, err := first.Payload()
	if err != nil {
		return stream.Message{}, err
	}
	wire := stream.Encode(first, payload, stream.Source(k.pool.id), 1)
	stream.Enclose(wire, first.Meta)
	return stream.Decode(wire.Subject, wire.Header, wire.Data)
}
