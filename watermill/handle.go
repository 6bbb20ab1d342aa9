package watermill

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Handle returns the registration of a kind with a handler of Watermill. It receives a task as the message that was
// published, by default in an ExactlyOnce attempt: [TxFromContext] returns the transaction to write in. The messages
// that it returns become tasks of the kind c.Produces in that transaction. All of it is committed with the task's
// succeeded event or not at all. With another guarantee, in c.Kind, there is no transaction. Otherwise it is like
// [workers.Handle]. c may be nil.
func Handle(kind ledger.Kind, handler message.HandlerFunc, c *Config) (workers.Registration, error) {
	if c == nil {
		c = &Config{}
	}
	if err := c.validate(); err != nil {
		return workers.Registration{}, invalid(kind, err)
	}
	raw, err := ledger.NewKind[[]byte](kind)
	if err != nil {
		return workers.Registration{}, invalid(kind, err)
	}
	handle := (func(context.Context, pgx.Tx, *workers.Job, []byte) error)(c.handler(handler))
	if c.Kind.Guarantee == "" || c.Kind.Guarantee == workers.ExactlyOnce {
		return workers.Handle(raw, handle, &c.Kind), nil
	}
	return workers.Handle(raw, func(ctx context.Context, job *workers.Job, args []byte) error {
		return handle(ctx, nil, job, args)
	}, &c.Kind), nil
}
