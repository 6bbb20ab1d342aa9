package dispatcher

import (
	"context"
	"time"

	"github.com/taskledger/taskledger/internal/lease"
	"github.com/taskledger/taskledger/ledger"
)

// Status is the state of a ledger's dispatcher.
type Status struct {
	// Epoch is the number of the active dispatcher, or of the last one; 0: none has begun yet.
	Epoch int64 `json:"epoch"`
	// Alive is whether a dispatcher holds a live lease, and the connection of its process has not ended.
	Alive bool `json:"alive"`
	// Since is when the dispatcher became active or, if it is not alive, when its lease ends or has ended.
	Since time.Time `json:"since,omitzero"`
	// Note is the reason if a running dispatcher does not become active: another copy of the database works on the
	// same NATS.
	Note string `json:"note,omitempty"`
}

// ReadStatus reads the state of the dispatcher. It never commits. Errors: [ledger.ErrNotMigrated].
func ReadStatus(ctx context.Context, db ledger.DB) (Status, error) {
	s, err := lease.LookAtDispatcher(ctx, db)
	status := Status{Epoch: s.Epoch, Alive: s.IsAlive && !s.IsGone, Since: s.Since}
	if !status.Alive {
		status.Since, status.Note = s.Until, s.Note
	}
	return status, err
}
