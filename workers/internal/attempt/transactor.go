package attempt

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// transactor is how an attempt has a transaction. One serves one attempt, but for shared, which serves
// several in turn. Its methods are called by the owner of the attempt, in this order:
//
//	handle ─▶ (handler) ─▶ check ─┬─▶ commit   the handler succeeded
//	                              └─▶ undo     it did not
//	handle ─▶ (handler) ─▶ close, abandon      the handler does not return
//	                       ─▶ returned         and then it does
type transactor interface {
	// handle returns the transaction that the handler gets; nil if its effects are elsewhere.
	handle() pgx.Tx
	// check returns err, or why the transaction cannot be committed although the handler returned nil.
	// cause is why its context was cancelled, nil if it was not.
	check(cause, err error) error
	// commit commits with the succeeded event, now or later, and then records what came of it.
	commit(a *Attempt)
	// undo leaves nothing of what the handler wrote, and then records the outcome that err stands for.
	undo(a *Attempt, cause, err error)
	// close breaks the connection under a handler that does not return. It may be called from any goroutine.
	close()
	// abandon records the outcome of an attempt whose handler does not return.
	abandon(a *Attempt, cause, err error)
	// returned is called when that handler has returned after all.
	returned(a *Attempt)
}

// ErrNotYours is what Commit and Rollback of a handler's transaction return.
var ErrNotYours = errors.New("workers: a handler must not end its transaction: return nil to commit, an error to roll back")

// Tx is the transaction that a handler gets: it cannot end it. Begin opens a savepoint with a Commit and
// Rollback of its own. A COMMIT or ROLLBACK in SQL is found by the guard of [ledger.TxOptions].
//
// A worker's transaction begins with its first statement, so that a quick task, of one statement and the
// commit, takes two round trips.
type Tx struct {
	pgx.Tx
	own  *ledger.Tx // the same; nil: it is a caller's
	conn Conn       // of own
}

// newTx returns a transaction of ctx on a connection. The server ends it if it is left idle for longer
// than idle; 0: as the server is configured.
func newTx(ctx context.Context, conn Conn, idle time.Duration) *Tx {
	o := &ledger.TxOptions{Guard: true}
	if idle > 0 {
		o.Settings = map[string]string{"idle_in_transaction_session_timeout": strconv.FormatInt(idle.Milliseconds(), 10)}
	}
	own := ledger.BeginOn(ctx, conn.Conn(), o)
	return &Tx{Tx: own, own: own, conn: conn}
}

// Open begins the transaction, unless a statement has begun it.
func (t *Tx) Open(ctx context.Context) error { return t.own.Open(ctx) }

// Holder returns the connection as [Kind].Acquire returned it.
func (t *Tx) Holder() Conn { return t.conn }

// Commit returns [ErrNotYours].
func (*Tx) Commit(context.Context) error { return ErrNotYours }

// Rollback returns [ErrNotYours].
func (*Tx) Rollback(context.Context) error { return ErrNotYours }

// idle is how long a transaction may be left idle. If the process hangs or is cut off, the server ends it
// some time after the attempt would have timed out.
func (k *Kind) idle() time.Duration {
	if k.Timeout <= 0 {
		return 0
	}
	return k.Timeout + k.Timeout/100 + 2*maxGrace
}

// outside is the transactor of handlers whose effects are outside of the database. Their successes are
// recorded together with those of others.
type outside struct{}

func (outside) handle() pgx.Tx           { return nil }
func (outside) check(_, err error) error { return err }
func (outside) commit(a *Attempt) {
	a.kind.completer.add(completion{attempt: a, request: a.succeeded()})
}
func (outside) undo(a *Attempt, cause, err error)    { a.conclude(cause, err) }
func (outside) close()                               {}
func (outside) abandon(a *Attempt, cause, err error) { a.conclude(cause, err) }
func (outside) returned(*Attempt)                    {}
