package workers

import (
	"time"

	"github.com/taskledger/taskledger/internal/stream"
	"github.com/taskledger/taskledger/ledger"
)

// head is what the ledger says about the task of a message: its last event.
type head struct {
	found      bool
	version    ledger.Version
	eventType  ledger.EventType
	attempt    ledger.Attempt
	actor      string
	recordedAt time.Time     // of the message's own event; zero: the ledger has no such event
	clock      time.Time     // the database's, when the head was read
	alive      time.Duration // how much longer the actor's lease lasts; 0: it is over, or there is none
}

// verdict is what is to be done about a message.
type verdict int

const (
	refuseGhost verdict = iota // the ledger does not have the message's event
	drop                       // nothing to do: finished, or waiting for an event with its own message
	run                        // nobody has begun
	claimAndRun                // somebody may have begun: record the start first
	resume                     // this process began, and did not get to record an outcome
	wait                       // another worker is at it
	takeOver                   // another worker was at it, and is gone
	vanished                   // somebody was at it, and nobody may do it again
)

// decide says what the head of a task makes of a message for it that is not in hand already.
// self is the id of this worker. A message is only a wake-up call: what was true when it was
// published does not matter, but for one thing: if the ledger has another event in its place, or
// none, then it is from another past, which a fail-over or a restore has undone.
func decide(m stream.Message, redelivered bool, h head, self string) verdict {
	if !h.found || !h.recordedAt.Equal(m.RecordedAt) {
		return refuseGhost
	}
	switch h.eventType.State() {
	case ledger.StateAvailable:
		if redelivered {
			return claimAndRun
		}
		return run
	case ledger.StateRunning:
		switch {
		case h.actor == self:
			return resume
		case h.alive > 0:
			return wait
		}
		return takeOver
	}
	return drop
}
