package workers

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
)

// handlerTx is what a handler gets: a transaction that it cannot end. Begin still opens a
// savepoint with a Commit and Rollback of its own. Whoever ends it all the same, by COMMIT in
// SQL, is found out by the guard, see [ledger.TxOptions].
//
// A worker's begins with its first statement, so that a quick task, of one statement and the commit,
// takes two round trips.
type handlerTx struct {
	pgx.Tx
	own    *ledger.Tx // the same, if it is a worker's and no [Caller]'s
	holder handlerConn
}

// newTx returns a transaction on the attempt's connection, and of ctx. The server ends it if it is left
// idle for longer than idle; 0: as the server is set.
func (a *attempt) newTx(ctx context.Context, idle time.Duration) *handlerTx {
	t := &handlerTx{holder: a.conn}
	var settings map[string]string
	if idle > 0 {
		settings = map[string]string{"idle_in_transaction_session_timeout": strconv.FormatInt(idle.Milliseconds(), 10)}
	}
	t.own = ledger.BeginOn(ctx, a.conn.Conn(), &ledger.TxOptions{Settings: settings, Guard: true})
	t.Tx = t.own
	return t
}

// Commit returns [ErrNotYours].
func (*handlerTx) Commit(context.Context) error { return ErrNotYours }

// Rollback returns [ErrNotYours].
func (*handlerTx) Rollback(context.Context) error { return ErrNotYours }
