package projector

import "testing"

// The statistics of passed minutes are merged although the database's clock was ahead for a while.
func TestMergeAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	const now, ahead = 29_000_000, 29_000_000 + 365*24*60
	var m statsMerger
	for _, minute := range []int64{now, now + 1, ahead, ahead + 1} {
		m.next(minute)
	}
	m.next(now + 3)
	if since, before, due := m.next(now + 4); !due || since > now+1 || before != now+3 {
		t.Errorf("merges from %d to %d, %t; want the minutes since %d to %d", since, before, due, now+1, now+3)
	}
	if _, _, due := m.next(now + 4); due {
		t.Error("merges the same minutes again")
	}
}
