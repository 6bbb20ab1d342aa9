package attempt

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/unexported"
	"github.com/taskledger/taskledger/ledger"
)

// ownTx is the transactor of an attempt with a transaction of its own: the handler's effects and the succeeded event
// commit together or not at all. The other fields are constant.
type ownTx struct {
	kind *Kind
	tx   *Tx

	isIntact bool // set by check: the transaction could go on, so the handler's error came from another system
}

// runInTransaction runs the attempt on a connection, in a transaction that it shares with other waiting attempts if it
// may, otherwise in its own.
func (a *Attempt) runInTransaction() {
	k, began := a.kind, time.Now()
	select {
	case k.connections <- struct{}{}:
	case <-k.work.Done():
		a.GiveBack()
		return
	}
	defer func() { <-k.connections }()
	conn, err := k.acquire()
	if err != nil {
		k.warn("cannot acquire a connection for a transaction", "biz_id", string(a.task.Message.BizID), "error", err)
		a.later(k.leaseTTL / 2)
		return
	}
	defer conn.Release()
	if a.hasPermit && time.Since(began) > permitFresh && !a.takePermits() {
		k.Again(a.task)
		return
	}
	if s := k.share(a, conn); s != nil {
		s.run(a)
		return
	}
	a.perform(&ownTx{kind: k, tx: newTx(a.base, conn, k.idle())})
}

// acquire acquires a connection for a handler's transaction.
func (k *Kind) acquire() (Conn, error) {
	ctx, cancel := context.WithTimeout(k.work, k.leaseTTL)
	defer cancel()
	return k.Acquire(ctx)
}

func (o *ownTx) handle() pgx.Tx { return o.tx }

func (o *ownTx) check(cause, err error) error {
	conn := o.tx.conn.Conn()
	switch {
	case conn.IsClosed() && cause == nil && !isRefused(err):
		ctx, cancel := o.kind.Operation()
		defer cancel()
		return errors.Join(ErrConnectionLost, o.tx.Open(ctx), err)
	case conn.IsClosed() && err == nil:
		return cause
	case err == nil && conn.PgConn().IsBusy():
		return ErrRowsOpen
	}
	o.isIntact = !conn.IsClosed() && !conn.PgConn().IsBusy() && conn.PgConn().TxStatus() != 'E' && !o.tx.hasFailed
	return err
}

func (o *ownTx) commit(a *Attempt) {
	ctx, cancel := o.kind.Operation()
	defer cancel()
	requests := []ledger.AppendRequest{a.succeeded()}
	unexported.SetLastEvent(&requests[0], a.last())
	events, err := o.tx.own.AppendAndCommit(ctx, requests...)
	if err != nil {
		a.committed(ledger.Event{}, err)
		return
	}
	a.committed(events[0], nil)
}

// undo rolls back. The connection is reused, so that a burst of failures is not a burst of logins.
func (o *ownTx) undo(a *Attempt, cause, err error) {
	ctx, cancel := o.kind.Operation()
	defer cancel()
	_ = o.tx.own.Rollback(ctx)
	a.isElsewhere = o.isIntact && err != nil
	a.conclude(cause, err)
}

func (o *ownTx) close() { o.tx.conn.Abandon() }

func (o *ownTx) abandon(a *Attempt, cause, err error) { a.conclude(cause, err) }

func (o *ownTx) returned(*Attempt) {}
