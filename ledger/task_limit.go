package ledger

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
)

//go:embed sql/task_limits.sql
var taskLimitsSQL string

// TaskLimit is a [StartLimit] that applies to a task, and its use by the tasks that it counts together with this one.
type TaskLimit struct {
	Name       string
	Per        LimitPer
	Value      string     // of the task's property that the limit is per; "": one count
	MaxRunning *int       // nil: any number
	Rate       *StartRate // nil: any rate
	Running    int
	Holders    []string  // at most 5 of the running tasks, the oldest first, as KIND/BIZ_ID
	Next       time.Time // when the rate allows the task's start; zero: now
}

// IsClosed reports whether the limit allows no start at the given time of the database.
func (l TaskLimit) IsClosed(now time.Time) bool { return l.isFull() || l.Next.After(now) }

func (l TaskLimit) isFull() bool { return l.MaxRunning != nil && l.Running >= *l.MaxRunning }

// Use describes the use of the limit, as in "partner-x of acme, 5 of 5 in use".
func (l TaskLimit) Use(now time.Time) string {
	text := l.Name
	if l.Value != "" {
		text += " of " + l.Value
	}
	if l.isFull() {
		return fmt.Sprintf("%s, %d of %d in use", text, l.Running, *l.MaxRunning)
	}
	if l.Rate != nil {
		return fmt.Sprintf("%s, %s, the next start in %s", text, l.Rate,
			max(0, l.Next.Sub(now)).Round(time.Millisecond))
	}
	return text
}

// ReadTaskLimits returns the limits that apply to a task, ordered by name. It never commits. Errors: [ErrNotMigrated].
func ReadTaskLimits(ctx context.Context, db DB, k Key) ([]TaskLimit, error) {
	rows, err := db.Query(ctx, taskLimitsSQL, string(k.Kind), string(k.BizID))
	if err != nil {
		return nil, pgerr.Explain("read a task's limits", err)
	}
	defer rows.Close()
	var all []TaskLimit
	for rows.Next() {
		var l TaskLimit
		var running, seconds int
		var rate StartRate
		var next *int64
		err := rows.Scan(&l.Name, &l.Value, (*string)(&l.Per), &running, &rate.Starts, &seconds, &rate.Burst,
			&l.Running, &l.Holders, &next)
		if err != nil {
			return nil, pgerr.Explain("read a task's limits", err)
		}
		if running >= 0 {
			l.MaxRunning = &running
		}
		if rate.Starts > 0 {
			rate.Period = time.Duration(seconds) * time.Second
			l.Rate = &rate
		}
		if next != nil {
			l.Next = time.UnixMicro(*next).UTC()
		}
		all = append(all, l)
	}
	return all, pgerr.Explain("read a task's limits", rows.Err())
}
