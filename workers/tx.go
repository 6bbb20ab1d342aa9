package workers

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// handlerTx is what a handler gets: a transaction that it cannot end. Begin still opens a
// savepoint with a Commit and Rollback of its own. Whoever ends it all the same, by COMMIT in
// SQL, is found out by the guard, see [ledger.AppendAndCommit].
type handlerTx struct{ pgx.Tx }

// Commit returns [ErrNotYours].
func (handlerTx) Commit(context.Context) error { return ErrNotYours }

// Rollback returns [ErrNotYours].
func (handlerTx) Rollback(context.Context) error { return ErrNotYours }
