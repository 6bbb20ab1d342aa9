package archiver

import (
	"context"
	_ "embed"
	"time"

	"github.com/taskledger/taskledger/internal/pgerr"
	"github.com/taskledger/taskledger/internal/pgquery"
	"github.com/taskledger/taskledger/ledger"
)

//go:embed sql/state.sql
var stateSQL string

// State is the state of the archive. Zero times are missing.
type State struct {
	EndedAt   time.Time `json:"ended_at,omitzero"` // of the last run
	Cutoff    time.Time `json:"cutoff,omitzero"`   // tasks that ended before should be archived
	Tasks     int64     `json:"tasks"`             // that the last run has removed
	Held      int64     `json:"held"`              // tasks that readers of the feed hold in the tables
	HeldBy    string    `json:"held_by,omitempty"`
	HeldSince time.Time `json:"held_since,omitzero"` // the earliest end of these tasks: the oldest archivable task
	// UnfinishedSince is when a run began that has not ended. It runs, was killed, or has failed.
	UnfinishedSince time.Time `json:"unfinished_since,omitzero"`
	RemovedAt       time.Time `json:"removed_at,omitzero"` // when a batch was last removed
}

// ReadState returns the state of the archive, and nil if it has never run. It never commits.
func ReadState(ctx context.Context, db ledger.DB) (*State, error) {
	var s State
	_, err := pgquery.Row(ctx, db, stateSQL, nil, pgquery.Micros(&s.EndedAt), pgquery.Micros(&s.Cutoff), &s.Tasks,
		&s.Held, &s.HeldBy, pgquery.Micros(&s.HeldSince), pgquery.Micros(&s.UnfinishedSince),
		pgquery.Micros(&s.RemovedAt))
	if err != nil {
		return nil, pgerr.Explain("read the state of the archive", err)
	}
	if s.EndedAt.IsZero() && s.UnfinishedSince.IsZero() {
		return nil, nil
	}
	return &s, nil
}
