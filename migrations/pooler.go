package migrations

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrPooler is returned if the address leads to a pooler in transaction mode. The lock of migrations belongs to a
// session, and such a pooler gives each transaction a different session.
var ErrPooler = errors.New("the address leads to a pooler in transaction mode, which loses the lock of migrations: " +
	"connect to PostgreSQL itself, not the pooler")

const (
	// poolerTries is how often two connections are compared: other clients of the pooler may come between them.
	poolerTries = 5
	// poolerPatience is how long the second connection waits for a session. Only a pooler in session mode may lack one.
	poolerPatience = 5 * time.Second
)

// refusePooler returns [ErrPooler] if a connection that is idle and outside of a transaction has lost its session to
// another connection.
func refusePooler(ctx context.Context, databaseURL string) error {
	config, err := parseAddress(databaseURL)
	if err != nil {
		return err
	}
	first, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = first.Close(context.WithoutCancel(ctx)) }() // nothing is lost
	for range poolerTries {
		before, err := serverProcess(ctx, first)
		if err != nil || before == first.PgConn().PID() { // the process that the server names to a direct connection
			return err
		}
		now, err := processOfAnother(ctx, config)
		switch {
		case err != nil || now == 0:
			return err
		case now == before:
			return ErrPooler
		}
	}
	return nil
}

// processOfAnother returns the server process of another connection; 0: it gets no session within poolerPatience.
func processOfAnother(ctx context.Context, config *pgx.ConnConfig) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, poolerPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		var process uint32
		if process, err = serverProcess(ctx, conn); err == nil {
			return process, nil
		}
	}
	if ctx.Err() != nil {
		return 0, nil
	}
	return 0, err
}

// serverProcess returns the server process that executes a statement of a connection. It leaves no prepared statement
// in a session that other clients may get.
func serverProcess(ctx context.Context, conn *pgx.Conn) (process uint32, err error) {
	err = conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid()", pgx.QueryExecModeExec).Scan(&process)
	return process, err
}
