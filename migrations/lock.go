package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"time"

	"github.com/pressly/goose/v3/lock"
)

//go:embed sql/migration_lock.sql
var migrationLockSQL string

// sessionLock holds the advisory lock that every goose takes, so it also excludes a goose of the user's own. Any login
// that may connect can hold such a lock, but sessionLock does not wait for a login that may not migrate. Without the
// lock two migrations could collide: then one of them returns an error and changes nothing.
type sessionLock struct{}

func (sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	const poll = 100 * time.Millisecond
	for {
		var wait bool
		if err := conn.QueryRowContext(ctx, migrationLockSQL, lock.DefaultLockID).Scan(&wait); err != nil || !wait {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}

func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	const unlock = `
		select pg_advisory_unlock($1::bigint) from pg_catalog.pg_locks k
		 where k.locktype = 'advisory' and k.pid = pg_backend_pid() and k.objsubid = 1
		   and k.classid::bigint = $1::bigint >> 32 and k.objid::bigint = $1::bigint & 4294967295`
	_, err := conn.ExecContext(ctx, unlock, lock.DefaultLockID)
	return err
}
