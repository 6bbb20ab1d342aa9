//go:build !race

// The race detector empties pools at random, and so adds allocations.

package attempt

import (
	"testing"
	"time"
)

// Quick attempts use timers of each other.
func TestNoteTimerAllocations(t *testing.T) {
	k := &Kind{StartedAfter: time.Minute}
	one, other := &Attempt{}, &Attempt{}
	k.stopNoteTimer(k.startNoteTimer(one))
	if got := testing.AllocsPerRun(100, func() {
		timer := k.startNoteTimer(other)
		if timer.attempt != other {
			t.Error("the timer is of another attempt")
		}
		k.stopNoteTimer(timer)
	}); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
