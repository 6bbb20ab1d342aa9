package workers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/taskledger/taskledger/internal/abandon"
	"github.com/taskledger/taskledger/workers/internal/attempt"
)

// withSQL adapts a handler that uses database/sql.
func withSQL[A any](
	handler func(ctx context.Context, tx *sql.Tx, job *Job, args A) error,
) func(context.Context, pgx.Tx, *Job, A) error {
	return func(ctx context.Context, tx pgx.Tx, job *Job, args A) error {
		own, ok := tx.(*attempt.Tx)
		if !ok {
			return errForeignTx
		}
		return inSQL(ctx, own, func(tx *sql.Tx) error { return handler(ctx, tx, job, args) })
	}
}

// acquireSQL acquires a connection of the pool in the form that database/sql uses.
func (p *Pool) acquireSQL(ctx context.Context) (attempt.Conn, error) {
	conn, err := stdlib.GetPoolConnector(p.config.DB).Connect(ctx)
	if err != nil {
		return nil, err
	}
	std := conn.(*stdlib.Conn)
	return &sqlConn{std: std, socket: std.Conn().PgConn().Conn()}, nil
}

// sqlConn is a connection of the pool. Package stdlib cannot take it out of the pool, so it stays there until its
// handler returns. It is safe for concurrent use.
type sqlConn struct {
	std    *stdlib.Conn // constant
	socket net.Conn     // of std; constant

	mu          sync.Mutex
	isAbandoned bool // guarded by mu
	isReleased  bool // guarded by mu
}

func (c *sqlConn) Conn() *pgx.Conn { return c.std.Conn() }

func (c *sqlConn) Abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReleased { // the connection may be another user's
		return
	}
	c.isAbandoned = true
	_ = c.socket.Close()
}

func (c *sqlConn) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isReleased = true
	if c.isAbandoned {
		abandon.Close(c.std.Conn())
	}
	_ = c.std.Close()
}

// inSQL calls a handler with the transaction t as a [sql.Tx]. Its database has this one connection; beginning begins
// t, and ending does nothing.
func inSQL(ctx context.Context, t *attempt.Tx, handler func(*sql.Tx) error) error {
	db := sql.OpenDB(sqlDriver{t.Holder().(*sqlConn).std, t})
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // makes tx unusable; nothing is rolled back
	if err := handler(tx); err != nil {
		return err
	}
	if conn := t.Holder().Conn(); !conn.IsClosed() && conn.PgConn().IsBusy() {
		return attempt.ErrRowsOpen
	}
	return nil
}

// sqlDriver is the connection of a handler's transaction, and a connector that returns only it.
type sqlDriver struct {
	*stdlib.Conn
	tx *attempt.Tx
}

func (d sqlDriver) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (sqlDriver) Driver() driver.Driver                          { return stdlib.GetDefaultDriver() }

// BeginTx begins the transaction of the attempt.
func (d sqlDriver) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	return notYours{}, d.tx.Open(ctx)
}

// Close leaves the connection to the attempt.
func (sqlDriver) Close() error { return nil }

// ResetSession does nothing: the connection is used once.
func (sqlDriver) ResetSession(context.Context) error { return nil }

// notYours is a transaction that the handler cannot end.
type notYours struct{}

func (notYours) Commit() error   { return ErrNotYours }
func (notYours) Rollback() error { return ErrNotYours }
