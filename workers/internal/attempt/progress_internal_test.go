package attempt

import (
	"testing"
	"time"
)

// The number of progress events grows with the logarithm of an attempt's time, not with the time.
func TestProgressOfLongAttempts(t *testing.T) {
	t.Parallel()
	for ran, most := range map[time.Duration]int{time.Minute: 60, time.Hour: 460, 24 * time.Hour: 780} {
		n := 0
		for at := ProgressEvery(0); at <= ran; at += ProgressEvery(at) {
			n++
		}
		if n > most || n < most*9/10 {
			t.Errorf("an attempt of %s records %d events, want at most %d", ran, n, most)
		}
	}
}
