package periodic

import (
	"context"
	"time"
)

// SetClock sets the database's clock forward or back, as r sees it.
func (r *Runner) SetClock(by time.Duration) { r.clock = by }

// Pass fires all that is due.
func (r *Runner) Pass(ctx context.Context) (time.Duration, error) { return r.pass(ctx) }

// Statements are those of this package, by file name.
var Statements = map[string]string{
	"advance.sql": advanceSQL, "delete.sql": deleteSQL, "due.sql": dueSQL, "finished.sql": finishedSQL,
	"list.sql": listSQL, "lock.sql": lockSQL, "lock_one.sql": lockOneSQL, "now.sql": nowSQL, "pause.sql": pauseSQL, "put.sql": putSQL, "wait.sql": waitSQL,
}
