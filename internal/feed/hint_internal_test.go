package feed

import (
	"testing"
	"testing/synctest"
	"time"
)

// A hint brings the next window within 50 ms if feeds follow, and only then. Hints that go on do not put it off, and a
// hint that came during the last window counts.
func TestHintsAreForThoseWhoFollow(t *testing.T) {
	t.Parallel()
	const asleep = 240 * time.Millisecond // without a hint; longer sleeps end together with those of other loops
	for _, tc := range []struct {
		name       string
		isFollowed bool
		hints      []time.Duration // after the sleep has begun
		want       time.Duration
	}{
		{name: "no hint", isFollowed: true, want: asleep},
		{name: "nobody follows", hints: []time.Duration{0}, want: asleep},
		{name: "hint before the sleep", isFollowed: true, hints: []time.Duration{0}, want: hintedPoll},
		{name: "hints", isFollowed: true, hints: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond},
			want: 10*time.Millisecond + hintedPoll},
		{name: "late hint", isFollowed: true, hints: []time.Duration{asleep - time.Millisecond}, want: asleep},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				r := rest{wake: NewWake(), isHinted: true, reports: NewFindings(), asked: begin.Add(-time.Hour),
					since: begin.Add(-idleShare * asleep)}
				if tc.isFollowed {
					r.reports.follow()
				}
				for _, at := range tc.hints {
					if at == 0 {
						r.wake.Hint()
						continue
					}
					time.AfterFunc(at, r.wake.Hint)
				}
				if err := r.sleep(t.Context(), 0, time.Time{}); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(begin); got != tc.want {
					t.Errorf("the feed slept for %s, want %s", got, tc.want)
				}
			})
		})
	}
}
