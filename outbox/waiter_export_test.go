package outbox

// Waits returns the number of tasks that waits of w wait for.
func Waits(w *Waiter) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.awaited {
		n += len(a.places)
	}
	return n
}

// WaiterEntries returns the number of keys that w holds.
func WaiterEntries(w *Waiter) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.awaited) + len(w.queue)
}
