package periodic

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/list.sql
var listSQL string

// Status is a schedule and where it stands.
type Status struct {
	Schedule  Schedule  `json:"schedule"` // with defaults
	Paused    bool      `json:"paused"`
	Revision  int       `json:"revision"` // counts definitions, and pause and resume
	Actor     string    `json:"actor"`    // of the last one
	UpdatedAt time.Time `json:"updated_at"`

	NextAt   time.Time   `json:"next_at,omitzero"` // the next slot; zero: the task before is unfinished, or there is none
	LastAt   time.Time   `json:"last_at,omitzero"` // the last slot that fired
	LastTask *ledger.Key `json:"last_task,omitempty"`
	Passed   int64       `json:"passed"` // slots that did not fire: missed, overlapping or while it was paused
	PassedAt time.Time   `json:"passed_at,omitzero"`
}

// List returns all schedules by name.
func List(ctx context.Context, db ledger.DB) ([]Status, error) {
	all, _, err := list(ctx, db, "")
	return all, err
}

// Load returns a schedule. It returns [ErrUnknownSchedule].
func Load(ctx context.Context, db ledger.DB, name string) (Status, error) {
	s, _, err := load(ctx, db, name)
	return s, err
}

// load also returns the time of the database.
func load(ctx context.Context, db ledger.DB, name string) (Status, time.Time, error) {
	if err := ledger.Kind(name).Validate(); err != nil {
		return Status{}, time.Time{}, fmt.Errorf("schedule: %w", renamed(err, "name"))
	}
	found, now, err := list(ctx, db, name)
	if err != nil {
		return Status{}, now, err
	}
	if len(found) == 0 {
		return Status{}, now, fmt.Errorf("schedule %s: %w", name, ErrUnknownSchedule)
	}
	return found[0], now, nil
}

// list returns the schedules of a name, or all, and, if there are any, the time of the database.
func list(ctx context.Context, db ledger.DB, name string) (found []Status, now time.Time, err error) {
	rows, err := db.Query(ctx, listSQL, name)
	if err != nil {
		return nil, now, pgerr.Explain("list schedules", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s Status
		if s, now, err = scan(rows); err != nil {
			return nil, now, pgerr.Explain("list schedules", err)
		}
		found = append(found, s)
	}
	return found, now, pgerr.Explain("list schedules", rows.Err())
}

// scan reads a row of list.sql or due.sql.
func scan(row pgx.Row) (s Status, now time.Time, err error) {
	var args *string
	var every, after int64
	var anchor, next, last, passed *time.Time
	var task ledger.Key
	d := &s.Schedule
	err = row.Scan(&d.Name, (*string)(&d.Kind), &args, &d.Cron, &d.Zone, &every, &anchor, &after,
		(*string)(&d.Missed), &d.MissedLimit, (*string)(&d.Overlap),
		&s.Paused, &s.Revision, &s.Actor, &s.UpdatedAt, &next, &last, (*string)(&task.Kind), (*string)(&task.BizID),
		&s.Passed, &passed, &now)
	if args != nil {
		d.Args = []byte(*args)
	}
	d.Every, d.After = time.Duration(every)*time.Millisecond, time.Duration(after)*time.Millisecond
	d.Anchor = utc(anchor)
	s.UpdatedAt = s.UpdatedAt.UTC()
	s.NextAt, s.LastAt, s.PassedAt = utc(next), utc(last), utc(passed)
	if task.BizID != "" {
		s.LastTask = &task
	}
	return s, now.UTC(), err
}

// utc is the zero time for null.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
