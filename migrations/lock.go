package migrations

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3/lock"
)

// sessionLock is the advisory lock of every goose, so that one of the user's own is shut out
// as well. It is waited for in the server: goose itself would look again every five seconds.
type sessionLock struct{}

func (sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `select pg_advisory_lock($1::bigint)`, lock.DefaultLockID)
	return err
}

func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `select pg_advisory_unlock($1::bigint)`, lock.DefaultLockID)
	return err
}
