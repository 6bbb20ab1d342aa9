package attempt

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

const (
	// MaxRepeats is how often in a row an attempt is repeated without an event. Each further one is a failure.
	MaxRepeats = 10
	// maxRepeating bounds the memory of repeats.
	maxRepeating = 10_000
)

// Repeat is a task whose attempts are repeated without an event.
type Repeat struct {
	BizID ledger.BizID
	Times int // in a row, in this process
	Error string
	Since time.Time // of the first one, by this machine's clock
	At    time.Time // of the last one
}

// repeats counts for each task how many of its attempts in a row ended because of the ledger's database. Such attempts
// leave no event, so a deadlock or a restart uses no attempt. The count reveals a task that ends its connection each
// time. It is safe for concurrent use.
type repeats struct {
	size atomic.Int32 // of tasks: an attempt that succeeds usually finds none, and takes no lock

	mu    sync.Mutex
	tasks map[ledger.BizID]Repeat // guarded by mu
}

// add counts a repeat and returns the number of repeats in a row.
func (r *repeats) add(id ledger.BizID, err error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks == nil || len(r.tasks) >= maxRepeating {
		r.tasks = make(map[ledger.BizID]Repeat)
	}
	now := time.Now()
	task, found := r.tasks[id]
	if !found {
		task.Since = now
	}
	task.BizID, task.At, task.Error = id, now, shortMessage(strings.ReplaceAll(err.Error(), "\x00", "")) // for JSON
	task.Times++
	r.tasks[id] = task
	r.size.Store(int32(len(r.tasks)))
	return task.Times
}

// forget ends the count of a task.
func (r *repeats) forget(id ledger.BizID) {
	if r.size.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tasks, id)
	r.size.Store(int32(len(r.tasks)))
}

// Repeating returns the task of the kind whose attempts this process repeats most often in a row. A task counts for an
// LeaseTTL after its last attempt, because it is tried again within half of that.
func (k *Kind) Repeating() (most Repeat, found bool) {
	if k.repeats.size.Load() == 0 {
		return Repeat{}, false
	}
	k.repeats.mu.Lock()
	defer k.repeats.mu.Unlock()
	for _, r := range k.repeats.tasks {
		if time.Since(r.At) > k.leaseTTL { // another process has it, or its failure is recorded
			continue
		}
		if r.Times > most.Times || r.Times == most.Times && r.BizID < most.BizID {
			most = r
		}
	}
	return most, most.Times > 0
}
