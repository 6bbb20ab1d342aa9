package periodic

import "time"

// maxWalk is how many slots are looked at to count those that were missed.
const maxWalk = 100_000

// plan is what is to be done about a schedule that is due.
type plan struct {
	fire   []time.Time // in order
	passed passed      // over
	next   time.Time   // zero: not known, or there is none
}

// passed is a row of slots that do not fire.
type passed struct {
	count    int  // 0: none
	more     bool // there were more than count
	from, to time.Time
}

// passOver returns all slots that are due, from first to now, as passed over.
func passOver(due slots, first, now time.Time) plan {
	return decide(due, first, now, 0)
}

// planFor decides what is to be done at now about a schedule with defaults whose next slot was
// first, which is not after now. It is pure.
func planFor(s Schedule, due slots, first, now time.Time) plan {
	if s.After != 0 {
		return plan{fire: []time.Time{first}}
	}
	most := 1
	if s.Missed == MissedAll {
		most = s.MissedLimit
	}
	p := decide(due, first, now, most)
	if late := p.fire[len(p.fire)-1]; s.Missed == MissedSkip && now.Sub(late) > Grace {
		return decide(due, first, now, 0)
	}
	return p
}

// decide fires the newest of the slots that are due, most of them at most, and passes over the rest.
func decide(due slots, first, now time.Time, most int) plan {
	var p plan
	p.next, _ = due.next(now)
	p.fire = newestSlots(due, first, now, most+1)
	if len(p.fire) <= most {
		return p
	}
	p.passed.from, p.passed.to, p.fire = first, p.fire[0], p.fire[1:]
	p.passed.count, p.passed.more = count(due, first, p.passed.to)
	return p
}

// count returns how many slots there are from one to another, or at least maxWalk and more.
func count(due slots, from, to time.Time) (n int, more bool) {
	for slot, found := from, true; found && !slot.After(to); slot, found = due.next(slot) {
		if n == maxWalk {
			return n, true
		}
		n++
	}
	return n, false
}

// newestSlots returns the n newest slots from first to now, in order; fewer if there are not as
// many.
func newestSlots(due slots, first, now time.Time, n int) []time.Time {
	newest := make([]time.Time, n)
	for i := n - 1; i >= 0; i-- {
		newest[i] = newestSlot(due, first, now)
		if !newest[i].After(first) {
			return newest[i:]
		}
		now = newest[i].Add(-time.Microsecond)
	}
	return newest
}

// newestSlot returns the newest slot that is not after now, if known is one; by bisection, since
// the slot that comes next never moves back.
func newestSlot(due slots, known, now time.Time) time.Time {
	for step := now.Sub(known); step > 0; step /= 2 {
		for {
			slot, found := due.next(known.Add(step))
			if !found || slot.After(now) {
				break
			}
			known = slot
		}
	}
	return known
}
