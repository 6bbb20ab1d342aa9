// Package schedules reads what health and alarms report of all schedules.
package schedules

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

var (
	//go:embed sql/summary.sql
	summarySQL string
	//go:embed sql/next.sql
	nextSQL string
	//go:embed sql/passed_over.sql
	passedOverSQL string
)

// maxLate is the greatest number of schedules in [Summary].Late.
const maxLate = 100

// Summary is the number of schedules, and the schedules that have been due longest.
type Summary struct {
	Total  int `json:"total"`
	Paused int `json:"paused"`
	// PausedNames are the schedules that have been paused longest, at most 100, the longest first.
	PausedNames []string `json:"paused_names,omitempty"`
	Due         int      `json:"due"` // schedules with a due firing; paused ones do not count
	// Late are the schedules that have been due longest, at most 100, the longest first.
	Late []Late `json:"-"`
}

// Late is a schedule with a firing that is due.
type Late struct {
	Name   string
	NextAt time.Time // of that firing
}

// ReadSummary returns a summary, by the database's clock. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadSummary(ctx context.Context, db ledger.DB) (s Summary, err error) {
	rows, err := db.Query(ctx, summarySQL, int64(maxLate))
	if err != nil {
		return s, pgerr.Explain("read the schedules", err)
	}
	defer rows.Close()
	var paused string
	for rows.Next() {
		var l Late
		if err := rows.Scan(&s.Total, &s.Paused, &s.Due, &l.Name, pgquery.Micros(&l.NextAt), &paused); err != nil {
			return s, pgerr.Explain("read the schedules", err)
		}
		if l.Name != "" {
			s.Late = append(s.Late, l)
		}
	}
	if err := rows.Err(); err != nil {
		return s, pgerr.Explain("read the schedules", err)
	}
	if err := json.Unmarshal([]byte(paused), &s.PausedNames); err != nil {
		return s, &ledger.CorruptError{What: "names of paused schedules", Err: err}
	}
	return s, nil
}

// ReadNext returns the number of microseconds until the first firing of all schedules, by the database's clock; nil:
// none is to come.
func ReadNext(ctx context.Context, db ledger.DB) (micros *int64, err error) {
	_, err = pgquery.Row(ctx, db, nextSQL, nil, &micros)
	return micros, pgerr.Explain("read the next firing", err)
}

// PassedOver is a schedule that has passed over firings: missed, overlapping or paused.
type PassedOver struct {
	Name   string
	Passed int64     // firings
	At     time.Time // when firings were last passed over
}

// ReadPassedOver returns the schedules that have passed over firings, by name. It never commits.
// Errors: [ledger.ErrNotMigrated].
func ReadPassedOver(ctx context.Context, db ledger.DB) (all []PassedOver, err error) {
	rows, err := db.Query(ctx, passedOverSQL)
	if err != nil {
		return nil, pgerr.Explain("read schedules that have passed over firings", err)
	}
	defer rows.Close()
	for rows.Next() {
		var p PassedOver
		if err := rows.Scan(&p.Name, &p.Passed, pgquery.Micros(&p.At)); err != nil {
			return nil, pgerr.Explain("read schedules that have passed over firings", err)
		}
		all = append(all, p)
	}
	return all, pgerr.Explain("read schedules that have passed over firings", rows.Err())
}
