package outbox

import "github.com/taskledger/taskledger/ledger"

// Waits returns the number of tasks that waits of w wait for.
func Waits(w *Waiter) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.awaited {
		n += len(a.places)
	}
	return n
}

// KnownWaits returns the number of tasks that waits of w wait for, and whose state they have.
func KnownWaits(w *Waiter) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.awaited {
		for _, p := range a.places {
			if p.wait.tasks[p.number].State != ledger.StateNone {
				n++
			}
		}
	}
	return n
}

// WaiterEntries returns the number of keys that w holds.
func WaiterEntries(w *Waiter) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.awaited) + len(w.queue)
}
