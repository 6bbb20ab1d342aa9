package scheduler

import "time"

// horizon is the point from which the index of timers is read. While a snapshot is held, fired timers stay at the low
// end of the index as dead entries that cannot be vacuumed. Without a horizon every poll would step over them. The
// goroutine of Scheduler.Run uses it.
//
// A timer may become visible late: its transaction commits after others whose timers are due later. So there
// are two points:
//
//   - safe: the table contains no timer before it, and never will. The transaction of a timer draws its ID before it
//     reads the clock, and the timer is due at that time or later (migrations, table timer). A sample is a moment
//     and a transaction ID drawn after it. Once all transactions with lower IDs have ended, no timer that is still
//     invisible is due before that moment.
//   - next: no timer before it was visible when the index was last read. Batches begin here. A poll begins at safe,
//     which may cost more, and sets next back for timers that became visible late.
type horizon struct {
	safe, next time.Time // zero: from the low end of the index
	samples    []sample  // oldest first
}

// sample is a moment, and a transaction ID that was drawn after it.
type sample struct {
	at  time.Time
	xid uint64
}

// maxSamples bounds the samples that are kept while a transaction stays open. Above it every other sample is
// forgotten, so that some samples are useful whenever the transaction ends.
const maxSamples = 256

func (h *horizon) add(k sample) {
	if len(h.samples) == maxSamples {
		kept := h.samples[:0]
		for i, old := range h.samples {
			if i%2 == 0 {
				kept = append(kept, old)
			}
		}
		h.samples = kept
	}
	h.samples = append(h.samples, k)
}

// advance moves the horizon after a poll from safe on. first is when the first of all timers is due, and firstFree
// when the first timer of a task that is not deferred is due (zero: none). No transaction with an ID below oldest was
// running.
func (h *horizon) advance(first, firstFree time.Time, oldest uint64) {
	n := 0
	for n < len(h.samples) && h.samples[n].xid <= oldest {
		n++
	}
	if n > 0 {
		safe := h.samples[n-1].at
		if !first.IsZero() && first.Before(safe) {
			safe = first
		}
		if safe.After(h.safe) {
			h.safe = safe
		}
		h.samples = append(h.samples[:0], h.samples[n-1:]...) // the last of them may allow more at the next poll
	}
	if !firstFree.IsZero() && (firstFree.Before(h.next) || h.next.IsZero()) {
		h.next = firstFree
	}
}

// reset makes the next read begin at the low end of the index, after the clock was set back, a fail-over or a restore.
func (h *horizon) reset() { *h = horizon{} }
