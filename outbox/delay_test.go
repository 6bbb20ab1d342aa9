package outbox_test

import (
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/health"
	"github.com/taskledger/taskledger/outbox"
)

// A relay that stands by takes over from a killed process before that is a lag: it sees at a first look that the
// connection is gone, and at another one that it still is. A relay that works causes no lag either, although the events
// of its last pages count as not published until the next cursor row.
func TestTakeoverComesBeforeTheLag(t *testing.T) {
	t.Parallel()
	const takeover = 1500 * time.Millisecond
	looks := 3 * outbox.LookEvery() // the first is up to one interval late, and so is the second
	lag, _ := health.Define(health.RelayLag)
	if looks > takeover/2 || looks >= lag.Threshold {
		t.Errorf("a standby looks for %s, want at most half of %s, and less than %s", looks, takeover, lag.Threshold)
	}
	if outbox.MaxCursorEvery >= lag.Threshold {
		t.Errorf("cursor rows come every %s, and the threshold is %s", outbox.MaxCursorEvery, lag.Threshold)
	}
}
