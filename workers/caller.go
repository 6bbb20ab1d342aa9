package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
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
	p, err := newPool(Config{Name: c.Name, Logger: c.Logger}.withDefaults())
	if err != nil {
		return nil, err
	}
	p.work = context.Background()
	if err := p.register(k.Name(), ExactlyOnce, &c.KindConfig, c.wrap(decoding(k, handler))); err != nil {
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
	end, err := c.kind.runFor(ctx, tx, answer.Key)
	if err != nil {
		return ledger.Enqueued{}, fmt.Errorf("enqueue %s, and run it: %w", answer.Key, err)
	}
	answer.MustRun = false
	if end.state != "" { // else nothing was recorded, and workers run it
		answer.State, answer.Version = end.state, end.caller.version
	}
	return answer, nil
}

// Status returns what the caller has done since it was made. It is safe for concurrent use.
func (c *Caller[A]) Status() KindStatus { return c.kind.status() }

// caller is who enqueues a task and runs it.
type caller struct {
	ctx       context.Context
	tx        pgx.Tx
	savepoint string // behind which nothing is but what the handler does. It is also how to tell that the handler ended tx
	version   ledger.Version
	outcome   Outcome
	err       error
	forsaken  chan struct{} // closed when the handler is not waited for any more
}

// runFor runs a task that was just enqueued, in the transaction of who did.
func (k *kind) runFor(ctx context.Context, tx pgx.Tx, key ledger.Key) (*attempt, error) {
	a, err := k.newCall(ctx, tx, key)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "savepoint "+a.caller.savepoint); err != nil {
		return nil, err
	}
	k.hand.put(a.held)
	done := make(chan struct{})
	go func() { // which the handler may end
		defer close(done)
		k.running.Add(1)
		defer k.running.Add(-1)
		if a.expired() {
			k.expire(a)
			_ = a.caller.do(ctx, "release")
			return
		}
		k.callHandler(a)
	}()
	select {
	case <-done:
	case <-a.caller.forsaken:
	}
	if a.caller.outcome == OutcomeRetried {
		return nil, errors.Join(a.caller.err, a.err)
	}
	return a, nil
}

// newCall returns the attempt at a task as a worker would have it that got its message.
func (k *kind) newCall(ctx context.Context, tx pgx.Tx, key ledger.Key) (*attempt, error) {
	now := time.Now()
	history, err := ledger.History(ctx, tx, key)
	if err != nil {
		return nil, err
	}
	first := history[0]
	payload, err := first.Payload()
	if err != nil {
		return nil, err
	}
	wire := stream.Encode(first, payload, stream.Source(k.pool.id), 1)
	stream.Enclose(wire, first.Meta)
	msg, err := stream.Decode(wire.Subject, wire.Header, wire.Data)
	if err != nil {
		return nil, err
	}
	a := k.newAttempt(&held{msg: msg}, run, head{version: first.Version, eventType: first.Type, clock: first.RecordedAt}, 1, now)
	a.caller = &caller{
		ctx: ctx, tx: tx, savepoint: "taskledger_" + strings.TrimSuffix(k.pool.guardPrefix, ".") + "_" + strconv.FormatUint(k.pool.guards.Add(1), 36),
		forsaken: make(chan struct{}),
	}
	a.socket = tx.Conn().PgConn().Conn()
	return a, nil
}

// callHandler runs the handler between the savepoint and the outcome.
func (k *kind) callHandler(a *attempt) {
	handlerErr := errGoexit // unless the handler returns
	defer func() { k.endCall(a, handlerErr) }()
	a.begin()
	handlerErr = a.call(&handlerTx{Tx: a.caller.tx})
}

// endCall appends what came of a handler to the caller's transaction, or sees to it that nothing is
// left of what it did.
func (k *kind) endCall(a *attempt, err error) {
	cause, ok := a.end()
	if !ok {
		<-a.caller.forsaken
		return
	}
	k.hand.over(a.held)
	ctx, cancel := k.pool.operation()
	defer cancel()
	c := a.caller
	conn := c.tx.Conn()
	switch {
	case conn.IsClosed():
		k.broken(a, errors.Join(errConnectionLost, err))
		return
	case conn.PgConn().IsBusy(): // nothing can be undone beside open rows
		_ = conn.Close(ctx)
		k.broken(a, errors.Join(errRowsOpen, err))
		return
	case err == nil && conn.PgConn().TxStatus() == 'E':
		err = ledger.ErrTransactionAborted
	case err == nil && conn.PgConn().TxStatus() == 'T':
		fault.Point(pointHandler)
		var e ledger.Event
		if e, err = ledger.Append(ctx, c.tx, a.request(ledger.EventSucceeded, a.succeeded())); err == nil {
			if c.do(ctx, "release") != nil {
				k.endedTx(ctx, a)
				return
			}
			a.appended(e)
			k.recorded(a, OutcomeSucceeded, nil)
			return
		}
	}
	if c.do(ctx, "rollback to") != nil {
		k.endedTx(ctx, a)
		return
	}
	if c.ctx.Err() != nil {
		k.broken(a, context.Cause(c.ctx))
		return
	}
	k.conclude(a, cause, err)
	if conn.PgConn().TxStatus() == 'E' { // the outcome was refused
		_ = c.do(ctx, "rollback to")
	}
	_ = c.do(ctx, "release")
}

// do ends the savepoint.
func (c *caller) do(ctx context.Context, how string) error {
	_, err := c.tx.Conn().Exec(ctx, how+" savepoint "+c.savepoint)
	return err
}

// broken ends an attempt whose caller has to roll back.
func (k *kind) broken(a *attempt, err error) {
	k.ended(a, OutcomeRetried, err)
	k.settle(a.held, nil)
}

// forsake ends an attempt whose handler does not return: it has the connection, which is closed.
func (k *kind) forsake(a *attempt, err error) {
	k.broken(a, err)
	close(a.caller.forsaken)
}

// endedTx ends an attempt whose savepoint is gone: its handler ended the transaction of its caller. If
// the task was committed by that, nobody should run it again who does not know.
func (k *kind) endedTx(ctx context.Context, a *attempt) {
	conn := a.caller.tx.Conn()
	if conn.IsClosed() {
		k.broken(a, errConnectionLost)
		return
	}
	if conn.PgConn().TxStatus() != 'I' { // that of another one, which is the handler's
		_, _ = conn.Exec(ctx, "rollback")
	}
	_, _ = conn.Exec(ctx, "begin")
	k.fail(ctx, a, ledger.ErrTransactionEnded, reasonEnded)
	_, _ = conn.Exec(ctx, "commit")
	a.caller.outcome, a.caller.err = OutcomeRetried, ledger.ErrTransactionEnded
}
