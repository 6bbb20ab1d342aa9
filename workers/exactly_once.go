package workers

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/fault"
	"github.com/taskledger/taskledger/ledger"
)

// The crash points of a worker, for internal/fault.
const (
	pointReady     = "worker.ready"     // a slot is there, nothing is recorded
	pointClaimed   = "worker.claimed"   // the start is recorded, the handler has not begun
	pointHandler   = "worker.handler"   // the handler is done, nothing is committed
	pointCommitted = "worker.committed" // the outcome is committed, the message not acknowledged
)

// exactly runs an attempt whose effects commit together with its outcome.
func (k *kind) exactly(a *attempt) {
	p := k.pool
	select {
	case p.handlerConns <- struct{}{}:
	case <-p.work.Done():
		k.giveBack(a)
		return
	}
	defer func() { <-p.handlerConns }()
	if err := a.connect(); err != nil {
		k.warn("no connection for a transaction", "biz_id", string(a.job.BizID), "error", err)
		k.settle(a.held, nakAfter(k.retryDelay(a.held)))
		return
	}
	defer a.conn.Release() // a connection that is broken or in a transaction is closed by it

	if k.shares(a) {
		return
	}

	handlerErr := errGoexit // unless the handler returns
	a.begin()
	tx := a.newTx(a.ctx, k.idle())
	defer func() { k.endExactly(a, tx, handlerErr) }()
	handlerErr = a.call(tx)
}

// idle is how long a transaction may be left idle; 0: as the server is set. If the process hangs or is
// cut off, the server ends it some time after the attempt would have timed out.
func (k *kind) idle() time.Duration {
	d := k.config.Timeout
	if d <= 0 {
		return 0
	}
	return d + d/100 + 2*maxAbandonAfter
}

// connect takes a connection for the handler's transaction.
func (a *attempt) connect() error {
	p := a.kind.pool
	ctx, cancel := context.WithTimeout(p.work, p.config.AckWait)
	defer cancel()
	conn, err := a.kind.acquire(ctx)
	if err != nil {
		return err
	}
	a.conn, a.socket = conn, conn.Conn().PgConn().Conn()
	return nil
}

// endExactly commits what the handler did, or sees to it that nothing is left of it.
func (k *kind) endExactly(a *attempt, tx *handlerTx, err error) {
	cause, ok := a.end()
	if !ok {
		a.closeConn()
		return
	}
	k.hand.over(a.held)
	ctx, cancel := k.pool.operation()
	defer cancel()
	conn := a.conn.Conn()
	switch {
	case conn.IsClosed():
		if cause == nil && !refused(err) {
			err = errors.Join(errConnectionLost, tx.own.Open(ctx), err)
		}
	case err == nil && conn.PgConn().IsBusy():
		err = errRowsOpen
	case err == nil && !a.lost:
		fault.Point(pointHandler)
		var events []ledger.Event
		if events, err = tx.own.AppendAndCommit(ctx, a.request(ledger.EventSucceeded, a.succeeded())); err == nil {
			a.appended(events[0])
		}
		k.committed(a, err)
		return
	}
	// The connection is used again, so that a storm of failures does not become one of logins.
	if !conn.IsClosed() && !conn.PgConn().IsBusy() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "rollback")
	}
	k.conclude(a, cause, err)
}

// closeConn closes the connection of an attempt that was abandoned, whose socket somebody else
// closes: it must not go back to the pool.
func (a *attempt) closeConn() {
	ctx, cancel := a.kind.pool.operation()
	defer cancel()
	_ = a.conn.Conn().Close(ctx)
}

// committed ends an attempt after its commit, or after what came of it.
func (k *kind) committed(a *attempt, err error) {
	switch {
	case err == nil:
		k.recorded(a, OutcomeSucceeded, nil)
	case errors.Is(err, ledger.ErrTransactionEnded):
		ctx, cancel := k.pool.operation()
		defer cancel()
		k.fail(ctx, a, err, reasonEnded)
	case errors.Is(err, ledger.ErrTransactionAborted), refused(err):
		k.conclude(a, nil, err)
	default: // fenced; or the outcome is unknown, and the message's next delivery finds out
		k.recorded(a, OutcomeSucceeded, err)
	}
}

// reasonEnded: a task is buried for what its handler did with its transaction.
const reasonEnded = "the handler ended its transaction: what it wrote may be committed"

var errConnectionLost = errors.New("the connection of the transaction was lost")

// succeeded is the data of a succeeded event.
func (a *attempt) succeeded() []byte {
	result := a.job.left()
	b := make([]byte, 0, 128+len(result))
	b = append(b, `{"worker":`...)
	b = append(b, a.kind.pool.quotedID...)
	b = append(b, `,"started_at":"`...)
	b = a.begun.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","duration_ms":`...)
	b = strconv.AppendFloat(b, float64(time.Since(a.begun).Microseconds())/1000, 'f', -1, 64)
	if result != nil {
		b = append(b, `,"result":`...)
		b = append(b, result...)
	}
	return append(b, '}')
}
