package watermill

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/envelope"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

var (
	errNacked        = errors.New("the message was nacked")
	errNoProduces    = errors.New("handler returned messages: set Config.Produces")
	errNoTransaction = errors.New("handler returned messages: Config.Produces needs a handler with a transaction")
	errContextLost   = errors.New("middleware called the handler with a context other than its message's")
)

// around is a middleware of package workers that calls Watermill's.
func (c Config) around(next workers.Handler) workers.Handler {
	return c.handler(func(msg *message.Message) ([]*message.Message, error) {
		a := attemptOf(msg.Context())
		if a == nil {
			return nil, errContextLost
		}
		return nil, next(msg.Context(), a.tx, a.job, msg.Payload)
	})
}

// handler makes a handler of package workers from a Watermill handler, with the middleware around it.
func (c Config) handler(h message.HandlerFunc) workers.Handler {
	for _, m := range slices.Backward(c.Middleware) {
		h = m(h)
	}
	return func(ctx context.Context, tx pgx.Tx, job *workers.Job, args []byte) error {
		msg, _, err := newMessage(ctx, tx, job, args)
		if err != nil {
			return err
		}
		produced, err := h(msg)
		if err != nil {
			return err
		}
		select {
		case <-msg.Nacked():
			return errNacked
		default:
			return produce(ctx, tx, c.Produces, produced)
		}
	}
}

// produce enqueues the messages that a handler returned.
func produce(ctx context.Context, tx pgx.Tx, kind ledger.Kind, messages []*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	if kind == "" {
		return errNoProduces
	}
	if tx == nil {
		return errNoTransaction
	}
	entries := make([]ledger.Entry, len(messages))
	for i, m := range messages {
		var err error
		if entries[i], err = entryOf(string(kind), m); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	answers, err := ledger.EnqueueInOrder(ctx, tx, entries)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	for _, a := range answers {
		if err := envelope.Conflict(a); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	return nil
}
