package workers

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/timers_status.sql
var timersStatusSQL string

// maxDueCounted bounds what counting the timers that are due may cost.
const maxDueCounted = 10_000

// TimerStatus is how the timers are doing: retries, delays and deadlines.
type TimerStatus struct {
	Due       int       `json:"due"`              // and not fired yet
	DueCapped bool      `json:"due_capped"`       // there are at least that many
	LateMS    int64     `json:"late_ms"`          // how long the first of them has been due
	NextAt    time.Time `json:"next_at,omitzero"` // when the first timer of all is due; zero: none waits
}

// Late is how long the first timer has been due.
func (s TimerStatus) Late() time.Duration { return time.Duration(s.LateMS) * time.Millisecond }

// ReadTimers returns how the timers are doing, by the database's clock.
func ReadTimers(ctx context.Context, db ledger.DB) (TimerStatus, error) {
	var s TimerStatus
	rows, err := db.Query(ctx, timersStatusSQL, int64(maxDueCounted))
	if err != nil {
		return s, pgerr.Explain("read the timers", err)
	}
	defer rows.Close()
	var next *time.Time
	for rows.Next() {
		if err := rows.Scan(&s.Due, &s.LateMS, &next); err != nil {
			return s, err
		}
	}
	if next != nil {
		s.NextAt = next.UTC()
	}
	s.DueCapped = s.Due == maxDueCounted
	return s, pgerr.Explain("read the timers", rows.Err())
}
