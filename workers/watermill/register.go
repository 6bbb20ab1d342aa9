package watermill

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/workers"
)

// RegisterMessages adds a kind with a handler of Watermill. It receives a task as the message that was
// published, in an ExactlyOnce attempt: [TxFromContext] returns the transaction to write in. The messages
// that it returns become tasks of the kind c.Produces in that transaction. All of it is committed with
// the task's succeeded event or not at all. Otherwise it is like [workers.Register].
func RegisterMessages(p *workers.Pool, kind ledger.Kind, handler message.HandlerFunc, c *Config) error {
	if c == nil {
		c = &Config{}
	}
	if err := c.validate(workers.ExactlyOnce); err != nil {
		return registration(kind, err)
	}
	raw, err := ledger.NewKind[[]byte](kind)
	if err != nil {
		return registration(kind, err)
	}
	return workers.Register(p, raw, c.handler(handler), &c.Kind)
}

// Register is [workers.Register] with Watermill's middleware around the handler.
func Register[A any](
	p *workers.Pool, k ledger.TypedKind[A],
	handler func(ctx context.Context, tx pgx.Tx, job *workers.Job, args A) error, c *Config,
) error {
	config, err := c.kindConfig(k.Name(), workers.ExactlyOnce)
	if err != nil {
		return err
	}
	return workers.Register(p, k, handler, config)
}

// RegisterSQL is [workers.RegisterSQL] with Watermill's middleware around the handler.
func RegisterSQL[A any](
	p *workers.Pool, k ledger.TypedKind[A],
	handler func(ctx context.Context, tx *sql.Tx, job *workers.Job, args A) error, c *Config,
) error {
	config, err := c.kindConfig(k.Name(), workers.ExactlyOnce)
	if err != nil {
		return err
	}
	return workers.RegisterSQL(p, k, handler, config)
}

// RegisterAtLeastOnce is [workers.RegisterAtLeastOnce] with Watermill's middleware around the handler.
func RegisterAtLeastOnce[A any](
	p *workers.Pool, k ledger.TypedKind[A],
	handler func(ctx context.Context, job *workers.Job, args A) error, c *Config,
) error {
	config, err := c.kindConfig(k.Name(), workers.AtLeastOnce)
	if err != nil {
		return err
	}
	return workers.RegisterAtLeastOnce(p, k, handler, config)
}

// RegisterAtMostOnce is [workers.RegisterAtMostOnce] with Watermill's middleware around the handler.
func RegisterAtMostOnce[A any](
	p *workers.Pool, k ledger.TypedKind[A],
	handler func(ctx context.Context, job *workers.Job, args A) error, c *Config,
) error {
	config, err := c.kindConfig(k.Name(), workers.AtMostOnce)
	if err != nil {
		return err
	}
	return workers.RegisterAtMostOnce(p, k, handler, config)
}

// NewCaller is [workers.NewCaller] with Watermill's middleware around the handler.
func NewCaller[A any](
	k ledger.TypedKind[A],
	handler func(ctx context.Context, tx pgx.Tx, job *workers.Job, args A) error, c *CallerConfig,
) (*workers.Caller[A], error) {
	if c == nil {
		c = &CallerConfig{}
	}
	config, err := c.kindConfig(k.Name(), workers.ExactlyOnce)
	if err != nil {
		return nil, err
	}
	return workers.NewCaller(k, handler, &workers.CallerConfig{KindConfig: *config, Name: c.Name, Logger: c.Logger})
}
