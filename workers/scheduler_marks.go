package workers

import "time"

// marks say from where in the index of timers to look, so that what is dead at its low end and
// cannot be vacuumed, since somebody holds a snapshot, is not stepped over again and again. A
// timer may become visible late: its transaction commits after others whose timers were due
// after it. Two points bear that in mind:
//
//   - safe: nothing below it is in the table, nor ever will be. A timer's transaction draws its
//     id before it reads the clock, and its timer is due at that time or later
//     (migrations, table timer). So once every transaction is over whose id is below one that was drawn
//     at some moment, no timer that is not visible yet is due before that moment; and what is
//     visible is not below the lowest one seen.
//   - next: nothing below it was there when it was last looked. Timers are taken from here on;
//     looking from safe, which may cost more, sets it back for what came late.
type marks struct {
	safe, next time.Time // zero: from the beginning
	remembered []mark    // oldest first
}

// mark is a moment, and a transaction id that was drawn after it.
type mark struct {
	at  time.Time
	xid uint64
}

// maxMarks bounds what is remembered while a transaction stays open; of older marks every other
// one is then forgotten, so that some are there for whenever it ends.
const maxMarks = 256

func (m *marks) remember(k mark) {
	if len(m.remembered) == maxMarks {
		kept := m.remembered[:0]
		for i, old := range m.remembered {
			if i%2 == 0 {
				kept = append(kept, old)
			}
		}
		m.remembered = kept
	}
	m.remembered = append(m.remembered, k)
}

// looked takes in that the lowest timer from safe on is due at lowest, and of those that are not set
// aside at free (zero for none), in a snapshot in which no transaction below xmin is running.
func (m *marks) looked(lowest, free time.Time, xmin uint64) {
	n := 0
	for n < len(m.remembered) && m.remembered[n].xid <= xmin {
		n++
	}
	if n > 0 {
		safe := m.remembered[n-1].at
		if !lowest.IsZero() && lowest.Before(safe) {
			safe = lowest
		}
		if safe.After(m.safe) {
			m.safe = safe
		}
		m.remembered = append(m.remembered[:0], m.remembered[n-1:]...) // the last one serves again, for another lowest
	}
	if !free.IsZero() && (free.Before(m.next) || m.next.IsZero()) {
		m.next = free
	}
}

// reset has everything looked at again: the clock was set back, so that what was said of
// moments no longer holds.
func (m *marks) reset() { *m = marks{} }
