package inflight

import (
	"sync/atomic"
	"time"
)

// A worker has more tasks in flight than slots: the work of a short time ahead. So the tasks of a slow handler wait at
// the dispatcher, which can give them to any worker, and the tasks of a quick handler arrive in time.
const (
	// AheadTime is how much work may be in flight beyond the slots.
	AheadTime = 100 * time.Millisecond
	// AheadBytes bounds the payloads in flight. Above it no task is asked for beyond the slots.
	AheadBytes = 8 << 20

	maxAhead = 1000
)

// pace is a moving average of the time from the arrival of a task to the end of its attempt. It is safe for
// concurrent use; if two attempts end at the same time, one of them may not count.
type pace struct {
	average atomic.Int64  // nanoseconds; 0: no attempt has ended
	within  time.Duration // constant
}

// note adds a task to the average.
func (p *pace) note(d time.Duration) {
	old := p.average.Load()
	if old == 0 {
		old = int64(d)
	}
	p.average.Store(max(1, old+(int64(d)-old)/8))
}

// ahead returns how many tasks may be in flight beyond this number of slots: as many as the slots use within p.within.
// The time that tasks take includes their wait. So, where w is the wait and s the time in a slot, this converges to
// w(w+s) = s·within, and to almost nothing where other kinds use the pool's slots. It is 0 until an attempt has ended.
func (p *pace) ahead(slots int) int {
	average := p.average.Load()
	if average == 0 {
		return 0
	}
	return int(min(maxAhead, int64(slots)*int64(p.within)/average))
}
