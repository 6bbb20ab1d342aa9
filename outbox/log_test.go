package outbox_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/taskledger/taskledger/outbox"
)

// A backlog drains through a stream that is nearly full all the time. The log has one line about that in ten seconds,
// and the number of the others.
func TestDrainLogsLittle(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var log bytes.Buffer
	r := b.relay(smallPages, smallStream, func(c *outbox.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	served := b.awaitWorkers("coupon.send")
	began := time.Now()
	for i := range 6 {
		b.enqueue("coupon.send", fmt.Sprintf("round-%d-", i), 300)
		b.take(served, 300)
	}
	r.end()
	const text = "stream was nearly full"
	lines, most := strings.Count(log.String(), text), 2+int(time.Since(began)/(10*time.Second))
	if lines > most || !strings.Contains(log.String(), "times=") {
		t.Errorf("%d lines, want at most %d, and the number of the others:\n%s", lines, most, log.String())
	}
}
