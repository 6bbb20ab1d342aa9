package attempt

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// transactor is the kind of transaction of an attempt. Each serves one attempt, except sharedTx, which serves several
// in turn. The owner of the attempt calls its methods in this order:
//
//	handle ─▶ (handler) ─▶ check ─┬─▶ commit   the handler succeeded
//	                              └─▶ undo     it did not
//	handle ─▶ (handler) ─▶ close, abandon      the handler does not return
//	                       ─▶ returned         it returned after that
type transactor interface {
	// handle returns the transaction for the handler; nil if its effects are elsewhere.
	handle() pgx.Tx
	// check returns err, or why the transaction cannot be committed although the handler returned nil. cause is the
	// cause of the end of the handler's context, or nil.
	check(cause, err error) error
	// commit commits with the succeeded event, now or later, and then records the outcome.
	commit(a *Attempt)
	// undo rolls back the handler's writes, and then records the outcome for err.
	undo(a *Attempt, cause, err error)
	// close breaks the connection of a handler that does not return. Any goroutine may call it.
	close()
	// abandon records the outcome of an attempt whose handler does not return.
	abandon(a *Attempt, cause, err error)
	// returned is called if that handler returns nevertheless.
	returned(a *Attempt)
}

// ErrNotYours is the error of Commit and Rollback of a handler's transaction.
var ErrNotYours = errors.New(
	"workers: a handler must not end its transaction: return nil to commit, an error to roll back",
)

// Tx is the transaction of a handler, which cannot end it. Begin opens a savepoint with its own Commit and Rollback.
// The guard of [ledger.TxOptions] detects a COMMIT or ROLLBACK in SQL.
//
// A worker's transaction begins with its first statement, so that a quick task, of one statement and the commit,
// takes two round trips, and one if the statement is sent with the commit.
type Tx struct {
	pgx.Tx
	own  *ledger.Tx // the same transaction; nil if it is a caller's
	conn Conn       // of own

	hasFailed bool // a savepoint was rolled back after an error of the server
}

// newTx returns a transaction of ctx on a connection. Its session is reset, because other handlers and the worker's
// own statements use it afterwards. The server ends the transaction when it has been idle for idle; 0 means the
// server's setting.
func newTx(ctx context.Context, conn Conn, idle time.Duration) *Tx {
	o := &ledger.TxOptions{Guard: true, ResetSession: true}
	if idle > 0 {
		o.Settings = map[string]string{
			"idle_in_transaction_session_timeout": strconv.FormatInt(idle.Milliseconds(), 10),
		}
	}
	own := ledger.BeginOn(ctx, conn.Conn(), o)
	return &Tx{Tx: own, own: own, conn: conn}
}

// Begin creates a savepoint.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepoint{Tx: inner, of: t}, nil
}

// savepoint notes an error of the server, which its rollback hides.
type savepoint struct {
	pgx.Tx
	of *Tx
}

func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := s.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepoint{Tx: inner, of: s.of}, nil
}

func (s *savepoint) Rollback(ctx context.Context) error {
	if s.Conn().PgConn().TxStatus() == 'E' {
		s.of.hasFailed = true
	}
	return s.Tx.Rollback(ctx)
}

// AtCommit adds a statement to the commit. It returns false, and does nothing, if the transaction is a caller's.
func (t *Tx) AtCommit(sql string, args ...any) bool {
	if t.own == nil {
		return false
	}
	t.own.AtCommit(sql, args...)
	return true
}

// Open begins the transaction, unless a statement has already begun it.
func (t *Tx) Open(ctx context.Context) error { return t.own.Open(ctx) }

// Holder returns the connection as [Kind].Acquire returned it.
func (t *Tx) Holder() Conn { return t.conn }

// Commit returns [ErrNotYours].
func (*Tx) Commit(context.Context) error { return ErrNotYours }

// Rollback returns [ErrNotYours].
func (*Tx) Rollback(context.Context) error { return ErrNotYours }

// idle returns how long a transaction may be idle. If the process hangs or is cut off, the server ends the
// transaction some time after the attempt's timeout.
func (k *Kind) idle() time.Duration {
	if k.Timeout <= 0 {
		return 0
	}
	return k.Timeout + k.Timeout/100 + 2*maxGrace
}

// noTx is the transactor of handlers with effects outside of the database. Their successes are recorded in groups.
type noTx struct{}

func (noTx) handle() pgx.Tx           { return nil }
func (noTx) check(_, err error) error { return err }
func (noTx) commit(a *Attempt) {
	a.kind.completer.add(completion{attempt: a, data: a.succeededData()})
}
func (noTx) undo(a *Attempt, cause, err error)    { a.conclude(cause, err) }
func (noTx) close()                               {}
func (noTx) abandon(a *Attempt, cause, err error) { a.conclude(cause, err) }
func (noTx) returned(*Attempt)                    {}
