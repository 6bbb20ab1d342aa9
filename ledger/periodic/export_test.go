package periodic

import (
	"context"
	"time"
)

// SetClock adds an offset to the database's clock of r.
func (r *Runner) SetClock(offset time.Duration) { r.clock = offset }

// Pass fires all schedules that are due.
func (r *Runner) Pass(ctx context.Context) (time.Duration, error) { return r.pass(ctx) }

// Statements are all statements of this package by file name.
var Statements = map[string]string{
	"advance.sql": advanceSQL, "delete.sql": deleteSQL, "due.sql": dueSQL, "finished.sql": finishedSQL,
	"list.sql": listSQL, "lock.sql": lockSQL, "lock_one.sql": lockOneSQL, "now.sql": nowSQL, "pause.sql": pauseSQL,
	"put.sql": putSQL, "wait.sql": waitSQL,
}
