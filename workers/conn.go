package workers

import (
	"context"

	"github.com/taskledger/taskledger/internal/abandon"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// acquire acquires a connection of the pool for the transaction of a handler.
func (p *Pool) acquire(ctx context.Context) (attempt.Conn, error) {
	conn, err := abandon.Acquire(ctx, p.config.DB)
	if err != nil {
		return nil, err // not a nil *abandon.Conn
	}
	return conn, nil
}
