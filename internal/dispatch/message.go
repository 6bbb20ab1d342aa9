package dispatch

import (
	"math"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// notAdopted is the Adopted of an offer to a session that has not answered in the offer's epoch.
const notAdopted = math.MinInt64

// Freshness is the greatest age of a view of a task for a worker to begin the task without reading its head. When a
// dispatcher's lease has ended for this long, workers accept none of its offers.
const Freshness = 2 * time.Second

// maxListed is the maximum number of holdings that a report lists, and of tasks in an offer.
const maxListed = 1000

// maxOfferBytes is the size of contents and keys above which an offer takes no further task.
const maxOfferBytes = 64 << 10

// Report is a message of a worker.
type Report struct {
	Session     string
	Incarnation string        // of the database that the worker's last statement has reached
	Epoch       int64         // of the dispatcher that the worker follows; 0: none yet
	Sent        time.Duration // by the worker's monotonic clock

	Asked     map[ledger.Kind]int64 // the number of tasks that the worker has asked for in this epoch
	Received  int64                 // the highest number that it has received in this epoch
	IsLeaving bool                  // it takes no further tasks, whatever it has asked for
	Held      []Range               // the numbers of the tasks that it holds, rising

	// Listed are the holdings of an earlier epoch with the numbers After+1 to Through. Holdings up to After are
	// adopted. In the first report of an epoch, -After is the number of all.
	Listed         []Holding
	After, Through int64
}

// Holding is a task that a worker holds.
type Holding struct {
	Key     ledger.Key
	Version ledger.Version
	Number  int64
}

// isValid reports whether the holding may name a task of the ledger.
func (h *Holding) isValid() bool {
	return h.Version > 0 && len(h.Key.Kind) <= ledger.MaxKindLen && len(h.Key.BizID) <= ledger.MaxBizIDLen &&
		h.Key.ValidateStored() == nil
}

// Range is the numbers from First to Last.
type Range struct{ First, Last int64 }

// Offer is a message of the dispatcher.
type Offer struct {
	Session     string
	Incarnation string
	Epoch       int64
	Echo        time.Duration // Sent of the newest report of the session; 0: none in this epoch

	Number  int64                 // of the first task; without tasks, the highest number that was sent
	Given   map[ledger.Kind]int64 // sums with this offer: of unconfirmed kinds; in a probe of all kinds
	Adopted int64                 // the highest number of a holding that is adopted
	Tasks   []Task                // of one kind
	// Moved are tasks that the session was offered and to which others have appended. It is only a hint, which may be
	// lost: their heads decide.
	Moved []ledger.Key
}

// Task is a task that may begin.
type Task struct {
	Key      ledger.Key
	Version  ledger.Version  // of its last event, which the append of its outcome follows
	Attempt  ledger.Attempt  // of that event
	Shard    ledger.Shard    // as recorded
	Priority ledger.Priority // of that event
	Position ledger.Position // of the event that made it available
	// Partition is the task's, of that event.
	Partition string
	OrderKey  string
	Actor     string // the worker that has begun it and does not hold it; "": it has not begun

	// IsAgain is set if the task may have begun elsewhere without a record: its start must be recorded first.
	IsAgain bool
	// Content is marshalled [Content]. It is nil if the worker must read it from the ledger.
	Content []byte
}
