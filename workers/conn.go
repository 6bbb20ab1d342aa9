package workers

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// connCloseTimeout bounds the end of a connection whose socket is closed already.
const connCloseTimeout = 5 * time.Second

// poolConn is a connection of the pool, for the transaction of a handler. It is safe for concurrent use.
type poolConn struct {
	conn   *pgx.Conn // constant
	socket net.Conn  // of conn; constant

	mu     sync.Mutex
	pooled *pgxpool.Conn // nil once it has left the pool, or is back in it; guarded by mu
}

// acquire acquires a connection of the pool.
func (p *Pool) acquire(ctx context.Context) (attempt.Conn, error) {
	pooled, err := p.config.DB.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Conn()
	return &poolConn{conn: conn, socket: conn.PgConn().Conn(), pooled: pooled}, nil
}

func (c *poolConn) Conn() *pgx.Conn { return c.conn }

// Abandon implements [attempt.Conn]. The connection leaves the pool, whose Close would wait for it otherwise. The
// handler may be in the middle of a statement, so only its socket is closed.
func (c *poolConn) Abandon() {
	_ = c.socket.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pooled != nil {
		c.pooled.Hijack()
		c.pooled = nil
	}
}

func (c *poolConn) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pooled == nil { // it was abandoned
		closeAbandoned(c.conn)
		return
	}
	c.pooled.Release()
	c.pooled = nil
}

// closeAbandoned closes a connection that its handler does not use any more.
func closeAbandoned(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), connCloseTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
