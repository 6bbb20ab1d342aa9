package migrations

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3/lock"
)

// sessionLock holds the advisory lock that every goose takes, which also excludes a goose of the user's own.
// It waits in the server, since goose's own lock would poll every five seconds.
type sessionLock struct{}

func (sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `select pg_advisory_lock($1::bigint)`, lock.DefaultLockID)
	return err
}

func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `select pg_advisory_unlock($1::bigint)`, lock.DefaultLockID)
	return err
}
