package periodic

import "time"

// maxWalk is the greatest number of missed firings that are counted one by one.
const maxWalk = 100_000

// plan is the work on a schedule that is due.
type plan struct {
	fire   []time.Time // the firings that become tasks, in order
	passed firingRange // the firings before them
	next   time.Time   // the next firing; zero: unknown yet, or no firing follows
}

// firingRange is a range of firings that are passed over.
type firingRange struct {
	count    int
	more     bool // there are more than count
	from, to time.Time
}

// planPassOver passes over all firings that are due, from first to now.
func planPassOver(due recurrence, first, now time.Time) plan {
	return planNewest(due, first, now, 0)
}

// planFor returns the work at now on a schedule whose defaults are set and whose next firing was first, which is not
// after now. It is a pure function.
func planFor(s Schedule, due recurrence, first, now time.Time) plan {
	if s.FixedDelay != 0 {
		return plan{fire: []time.Time{first}}
	}
	limit := 1
	if s.Missed == MissedAll {
		limit = s.MissedLimit
	}
	p := planNewest(due, first, now, limit)
	if newest := p.fire[len(p.fire)-1]; s.Missed == MissedSkip && now.Sub(newest) > grace {
		return planPassOver(due, first, now)
	}
	return p
}

// planNewest fires the newest of the firings that are due, at most limit of them, and passes over the others.
func planNewest(due recurrence, first, now time.Time, limit int) plan {
	var p plan
	p.next, _ = due.next(now)
	p.fire = newestFirings(due, first, now, limit+1)
	if len(p.fire) <= limit {
		return p
	}
	p.passed.from, p.passed.to, p.fire = first, p.fire[0], p.fire[1:]
	p.passed.count, p.passed.more = countFirings(due, first, p.passed.to)
	return p
}

// countFirings returns the number of firings between two, inclusive; at most maxWalk, and then more is true.
func countFirings(due recurrence, from, to time.Time) (n int, more bool) {
	for firing, found := from, true; found && !firing.After(to); firing, found = due.next(firing) {
		if n == maxWalk {
			return n, true
		}
		n++
	}
	return n, false
}

// newestFirings returns the n newest firings from first to now, in order; all firings if there are fewer.
func newestFirings(due recurrence, first, now time.Time, n int) []time.Time {
	newest := make([]time.Time, n)
	for i := n - 1; i >= 0; i-- {
		newest[i] = newestFiring(due, first, now)
		if !newest[i].After(first) {
			return newest[i:]
		}
		now = newest[i].Add(-time.Microsecond)
	}
	return newest
}

// newestFiring returns the newest firing that is not after now; known is an older firing. It bisects, which is correct
// because a later time never has an earlier next firing.
func newestFiring(due recurrence, known, now time.Time) time.Time {
	for step := now.Sub(known); step > 0; step /= 2 {
		for {
			firing, found := due.next(known.Add(step))
			if !found || firing.After(now) {
				break
			}
			known = firing
		}
	}
	return known
}
