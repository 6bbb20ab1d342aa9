package outbox

import (
	"time"

	"github.com/taskledger/taskledger/internal/feed"
	"github.com/taskledger/taskledger/ledger"
)

// Start is where a new subscriber begins. The zero value is the beginning of the ledger.
type Start struct{ at feed.Start }

// StartNow is the present: the events that are committed afterwards.
func StartNow() Start { return Start{feed.Now()} }

// StartAfter is the place after the event at a position; 0 is the beginning.
func StartAfter(p ledger.Position) Start { return Start{feed.After(p)} }

// StartAt is the place after the events that were committed up to a time of the database's clock, see
// [ledger.MomentAt].
func StartAt(t time.Time) Start { return Start{feed.At(t)} }

// String returns the place, such as "now", "position 17" or a time.
func (s Start) String() string { return s.at.String() }
