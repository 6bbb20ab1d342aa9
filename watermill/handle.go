package watermill

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// Handle returns the registration of a kind with a handler of Watermill. It receives a task as the message that was
// published, in an ExactlyOnce attempt: [TxFromContext] returns the transaction to write in. The messages that it
// returns become tasks of the kind c.Produces in that transaction. All of it is committed with the task's succeeded
// event or not at all. Otherwise it is like [workers.Handle]. c may be nil.
func Handle(kind ledger.Kind, handler message.HandlerFunc, c *Config) (workers.Registration, error) {
	if c == nil {
		c = &Config{}
	}
	if err := c.validate(workers.ExactlyOnce); err != nil {
		return workers.Registration{}, invalid(kind, err)
	}
	raw, err := ledger.NewKind[[]byte](kind)
	if err != nil {
		return workers.Registration{}, invalid(kind, err)
	}
	return workers.Handle(raw, c.handler(handler), &c.Kind), nil
}
