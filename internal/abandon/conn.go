// Package abandon lets a service end even if a user's function does not return. The connection of the function's
// transaction leaves the pool. The server then rolls back, and the pool can be closed.
package abandon

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// closeTimeout bounds the end of a connection whose socket is closed already.
const closeTimeout = 5 * time.Second

// Conn is a connection of a pool, for a transaction in which functions of users run. It is safe for concurrent use.
type Conn struct {
	conn   *pgx.Conn // constant
	socket net.Conn  // of conn; constant

	mu     sync.Mutex
	pooled *pgxpool.Conn // nil once it has left the pool, or is back in it; guarded by mu
}

// Acquire acquires a connection of a pool. It returns the errors of [pgxpool.Pool.Acquire].
func Acquire(ctx context.Context, db *pgxpool.Pool) (*Conn, error) {
	pooled, err := db.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Conn()
	return &Conn{conn: conn, socket: conn.PgConn().Conn(), pooled: pooled}, nil
}

// Conn returns the connection itself.
func (c *Conn) Conn() *pgx.Conn { return c.conn }

// Abandon breaks the connection; the server then rolls back. The connection leaves the pool, because the pool's Close
// would wait for it. Only the socket is closed, because a function may be executing a statement. After Release, Abandon
// does nothing: the connection may serve another user.
func (c *Conn) Abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pooled == nil {
		return
	}
	_ = c.socket.Close()
	c.pooled.Hijack()
	c.pooled = nil
}

// Release returns the connection to the pool. If the connection was abandoned, is broken or in a transaction, it closes
// it.
func (c *Conn) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pooled == nil { // it was abandoned
		Close(c.conn)
		return
	}
	c.pooled.Release()
	c.pooled = nil
}

// Close closes an abandoned connection, once its function no longer uses it.
func Close(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
