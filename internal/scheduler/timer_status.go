package scheduler

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/timers_status.sql
var timersStatusSQL string

// maxDueCounted bounds the cost of counting the timers that are due.
const maxDueCounted = 10_000

// TimerStatus is the status of all timers: delays, retries and deadlines.
type TimerStatus struct {
	Due       int       `json:"due"`              // timers that are due and not fired
	DueCapped bool      `json:"due_capped"`       // there are at least Due
	LateMS    int64     `json:"late_ms"`          // for how many milliseconds the first timer has been due
	NextAt    time.Time `json:"next_at,omitzero"` // when the first timer of all is due; zero if there are no timers
}

// Late returns how long the first timer has been due.
func (s TimerStatus) Late() time.Duration { return time.Duration(s.LateMS) * time.Millisecond }

// ReadTimers returns the status of the timers, by the database's clock. It never commits.
// Errors: [ledger.ErrNotMigrated].
func ReadTimers(ctx context.Context, db ledger.DB) (TimerStatus, error) {
	var s TimerStatus
	if _, err := pgquery.Row(
		ctx, db, timersStatusSQL, []any{int64(maxDueCounted)}, &s.Due, &s.LateMS, pgquery.Micros(&s.NextAt),
	); err != nil {
		return s, pgerr.Explain("read timers", err)
	}
	s.DueCapped = s.Due == maxDueCounted
	return s, nil
}
