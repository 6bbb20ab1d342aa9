package printable_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", 90 * time.Minute: "1h30m", time.Minute: "1m", 10 * time.Second: "10s", 0: "0s",
		time.Hour + time.Second: "1h0m1s", 1250 * time.Millisecond: "1.25s", 20 * time.Hour: "20h",
	} {
		if got := printable.Duration(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}
