package attempt

import (
	"context"
	_ "embed"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"crypto/rand"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/role_read.sql
	roleReadSQL string
	//go:embed sql/role_set.sql
	roleSetSQL string
)

// callerTx is the transactor of an attempt in the transaction of the process that enqueued its task. A savepoint
// separates the handler's writes. Its random name also reveals whether the handler ended the transaction: no code can
// create it again. The fields are constant.
type callerTx struct {
	kind      *Kind
	ctx       context.Context // of the caller
	tx        pgx.Tx
	socket    net.Conn
	savepoint string
	role      string        // of the caller, with which the outcome is appended
	abandoned chan struct{} // closed when the handler is abandoned
}

// savepoints names savepoints: a random prefix and a number.
var savepoints = struct {
	prefix string
	number atomic.Uint64
}{prefix: "taskledger_" + strings.ToLower(rand.Text()[:10]) + "_"}

// NewPrivate returns an attempt at a task that was enqueued in the open transaction tx, for RunPrivate.
func NewPrivate(ctx context.Context, k *Kind, t *Task, h Head, decided time.Time, w Work, tx pgx.Tx) *Attempt {
	a := New(k, t, Begin, h, decided, w)
	a.base, a.store, a.private = ctx, tx, true
	return a
}

// RunPrivate runs an attempt in the transaction of its caller, and returns the task's last version and state, which
// commit with tx. After an error the caller must roll back.
func (a *Attempt) RunPrivate(ctx context.Context, tx pgx.Tx) (ledger.Version, ledger.State, error) {
	c := &callerTx{
		kind: a.kind, ctx: ctx, tx: tx, socket: tx.Conn().PgConn().Conn(),
		savepoint: savepoints.prefix + strconv.FormatUint(savepoints.number.Add(1), 36), abandoned: make(chan struct{}),
	}
	var isLimited bool
	err := tx.QueryRow(ctx, roleReadSQL, string(a.kind.Name)).Scan(&c.role, &isLimited)
	if err == nil {
		_, err = tx.Exec(ctx, "savepoint "+c.savepoint)
	}
	if err == nil && isLimited && !a.isExpired() {
		err = c.start(ctx, a)
	}
	if errors.Is(err, ledger.ErrStartLimit) { // a worker runs it
		if err = c.rollback(ctx); err == nil {
			err = c.release(ctx)
		}
		a.kind.Tasks.End(a.task)
		return 0, "", err
	}
	if err != nil {
		a.kind.Tasks.End(a.task)
		return 0, "", err
	}
	done := make(chan struct{})
	go func() { // the handler may end this goroutine
		defer close(done)
		a.kind.running.Add(1)
		defer a.kind.running.Add(-1)
		if a.isExpired() {
			a.expire()
			_ = c.release(ctx)
			return
		}
		a.perform(c)
	}()
	select {
	case <-done:
	case <-c.abandoned:
	}
	if a.outcome == OutcomeRetried {
		return 0, "", errors.Join(a.outcomeErr, a.err)
	}
	return a.version, a.state, nil
}

// start records the start of the attempt, which takes a permit, and makes the savepoint follow it.
func (c *callerTx) start(ctx context.Context, a *Attempt) error {
	e, err := ledger.Append(ctx, c.tx, a.request(ledger.EventStarted, nil))
	if err != nil {
		return err
	}
	a.version, a.claimed = e.Version, true
	if err := c.release(ctx); err != nil {
		return err
	}
	_, err = c.tx.Exec(ctx, "savepoint "+c.savepoint)
	return err
}

func (c *callerTx) handle() pgx.Tx { return &Tx{Tx: c.tx} }

func (c *callerTx) check(_, err error) error {
	switch conn := c.tx.Conn(); {
	case conn.IsClosed():
		return errors.Join(ErrConnectionLost, err)
	case conn.PgConn().IsBusy():
		return errors.Join(ErrRowsOpen, err)
	case err != nil:
		return err
	case conn.PgConn().TxStatus() == 'E':
		return ledger.ErrTransactionAborted
	case conn.PgConn().TxStatus() == 'I':
		return ledger.ErrTransactionEnded
	}
	return nil
}

func (c *callerTx) commit(a *Attempt) {
	ctx, cancel := c.kind.Operation()
	defer cancel()
	var e ledger.Event
	_, err := c.tx.Exec(ctx, roleSetSQL, c.role)
	if err == nil {
		e, err = ledger.Append(ctx, c.tx, a.succeeded())
	}
	if err != nil {
		c.undo(a, nil, err)
		return
	}
	if c.release(ctx) != nil {
		c.buryEnded(ctx, a)
		return
	}
	a.committed(e, nil)
}

func (c *callerTx) undo(a *Attempt, cause, err error) {
	ctx, cancel := c.kind.Operation()
	defer cancel()
	conn := c.tx.Conn()
	switch {
	case conn.IsClosed():
		a.mustRollBack(err)
		return
	case conn.PgConn().IsBusy(): // a rollback is impossible while rows are open
		_ = conn.Close(ctx)
		a.mustRollBack(err)
		return
	case c.rollback(ctx) != nil:
		c.buryEnded(ctx, a)
		return
	case c.ctx.Err() != nil:
		a.mustRollBack(context.Cause(c.ctx))
		return
	}
	a.conclude(cause, err)
	if conn.PgConn().TxStatus() == 'E' { // the outcome was refused
		_ = c.rollback(ctx)
	}
	_ = c.release(ctx)
}

// release ends the savepoint and keeps the writes behind it.
func (c *callerTx) release(ctx context.Context) error {
	_, err := c.tx.Conn().Exec(ctx, "release savepoint "+c.savepoint)
	return err
}

// rollback undoes the writes behind the savepoint.
func (c *callerTx) rollback(ctx context.Context) error {
	_, err := c.tx.Conn().Exec(ctx, "rollback to savepoint "+c.savepoint)
	return err
}

func (c *callerTx) close() { _ = c.socket.Close() }

// abandon returns to the caller. It closes the connection, which the handler may still use.
func (c *callerTx) abandon(a *Attempt, _, err error) {
	a.mustRollBack(err)
	close(c.abandoned)
}

func (c *callerTx) returned(*Attempt) { <-c.abandoned }

// buryEnded ends an attempt whose savepoint is gone because its handler has ended the caller's transaction. If that
// committed the task, buryEnded buries it, so that it is not run again unnoticed.
func (c *callerTx) buryEnded(ctx context.Context, a *Attempt) {
	conn := c.tx.Conn()
	if conn.IsClosed() {
		a.mustRollBack(ErrConnectionLost)
		return
	}
	if conn.PgConn().TxStatus() != 'I' { // a transaction that the handler began
		_, _ = conn.Exec(ctx, "rollback")
	}
	_, _ = conn.Exec(ctx, "begin")
	a.fail(ctx, ledger.ErrTransactionEnded, reasonEnded)
	_, _ = conn.Exec(ctx, "commit")
	a.outcome, a.outcomeErr = OutcomeRetried, ledger.ErrTransactionEnded
}

// mustRollBack ends an attempt whose caller must roll back.
func (a *Attempt) mustRollBack(err error) {
	a.endWith(OutcomeRetried, err)
	a.kind.Tasks.End(a.task)
}
