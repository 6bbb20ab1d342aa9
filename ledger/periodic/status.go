package periodic

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/taskledger/taskledger/internal/lists"
	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/list.sql
var listSQL string

// Status is a schedule and its position.
type Status struct {
	Schedule  Schedule  `json:"schedule"` // with defaults
	Revision  int       `json:"revision"` // counts definitions, pauses and resumptions
	Actor     string    `json:"actor"`    // of the last of these changes
	UpdatedAt time.Time `json:"updated_at"`

	// Paused reports whether an operator has paused the schedule. If it is false, the next three are empty.
	Paused      bool      `json:"paused"`
	PausedAt    time.Time `json:"paused_at,omitzero"`
	PausedBy    string    `json:"paused_by,omitempty"`
	PauseReason string    `json:"pause_reason,omitempty"` // "" if none was given

	// NextAt is the next firing. It is zero if the previous task of a fixed delay is unfinished, or if there is
	// no further firing.
	NextAt   time.Time   `json:"next_at,omitzero"`
	LastAt   time.Time   `json:"last_at,omitzero"` // the last firing that became a task
	LastTask *ledger.Key `json:"last_task,omitempty"`
	Passed   int64       `json:"passed"`             // firings that were passed over: missed, overlapping or paused
	PassedAt time.Time   `json:"passed_at,omitzero"` // when firings were last passed over
}

// ReadSchedules returns at most limit schedules whose names follow after, by name; "" is before the first. Errors:
// [*ledger.InvalidError] if limit is less than 1, [ledger.ErrNotMigrated].
func ReadSchedules(ctx context.Context, db ledger.DB, after string, limit int) ([]Status, error) {
	if err := lists.CheckLimit(limit); err != nil {
		return nil, fmt.Errorf("read schedules: %w", err)
	}
	page, _, err := list(ctx, db, "", after, int64(limit))
	return page, err
}

// Load returns a schedule, or [ErrUnknownSchedule].
func Load(ctx context.Context, db ledger.DB, name string) (Status, error) {
	s, _, err := load(ctx, db, name)
	return s, err
}

// load returns a schedule and the time of the database.
func load(ctx context.Context, db ledger.DB, name string) (Status, time.Time, error) {
	if err := ledger.Kind(name).Validate(); err != nil {
		return Status{}, time.Time{}, fmt.Errorf("schedule: %w", renamed(err, "name"))
	}
	found, now, err := list(ctx, db, name, "", 1)
	if err != nil {
		return Status{}, now, err
	}
	if len(found) == 0 {
		return Status{}, now, fmt.Errorf("schedule %s: %w", name, ErrUnknownSchedule)
	}
	return found[0], now, nil
}

// list returns the schedule with a name, or the schedules after a name if the first is empty. If it finds any, it also
// returns the database's time.
func list(ctx context.Context, db ledger.DB, name, after string, limit int64) (
	found []Status, now time.Time, err error) {
	rows, err := db.Query(ctx, listSQL, name, after, limit)
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
	var every, delay int64
	var task ledger.Key
	d := &s.Schedule
	err = row.Scan(&d.Name, (*string)(&d.Kind), &args, &d.Cron, &d.Zone, &every, pgquery.Micros(&d.Anchor), &delay,
		(*string)(&d.Missed), &d.MissedLimit, (*string)(&d.Overlap),
		pgquery.Micros(&s.PausedAt), &s.PausedBy, &s.PauseReason, &s.Revision, &s.Actor,
		pgquery.Micros(&s.UpdatedAt), pgquery.Micros(&s.NextAt),
		pgquery.Micros(&s.LastAt), (*string)(&task.Kind), (*string)(&task.BizID), &s.Passed,
		pgquery.Micros(&s.PassedAt), pgquery.Micros(&now))
	if args != nil {
		d.Args = []byte(*args)
	}
	s.Paused = !s.PausedAt.IsZero()
	d.Every, d.FixedDelay = time.Duration(every)*time.Millisecond, time.Duration(delay)*time.Millisecond
	if task.BizID != "" {
		s.LastTask = &task
	}
	return s, now, err
}
