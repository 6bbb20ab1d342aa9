package workers

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Handler is the handler of a kind as a [Middleware] calls it. args is the task's payload, not decoded. tx is the
// handler's transaction, with the rules of [Handle]; it is nil unless the kind is ExactlyOnce.
type Handler func(ctx context.Context, tx pgx.Tx, job *Job, args []byte) error

// Middleware returns a handler that calls next, see [KindConfig].Middleware. It is called once, when the kind is
// registered. The handler that it returns is called for each attempt, also concurrently; its error is the attempt's,
// so an attempt succeeds if it returns nil.
//
// A handler passes job on to next, with ctx or a context derived from it, and any args. It passes on tx, or a
// savepoint in it (tx.Begin); handlers of database/sql require tx itself.
type Middleware func(next Handler) Handler
