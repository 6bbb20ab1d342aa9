package inflight

import (
	"sync/atomic"
	"time"
)

// A worker holds beyond its slots what they will use while more is on its way. So the tasks of a slow
// handler wait in the stream, where any worker can have them, and those of a quick one are here when
// they are wanted.
const (
	// AheadTime is how much work is held beyond the slots.
	AheadTime = 100 * time.Millisecond
	// AheadBytes bounds the payloads in flight: with more than that nothing is held beyond the slots.
	AheadBytes = 8 << 20

	maxAhead  = 1000
	headBytes = 64 << 10 // more than what is around a payload: subjects and headers
)

// pace is a moving average of the time from the arrival of a task to the end of its attempt. It is
// safe for concurrent use; of two attempts that end at once one may not count.
type pace struct {
	average atomic.Int64
	within  time.Duration
}

// note adds a task to the average.
func (p *pace) note(d time.Duration) {
	old := p.average.Load()
	if old == 0 {
		old = int64(d)
	}
	p.average.Store(max(1, old+(int64(d)-old)/8))
}

// ahead returns how many tasks to hold beyond so many slots: what they would use within the time. The
// wait is a part of what tasks take. So, where w is the wait and s the time in a slot, this converges to
// w(w+s) = s·within, and to almost nothing where other kinds have the pool's slots. It is 0 until an
// attempt has ended.
func (p *pace) ahead(slots int) int {
	average := p.average.Load()
	if average == 0 {
		return 0
	}
	return int(min(maxAhead, int64(slots)*int64(p.within)/average))
}
